#include "ops/kernels/save_options.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

#include "ops/io/store.h"

namespace adaptcp {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A 32nd of the machine's memory, within bounds: for rows on their way, and for
// segments that wait in memory.
uint64_t ShareOfMemory() {
  const uint64_t all = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
  return std::clamp(all / 32, 64 * kMiB, 1024 * kMiB);
}

template <typename T>
T Or(const Json& request, const char* name, T automatic) {
  const T given = request.value(name, T{0});
  return given != 0 ? given : automatic;
}

}  // namespace

void ParseCaptureOptions(const Json& request, SaveOptions* options) {
  options->capture_memory_bytes =
      Or<size_t>(request, "capture_memory_bytes", ShareOfMemory());
  options->update_wait = std::chrono::milliseconds(
      Or<int64_t>(request, "update_wait_ms", 10000));
}

Status ParseSaveOptions(const Json& request, uint64_t bytes,
                        SaveOptions* options) {
  ParseCaptureOptions(request, options);
  const std::string directory = request.value("directory", "");
  const std::string buffer_dir = request.value("buffer_dir", "");
  if (directory.empty()) {
    return Status::InvalidArgument("a save needs a directory. Received: " +
                                   request.dump());
  }
  std::string local;
  options->direct = IsLocalPath(directory, &local) && buffer_dir.empty();
  uint64_t room = ShareOfMemory();
  if (!buffer_dir.empty()) {
    ADAPTCP_RETURN_IF_ERROR(
        BufferDirectory::Open(buffer_dir, &options->buffer));
    uint64_t free = 0;
    ADAPTCP_RETURN_IF_ERROR(options->buffer->FreeBytes(&free));
    // On a full disk a write that fails says more than a wait for room.
    const uint64_t sharers = 1 + options->buffer->others();
    room = std::max(free / 2 / sharers, 64 * kMiB);
  }
  options->buffer_bytes = Or<uint64_t>(request, "buffer_bytes", room);
  // Stores limit what a connection gets; a disk has one head, or none.
  options->upload_threads = std::max(
      1, Or<int>(request, "upload_threads", options->direct ? 2 : 8));
  // A restore holds two of them at once, which is to be little beside the tables.
  uint64_t segment = std::clamp(bytes / 16, 16 * kMiB, 128 * kMiB);
  if (!options->direct) {
    // Several of them fit into the room, and all connections have something to
    // do however little is written, unless it is too little to care.
    const uint64_t most = std::clamp(options->buffer_bytes / 8, 2 * kMiB,
                                     (options->buffer ? 128 : 64) * kMiB);
    segment = std::clamp(bytes / options->upload_threads, 2 * kMiB, most);
  }
  options->segment_bytes = Or<uint64_t>(request, "segment_bytes", segment);
  options->block_bytes = Or<size_t>(request, "block_bytes", kMiB);
  const int cores = std::thread::hardware_concurrency();
  options->writer_threads =
      std::max(1, Or<int>(request, "writer_threads", cores));
  // Each has a segment of its own: no more of them than are filled anyway.
  const uint64_t segments =
      bytes / std::max<uint64_t>(1, options->segment_bytes);
  const int filled = static_cast<int>(
      std::clamp<uint64_t>(segments, 1, options->writer_threads));
  options->encoders = std::max(1, Or<int>(request, "writer_threads", filled));
  options->upload_bytes_per_second =
      request.value("upload_bytes_per_second", uint64_t{0});
  options->retry_for =
      std::chrono::milliseconds(Or<int64_t>(request, "retry_ms", 60000));
  return Status::Ok();
}

}  // namespace adaptcp

// How a checkpoint is captured and written: what the request says, and what is
// chosen where it says 0.

#ifndef ADAPTCP_OPS_KERNELS_SAVE_OPTIONS_H_
#define ADAPTCP_OPS_KERNELS_SAVE_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/io/local/buffer_directory.h"
#include "ops/kernels/tf_util.h"
#include "ops/util/status.h"

namespace adaptcp {

struct SaveOptions {
  size_t capture_memory_bytes = 0;
  std::chrono::milliseconds update_wait{0};
  size_t block_bytes = 0;
  uint64_t segment_bytes = 0;
  // Threads that read rows, and threads that encode them, at most; one of each
  // to begin with.
  int writer_threads = 1;
  int encoders = 1;
  int upload_threads = 1;
  uint64_t buffer_bytes = 0;
  uint64_t upload_bytes_per_second = 0;  // 0: no limit
  // Segments are written where they belong, without a stop in between.
  bool direct = true;
  std::shared_ptr<BufferDirectory> buffer;  // null: staged in memory
  std::chrono::milliseconds retry_for{0};
  // No thread rests any more from then on: see Pace.
  std::chrono::steady_clock::time_point rest_until =
      std::chrono::steady_clock::time_point::max();
};

// What a cut needs to know; touches no disk.
void ParseCaptureOptions(const Json& request, SaveOptions* options);

// request: {directory, segment_bytes, block_bytes, writer_threads,
// upload_threads, capture_memory_bytes, buffer_dir, buffer_bytes,
// upload_bytes_per_second, retry_ms, update_wait_ms}. 0, or what is left out, is
// chosen here. Opens the buffer directory. `bytes`: what is about to be written,
// at most.
Status ParseSaveOptions(const Json& request, uint64_t bytes,
                        SaveOptions* options);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_SAVE_OPTIONS_H_

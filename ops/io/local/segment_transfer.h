// Takes segments on their way from the encoders to the store.

#ifndef ADAPTCP_OPS_IO_LOCAL_SEGMENT_TRANSFER_H_
#define ADAPTCP_OPS_IO_LOCAL_SEGMENT_TRANSFER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "ops/format/byte_io.h"
#include "ops/io/local/buffer_directory.h"
#include "ops/io/local/retry.h"
#include "ops/io/local/transfer_limits.h"
#include "ops/util/status.h"

namespace adaptcp {

struct TransferOptions {
  // Files are written where they belong: for a store that is local. Otherwise
  // segments are staged, and uploaded once they are complete.
  bool direct = false;
  // Where they are staged; null: in memory.
  std::shared_ptr<BufferDirectory> buffer;
  // At most; there are as many as have something to do.
  int upload_threads = 1;
  // How long the upload of one segment may be tried again.
  std::chrono::milliseconds retry_for{0};
};

struct TransferStats {
  int upload_threads = 0;  // the most that there were at once
  uint64_t uploads = 0;    // segments that are durable in the store
  uint64_t retries = 0;    // attempts that failed and were followed by another
  uint64_t staged_peak_bytes = 0;
  std::chrono::nanoseconds room_wait{0};  // of encoders, for staging room
  // From the start until all was durable in the buffer; 0 without one.
  std::chrono::nanoseconds buffered_after{0};
};

// The segments of one save. Thread-safe.
//
// Of a staged segment each attempt at an upload has a name of its own (see
// NameOfAttempt): an attempt that failed may have left a part of it, or all of
// it, under its name, and no name is written twice. What is staged goes away with
// its upload, or when the save fails.
//
// An upload that hangs is left behind: when `stop` is set, nothing waits for it
// for long. It holds its staging room until the store lets go.
class SegmentTransfer {
 public:
  using OpenSink = std::function<Status(const std::string& path,
                                        std::unique_ptr<ByteSink>* sink)>;
  using OnFailure = std::function<void(const Status&)>;

  // `open`: the store's NewSink. `on_failure`: called, by any thread, with no
  // lock held, when a segment could not be made durable; expected to set `stop`.
  SegmentTransfer(TransferOptions options, OpenSink open,
                  std::shared_ptr<StagingRoom> room,
                  std::shared_ptr<RateLimit> rate,
                  std::shared_ptr<const StopFlag> stop, OnFailure on_failure);
  ~SegmentTransfer();

  // A sink for the segment `path` of the store. Its SyncAndClose does not wait
  // for the store: that is what Finish does.
  Status Open(const std::string& path, std::unique_ptr<ByteSink>* sink);

  // To be called before a block is appended. Where there is no staging room, it
  // waits for uploads to end, or until `stop` is set: Cancelled. If all that is
  // staged is in sinks that are open still, the caller's are to leave first: it
  // calls `close_sinks`, and returns what that returns if it fails. If direct,
  // there is always room.
  Status WaitForRoom(const std::function<Status()>& close_sinks);
  bool IsFull() const;
  // Full, and no upload of this save will make room: only sinks that are closed.
  bool IsStuck() const;

  // After every sink was closed, and none is opened any more. OK: all segments
  // are durable in the store; *names has what each is called there, by the path
  // it was opened with. After a failure, or when `stop` is set, waits at most
  // for `grace` for what still runs.
  Status Finish(std::chrono::milliseconds grace,
                std::map<std::string, std::string>* names);

  // After Finish has failed: lets go of what still waits, which closes files and
  // removes those that were staged. May block for as long as the store does.
  void Drop();

  TransferStats stats() const;

  // Expires when nothing of it is left: not before the store has let go of the
  // threads that were left behind.
  std::weak_ptr<const void> life() const;

  // "a/b.seg", then "a/b-try2.seg", "a/b-try3.seg", ...
  static std::string NameOfAttempt(const std::string& path, int attempt);

  struct State;  // internal

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_SEGMENT_TRANSFER_H_

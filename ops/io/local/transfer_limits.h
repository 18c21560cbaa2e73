// What bounds the segments on their way to a store: how many bytes wait, and how
// many leave per second. Both are of a whole session: what an earlier save has
// left hanging counts against a later one, so that memory never grows.

#ifndef ADAPTCP_OPS_IO_LOCAL_TRANSFER_LIMITS_H_
#define ADAPTCP_OPS_IO_LOCAL_TRANSFER_LIMITS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "ops/io/local/retry.h"

namespace adaptcp {

// Bytes of segments that are staged: encoded, and not in the store yet.
// Thread-safe; its mutex is a leaf.
class StagingRoom {
 public:
  void SetLimit(uint64_t bytes);

  // Never wait: whoever adds has asked for room before. Several may have done so
  // at once: the limit is passed by at most what each of them adds then.
  void Add(uint64_t bytes);
  void Remove(uint64_t bytes);

  bool IsFull() const;
  // Waits until it isn't full, at most for `time`.
  void WaitForRoom(std::chrono::nanoseconds time);

  uint64_t used() const;

 private:
  mutable std::mutex mu_;
  std::condition_variable freed_;
  uint64_t limit_ = UINT64_MAX;
  uint64_t used_ = 0;
};

// Bytes per second, by all threads together. Thread-safe; its mutex is a leaf.
class RateLimit {
 public:
  // 0: none. What has been taken so far is to be paid for at the new rate.
  void SetRate(uint64_t bytes_per_second);
  // Waits for its turn: until what others took before has been paid for. False
  // if `stop` was set first.
  bool Take(uint64_t bytes, const StopFlag& stop);

 private:
  std::chrono::steady_clock::duration TimeOf(uint64_t bytes) const;

  std::mutex mu_;
  uint64_t rate_ = 0;
  std::chrono::steady_clock::time_point free_at_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_TRANSFER_LIMITS_H_

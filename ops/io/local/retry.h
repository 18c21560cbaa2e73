// Doing an operation of a store again after it failed, with waits that grow.

#ifndef ADAPTCP_OPS_IO_LOCAL_RETRY_H_
#define ADAPTCP_OPS_IO_LOCAL_RETRY_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "ops/util/status.h"

namespace adaptcp {

// A flag that, once set, ends all waits for it. Thread-safe; its mutex is a leaf.
class StopFlag {
 public:
  void Set() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      set_ = true;
    }
    changed_.notify_all();
  }
  bool IsSet() const {
    std::lock_guard<std::mutex> lock(mu_);
    return set_;
  }
  // Sleeps; true, at once, if it is or was set meanwhile.
  bool SleepFor(std::chrono::nanoseconds time) const {
    std::unique_lock<std::mutex> lock(mu_);
    return changed_.wait_for(lock, time, [&] { return set_; });
  }

 private:
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  bool set_ = false;
};

// Whether a later attempt may succeed: the store could not be reached, or was
// too slow. A full disk, a missing object and damage stay.
bool IsTransient(const Status& status);

// How long to go on, and how patiently.
struct RetryLimits {
  std::chrono::steady_clock::time_point deadline;
  // Waits start here and double; each is drawn at random from the upper half, so
  // that many servers don't come back at once.
  std::chrono::milliseconds first_wait{100};
  std::chrono::milliseconds longest_wait{10000};
};

// Calls `attempt`, with the number of the attempt (1, 2, ...), until it succeeds
// or fails for good, until the next wait would pass the deadline, or until
// `stop` (may be null) is set: then returns what the last attempt returned, which
// says after how many attempts if there were several; Cancelled if there was
// none. One attempt may block for as long as it likes.
Status Retry(const RetryLimits& limits, const StopFlag* stop,
             const std::function<Status(int)>& attempt);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_RETRY_H_

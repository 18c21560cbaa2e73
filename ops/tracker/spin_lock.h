// A one-byte lock for critical sections of a few dozen nanoseconds.

#ifndef ADAPTCP_OPS_TRACKER_SPIN_LOCK_H_
#define ADAPTCP_OPS_TRACKER_SPIN_LOCK_H_

#include <atomic>
#include <thread>

namespace adaptcp {

// Lockable: use std::lock_guard. Yields after a short spin, because its
// holder may have lost the processor or may be growing a table.
class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) {
      int spins = 0;
      while (locked_.load(std::memory_order_relaxed)) {
        if (++spins < 64) {
#if defined(__x86_64__) || defined(__i386__)
          __builtin_ia32_pause();
#endif
        } else {
          std::this_thread::yield();
        }
      }
    }
  }
  bool try_lock() {
    return !locked_.load(std::memory_order_relaxed) &&
           !locked_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_SPIN_LOCK_H_

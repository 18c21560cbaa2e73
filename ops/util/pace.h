// How work in the background leaves a busy machine to those it works for.

#ifndef ADAPTCP_OPS_UTIL_PACE_H_
#define ADAPTCP_OPS_UTIL_PACE_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace adaptcp {

// Of a thread, since it began. 0 where Linux does not say.
class ThreadTimes {
 public:
  virtual ~ThreadTimes() = default;
  // How long it ran.
  virtual std::chrono::nanoseconds cpu() const = 0;
  // How long it was ready to run while others did. Reads a file.
  virtual std::chrono::nanoseconds delayed() const = 0;
  // The time, of the steady clock.
  virtual std::chrono::nanoseconds clock() const = 0;
};
// As of now, of whichever thread asks.
const ThreadTimes& TimesOfThisThread();

// Shared by the threads of one piece of work; thread-safe.
//
// Work may use `free_cpu` as it likes, so that what is short is over soon. After
// that a thread that others keep waiting rests, twice as long each time, until all
// threads together have no more than `cores`, each as much as another; half as
// long each time that it need not wait, so that cores that nobody else wants are
// used. It rests only as long as those it works for do something themselves:
// somebody may be waiting for it otherwise, and has nothing of what neighbours
// get. That is asked every 10 ms of work. From `until` of the steady clock on
// nobody rests: what takes too long is given up, and all its work is lost.
class Pace {
 public:
  Pace(double cores, std::chrono::nanoseconds free_cpu,
       std::chrono::nanoseconds until = std::chrono::nanoseconds::max())
      : cores_(cores), until_(until), free_(free_cpu.count()) {}

  // What one thread has used since it last rested. As long as it is there the
  // thread counts among those that share the work.
  class Meter {
   public:
    // `now`: of the thread that will call Due, the only one that may. `served`:
    // a number that changes whenever those it works for do something.
    Meter(Pace* pace, const ThreadTimes& now, uint64_t served);
    ~Meter() { --pace_->meters_; }
    Meter(const Meter&) = delete;
    Meter& operator=(const Meter&) = delete;
    // How long the thread should rest now, 0 to 1 s. Call between small pieces
    // of work.
    std::chrono::nanoseconds Due(const ThreadTimes& now, uint64_t served);

   private:
    Pace* const pace_;  // outlives this
    std::chrono::nanoseconds cpu_;
    std::chrono::nanoseconds delayed_;
    uint64_t served_;
    std::chrono::nanoseconds last_served_{kNever};
    std::chrono::nanoseconds rest_{0};
  };

 private:
  static constexpr std::chrono::nanoseconds kNever = std::chrono::hours(-24);

  const double cores_;
  const std::chrono::nanoseconds until_;
  std::atomic<int> meters_{0};
  std::atomic<int64_t> free_;  // nanoseconds left
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_UTIL_PACE_H_

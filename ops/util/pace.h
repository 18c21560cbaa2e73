// How work in the background leaves a busy machine to those it works for.

#ifndef ADAPTCP_OPS_UTIL_PACE_H_
#define ADAPTCP_OPS_UTIL_PACE_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace adaptcp {

// Of the calling thread, since it began: how long it ran, and how long it was
// ready to run while others did. Zeros where Linux does not say.
struct ThreadTimes {
  std::chrono::nanoseconds cpu{0};
  std::chrono::nanoseconds delayed{0};
  std::chrono::nanoseconds clock{0};  // steady
};
ThreadTimes TimesOfThisThread();

// Shared by the threads of one piece of work; thread-safe.
//
// Work may use `free_cpu` as it likes, so that what is short is over soon. After
// that a thread that others keep waiting rests, twice as long each time, until it
// has no more than `share` of a core; half as long each time that it need not
// wait, so that cores that nobody else wants are used. It rests only as long as
// those it works for do something themselves: somebody may be waiting for it
// otherwise, and has nothing of what neighbours get. That is asked every 10 ms of
// work. From `until` of the steady clock on nobody rests: what takes too long is
// given up, and all its work is lost.
class Pace {
 public:
  Pace(double share, std::chrono::nanoseconds free_cpu,
       std::chrono::nanoseconds until = std::chrono::nanoseconds::max())
      : share_(share), until_(until), free_(free_cpu.count()) {}

  // What one thread has used since it last rested.
  class Meter {
   public:
    // `now`: of the thread that will call Due, the only one that may. `served`:
    // a number that changes whenever those it works for do something.
    Meter(Pace* pace, const ThreadTimes& now, uint64_t served)
        : pace_(pace), began_(now), served_(served) {}
    // How long the thread should rest now, 0 to 1 s. Call between small pieces
    // of work.
    std::chrono::nanoseconds Due(const ThreadTimes& now, uint64_t served);

   private:
    Pace* const pace_;  // outlives this
    ThreadTimes began_;
    uint64_t served_;
    std::chrono::nanoseconds last_served_{kNever};
    std::chrono::nanoseconds rest_{0};
  };

 private:
  static constexpr std::chrono::nanoseconds kNever = std::chrono::hours(-24);

  const double share_;
  const std::chrono::nanoseconds until_;
  std::atomic<int64_t> free_;  // nanoseconds left
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_UTIL_PACE_H_

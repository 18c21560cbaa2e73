#include "ops/util/pace.h"

#include <time.h>

#include <algorithm>
#include <fstream>

namespace adaptcp {

using std::chrono::nanoseconds;

ThreadTimes TimesOfThisThread() {
  ThreadTimes times;
  times.clock = std::chrono::steady_clock::now().time_since_epoch();
  timespec cpu{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) == 0) {
    times.cpu = std::chrono::seconds(cpu.tv_sec) + nanoseconds(cpu.tv_nsec);
  }
  // Time on a core, time in its queue, number of times there.
  std::ifstream statistics("/proc/thread-self/schedstat");
  int64_t ran = 0;
  int64_t waited = 0;
  if (statistics >> ran >> waited) times.delayed = nanoseconds(waited);
  return times;
}

nanoseconds Pace::Meter::Due(const ThreadTimes& now, uint64_t served) {
  // Longer than a turn of the scheduler, or nobody would be seen to wait.
  constexpr std::chrono::milliseconds kBurst(10);
  constexpr std::chrono::seconds kLongest(1);
  // Longer than a step, or it would be taken for the end of training.
  constexpr std::chrono::seconds kStep(1);
  if (served != served_) last_served_ = now.clock;
  served_ = served;
  const nanoseconds used = now.cpu - began_.cpu;
  if (used < kBurst) return nanoseconds(0);
  const nanoseconds delayed = now.delayed - began_.delayed;
  began_ = now;
  if (pace_->free_.fetch_sub(used.count()) > 0) return nanoseconds(0);
  if (now.clock - last_served_ > kStep || now.clock >= pace_->until_) {
    return rest_ = nanoseconds(0);
  }
  if (delayed < used / 4) return rest_ /= 2;
  const nanoseconds turn(static_cast<int64_t>(used.count() / pace_->share_));
  const nanoseconds most = std::clamp<nanoseconds>(
      turn - used - delayed, nanoseconds(0), kLongest);
  return rest_ = std::min(std::max(used, 2 * rest_), most);
}

}  // namespace adaptcp

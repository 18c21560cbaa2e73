#include "ops/util/pace.h"

#include <time.h>

#include <algorithm>
#include <fstream>

namespace adaptcp {

using std::chrono::nanoseconds;

namespace {

class OfThisThread final : public ThreadTimes {
 public:
  nanoseconds cpu() const override {
    timespec cpu{};
    if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) != 0) return {};
    return std::chrono::seconds(cpu.tv_sec) + nanoseconds(cpu.tv_nsec);
  }
  nanoseconds delayed() const override {
    // Time on a core, time in its queue, number of times there.
    std::ifstream statistics("/proc/thread-self/schedstat");
    int64_t ran = 0;
    int64_t waited = 0;
    if (!(statistics >> ran >> waited)) return {};
    return nanoseconds(waited);
  }
  nanoseconds clock() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
};

}  // namespace

const ThreadTimes& TimesOfThisThread() {
  static const OfThisThread times;
  return times;
}

Pace::Meter::Meter(Pace* pace, const ThreadTimes& now, uint64_t served)
    : pace_(pace), cpu_(now.cpu()), delayed_(now.delayed()), served_(served) {
  ++pace_->meters_;
}

nanoseconds Pace::Meter::Due(const ThreadTimes& now, uint64_t served) {
  // Longer than a turn of the scheduler, or nobody would be seen to wait.
  constexpr std::chrono::milliseconds kBurst(10);
  constexpr std::chrono::seconds kLongest(1);
  // Longer than a step, or it would be taken for the end of training.
  constexpr std::chrono::seconds kStep(1);
  const nanoseconds clock = now.clock();
  if (served != served_) last_served_ = clock;
  served_ = served;
  const nanoseconds cpu = now.cpu();
  const nanoseconds used = cpu - cpu_;
  if (used < kBurst) return nanoseconds(0);
  const nanoseconds all_delayed = now.delayed();
  const nanoseconds delayed = all_delayed - delayed_;
  cpu_ = cpu;
  delayed_ = all_delayed;
  if (pace_->free_.fetch_sub(used.count()) > 0) return nanoseconds(0);
  if (clock - last_served_ > kStep || clock >= pace_->until_) {
    return rest_ = nanoseconds(0);
  }
  if (delayed < used / 4) return rest_ /= 2;
  const double share = pace_->cores_ / pace_->meters_;
  const nanoseconds turn(static_cast<int64_t>(used.count() / share));
  const nanoseconds most = std::clamp<nanoseconds>(
      turn - used - delayed, nanoseconds(0), kLongest);
  return rest_ = std::min(std::max(used, 2 * rest_), most);
}

}  // namespace adaptcp

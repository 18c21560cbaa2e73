#include "ops/util/pace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace adaptcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

ThreadTimes At(int cpu_ms, int delayed_ms) {
  return {milliseconds(cpu_ms), milliseconds(delayed_ms)};
}

TEST(PaceTest, WhoIsKeptWaitingGetsItsShare) {
  Pace pace(0.2, nanoseconds(0));
  Pace::Meter meter(&pace, At(100, 50));
  EXPECT_EQ(meter.Due(At(105, 60)), milliseconds(0));  // too early to say
  // 20 ms of work in 30 ms; a fifth of a core is 100 ms.
  EXPECT_EQ(meter.Due(At(120, 60)), milliseconds(70));
  EXPECT_EQ(meter.Due(At(130, 60)), milliseconds(0));  // nobody else
  EXPECT_EQ(meter.Due(At(140, 63)), milliseconds(37));
  EXPECT_EQ(meter.Due(At(150, 163)), milliseconds(0));  // less than its share
}

TEST(PaceTest, NobodyRestsLong) {
  Pace pace(0.01, nanoseconds(0));
  Pace::Meter meter(&pace, At(0, 0));
  EXPECT_EQ(meter.Due(At(100, 100)), milliseconds(1000));
}

TEST(PaceTest, ShortWorkIsFree) {
  Pace pace(0.5, milliseconds(25));
  Pace::Meter one(&pace, At(0, 0));
  Pace::Meter other(&pace, At(0, 0));
  EXPECT_EQ(one.Due(At(10, 10)), milliseconds(0));
  EXPECT_EQ(other.Due(At(20, 10)), milliseconds(0));  // begun while free
  EXPECT_EQ(one.Due(At(30, 20)), milliseconds(10));
}

TEST(PaceTest, ThreadsThatShareACoreAreSeenToWait) {
  // More of them than this machine can have cores.
  std::atomic<bool> seen{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency() + 2; ++i) {
    threads.emplace_back([&] {
      Pace pace(0.1, nanoseconds(0));
      Pace::Meter meter(&pace, TimesOfThisThread());
      while (!seen) {
        if (meter.Due(TimesOfThisThread()) > nanoseconds(0)) seen = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace adaptcp

#include "ops/util/pace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace adaptcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

class At final : public ThreadTimes {
 public:
  At(int cpu_ms, int delayed_ms, int clock_ms = 0)
      : cpu_(cpu_ms), delayed_(delayed_ms), clock_(clock_ms) {}

  nanoseconds cpu() const override { return cpu_; }
  nanoseconds delayed() const override {
    ++asked_;
    return delayed_;
  }
  nanoseconds clock() const override { return clock_; }
  // How often its file would have been read.
  int asked() const { return asked_; }

 private:
  milliseconds cpu_, delayed_, clock_;
  mutable int asked_ = 0;
};

TEST(PaceTest, WhoIsKeptWaitingGetsItsShare) {
  Pace pace(0.1, nanoseconds(0));
  Pace::Meter meter(&pace, At(100, 50), 0);
  EXPECT_EQ(meter.Due(At(105, 60), 1), milliseconds(0));  // too early to say
  EXPECT_EQ(meter.Due(At(110, 60), 2), milliseconds(10));
  EXPECT_EQ(meter.Due(At(120, 70), 3), milliseconds(20));
  EXPECT_EQ(meter.Due(At(130, 80), 4), milliseconds(40));
  // 10 ms of work in 20 ms; a tenth of a core is 100 ms.
  EXPECT_EQ(meter.Due(At(140, 90), 5), milliseconds(80));
  EXPECT_EQ(meter.Due(At(150, 100), 6), milliseconds(80));
  EXPECT_EQ(meter.Due(At(160, 250), 7), milliseconds(0));  // less than its share
}

TEST(PaceTest, WhoWorkTogetherShareTheCores) {
  Pace pace(0.5, nanoseconds(0));
  Pace::Meter one(&pace, At(0, 0), 0);
  EXPECT_EQ(one.Due(At(100, 50), 1), milliseconds(50));  // 100 in 200
  {
    Pace::Meter other(&pace, At(0, 0), 0);
    EXPECT_EQ(one.Due(At(200, 100), 2), milliseconds(100));
    EXPECT_EQ(one.Due(At(300, 150), 3), milliseconds(200));
    EXPECT_EQ(one.Due(At(400, 200), 4), milliseconds(250));  // 100 in 400
    EXPECT_EQ(other.Due(At(100, 50), 1), milliseconds(100));
    EXPECT_EQ(other.Due(At(200, 100), 2), milliseconds(200));
    EXPECT_EQ(other.Due(At(300, 150), 3), milliseconds(250));
  }
  EXPECT_EQ(one.Due(At(500, 250), 5), milliseconds(50));
}

TEST(PaceTest, DelaysAreReadWhenTheyDecideAndNotBefore) {
  Pace pace(0.1, nanoseconds(0));
  const At start(0, 0), early(9, 9), late(10, 10);
  Pace::Meter meter(&pace, start, 0);
  meter.Due(early, 1);
  EXPECT_EQ(early.asked(), 0);
  meter.Due(late, 2);
  EXPECT_EQ(late.asked(), 1);
}

TEST(PaceTest, WhoNeedNotWaitRestsLessAndLess) {
  Pace pace(0.1, nanoseconds(0));
  Pace::Meter meter(&pace, At(0, 0), 0);
  EXPECT_EQ(meter.Due(At(10, 0), 1), milliseconds(0));
  EXPECT_EQ(meter.Due(At(20, 3), 2), milliseconds(10));
  EXPECT_EQ(meter.Due(At(30, 5), 3), milliseconds(5));
  EXPECT_EQ(meter.Due(At(40, 7), 4), std::chrono::microseconds(2500));
  EXPECT_EQ(meter.Due(At(50, 10), 5), milliseconds(10));
}

TEST(PaceTest, NobodyRestsForNeighboursAlone) {
  Pace pace(0.1, nanoseconds(0));
  Pace::Meter meter(&pace, At(0, 0, 100000), 7);
  EXPECT_EQ(meter.Due(At(10, 10, 100020), 7), milliseconds(0));
  EXPECT_EQ(meter.Due(At(20, 20, 100040), 8), milliseconds(10));
  EXPECT_EQ(meter.Due(At(30, 30, 101040), 8), milliseconds(20));  // a long step
  EXPECT_EQ(meter.Due(At(40, 40, 101041), 8), milliseconds(0));
  EXPECT_EQ(meter.Due(At(50, 50, 101060), 9), milliseconds(10));
}

TEST(PaceTest, NobodyRestsLong) {
  Pace pace(0.001, nanoseconds(0));
  Pace::Meter meter(&pace, At(0, 0), 0);
  EXPECT_EQ(meter.Due(At(2000, 2000), 1), milliseconds(1000));
}

TEST(PaceTest, NobodyRestsForEver) {
  Pace pace(0.5, nanoseconds(0), milliseconds(1000));
  Pace::Meter meter(&pace, At(0, 0), 0);
  EXPECT_GT(meter.Due(At(10, 5, 999), 1), milliseconds(0));
  EXPECT_EQ(meter.Due(At(20, 10, 1000), 2), milliseconds(0));
}

TEST(PaceTest, ShortWorkIsFree) {
  Pace pace(0.1, milliseconds(25));
  Pace::Meter one(&pace, At(0, 0), 0);
  Pace::Meter other(&pace, At(0, 0), 0);
  EXPECT_EQ(one.Due(At(10, 10), 1), milliseconds(0));
  EXPECT_EQ(other.Due(At(20, 10), 2), milliseconds(0));  // begun while free
  EXPECT_EQ(one.Due(At(30, 20), 3), milliseconds(20));
}

TEST(PaceTest, ThreadsThatShareACoreAreSeenToWait) {
  // More of them than this machine can have cores.
  std::atomic<bool> seen{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency() + 2; ++i) {
    threads.emplace_back([&] {
      Pace pace(0.1, nanoseconds(0));
      Pace::Meter meter(&pace, TimesOfThisThread(), 0);
      for (uint64_t step = 1; !seen; ++step) {
        if (meter.Due(TimesOfThisThread(), step) > nanoseconds(0)) seen = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace adaptcp

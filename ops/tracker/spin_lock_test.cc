#include "ops/tracker/spin_lock.h"

#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace adaptcp {
namespace {

TEST(SpinLockTest, IsTriedWithoutWaiting) {
  SpinLock lock;
  ASSERT_TRUE(lock.try_lock());
  bool taken = true;
  std::thread([&] { taken = lock.try_lock(); }).join();
  EXPECT_FALSE(taken);
  lock.unlock();
  std::thread([&] { taken = lock.try_lock(); }).join();
  EXPECT_TRUE(taken);
}

TEST(SpinLockTest, LetsOneInAtATime) {
  SpinLock lock;
  int counted = 0, expected = 0;  // of no atomic type, on purpose
  std::mutex mu;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      int mine = 0;
      for (int i = 0; i < 20000; ++i) {
        std::unique_lock<SpinLock> hold(lock, std::defer_lock);
        if (t % 2 == 0) {
          hold.lock();
        } else if (!hold.try_lock()) {
          continue;
        }
        ++counted;
        ++mine;
      }
      std::lock_guard<std::mutex> sum(mu);
      expected += mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted, expected);
  EXPECT_GE(counted, 40000);
}

}  // namespace
}  // namespace adaptcp

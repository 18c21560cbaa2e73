#include "ops/io/local/transfer_limits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace adaptcp {
namespace {

using std::chrono::milliseconds;

TEST(RateLimitTest, WhatIsNotSentIsNotPaidForNorAtAnOldRate) {
  RateLimit rate;
  rate.SetRate(1000);
  StopFlag stop, other;
  EXPECT_TRUE(rate.Take(1 << 20, stop));  // the next is to wait for 17 minutes
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(20));
    stop.Set();
  });
  EXPECT_FALSE(rate.Take(uint64_t{1} << 40, stop));
  later.join();
  const auto start = std::chrono::steady_clock::now();
  rate.SetRate(1 << 30);
  EXPECT_TRUE(rate.Take(1, other));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(RateLimitTest, BytesArePaidForBeforeTheNext) {
  RateLimit rate;
  StopFlag stop;
  EXPECT_TRUE(rate.Take(1 << 30, stop));
  rate.SetRate(1000000);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(rate.Take(10000, stop));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(50));
  EXPECT_TRUE(rate.Take(uint64_t{1} << 40, stop));
  stop.Set();
  EXPECT_FALSE(rate.Take(1, stop));
}

}  // namespace
}  // namespace adaptcp

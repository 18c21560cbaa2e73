#include "ops/io/local/retry.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace adaptcp {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

RetryLimits Quick(int64_t deadline_ms) {
  return {Clock::now() + milliseconds(deadline_ms), milliseconds(1),
          milliseconds(4)};
}

TEST(RetryTest, UntilItSucceeds) {
  std::vector<int> numbers;
  const Status status = Retry(Quick(60000), nullptr, [&](int number) {
    numbers.push_back(number);
    return number < 5 ? Status::Unavailable("away") : Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(numbers, std::vector<int>({1, 2, 3, 4, 5}));
}

TEST(RetryTest, WhatStaysIsNotTriedAgain) {
  for (const Status& lasting :
       {Status::NotFound("x"), Status::DataLoss("x"), Status::Internal("x"),
        Status::ResourceExhausted("x"), Status::FailedPrecondition("x"),
        Status::Cancelled("x")}) {
    int calls = 0;
    const Status status = Retry(Quick(60000), nullptr, [&](int) {
      ++calls;
      return lasting;
    });
    EXPECT_EQ(status.code(), lasting.code());
    EXPECT_EQ(status.message(), "x");
    EXPECT_EQ(calls, 1);
  }
}

TEST(RetryTest, WaitsGrowAndTheDeadlineEndsThem) {
  int calls = 0;
  const auto start = Clock::now();
  const Status status =
      Retry({start + milliseconds(60), milliseconds(2), milliseconds(1000)},
            nullptr, [&](int) {
              ++calls;
              return Status::DeadlineExceeded("slow");
            });
  EXPECT_EQ(status.code(), Status::Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("attempts"), std::string::npos);
  EXPECT_LE(Clock::now() - start, milliseconds(10000));
  // 1 + 2 + 4 + ... at least: 7 waits take more than 60 ms.
  EXPECT_GE(calls, 2);
  EXPECT_LE(calls, 7);
}

TEST(RetryTest, AFlagEndsTheWait) {
  StopFlag stop;
  std::thread other([&] { stop.Set(); });
  const Status status =
      Retry({Clock::now() + std::chrono::hours(1), milliseconds(3600000),
             milliseconds(3600000)},
            &stop, [&](int) { return Status::Unavailable("away"); });
  other.join();
  EXPECT_TRUE(status.code() == Status::Code::kUnavailable ||
              status.code() == Status::Code::kCancelled);
  EXPECT_EQ(Retry(Quick(1), &stop, [](int) { return Status::Ok(); }).code(),
            Status::Code::kCancelled);
}

}  // namespace
}  // namespace adaptcp

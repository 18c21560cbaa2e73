#include "ops/io/local/retry.h"

#include <algorithm>
#include <random>
#include <string>

namespace adaptcp {
namespace {

// In the upper half of `wait`.
std::chrono::nanoseconds Jittered(std::chrono::milliseconds wait) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  const int64_t most = std::chrono::nanoseconds(wait).count();
  return std::chrono::nanoseconds(
      std::uniform_int_distribution<int64_t>(most / 2, most)(random));
}

}  // namespace

bool IsTransient(const Status& status) {
  return status.code() == Status::Code::kUnavailable ||
         status.code() == Status::Code::kDeadlineExceeded;
}

Status Retry(const RetryLimits& limits, const StopFlag* stop,
             const std::function<Status(int)>& attempt) {
  if (stop != nullptr && stop->IsSet()) return Status::Cancelled("given up");
  auto longest = limits.first_wait;
  for (int number = 1;; ++number) {
    const Status status = attempt(number);
    if (!IsTransient(status)) return status;
    const auto wait = Jittered(longest);
    const bool late =
        std::chrono::steady_clock::now() + wait > limits.deadline;
    const bool stopped = !late && stop != nullptr && stop->SleepFor(wait);
    if (late || stopped) {
      if (number == 1) return status;
      return Status(status.code(), status.message() + " (after " +
                                       std::to_string(number) + " attempts)");
    }
    if (stop == nullptr) StopFlag().SleepFor(wait);
    longest = std::min(2 * longest, limits.longest_wait);
  }
}

}  // namespace adaptcp

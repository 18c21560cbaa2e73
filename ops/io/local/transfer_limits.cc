#include "ops/io/local/transfer_limits.h"

#include <algorithm>

namespace adaptcp {

using Clock = std::chrono::steady_clock;

namespace {

Clock::duration Scaled(Clock::duration time, double factor) {
  return std::chrono::duration_cast<Clock::duration>(time * factor);
}

}  // namespace

void StagingRoom::SetLimit(uint64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    limit_ = bytes;
  }
  freed_.notify_all();
}

void StagingRoom::Add(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  used_ += bytes;
}

void StagingRoom::Remove(uint64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    used_ -= bytes;
  }
  freed_.notify_all();
}

bool StagingRoom::IsFull() const {
  std::lock_guard<std::mutex> lock(mu_);
  return used_ >= limit_;
}

void StagingRoom::WaitForRoom(std::chrono::nanoseconds time) {
  std::unique_lock<std::mutex> lock(mu_);
  freed_.wait_for(lock, time, [&] { return used_ < limit_; });
}

uint64_t StagingRoom::used() const {
  std::lock_guard<std::mutex> lock(mu_);
  return used_;
}

void RateLimit::SetRate(uint64_t bytes_per_second) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto now = Clock::now();
  if (rate_ > 0 && free_at_ > now) {
    free_at_ = bytes_per_second == 0
                   ? now
                   : now + Scaled(free_at_ - now, static_cast<double>(rate_) /
                                                      bytes_per_second);
  }
  rate_ = bytes_per_second;
}

bool RateLimit::Take(uint64_t bytes, const StopFlag& stop) {
  Clock::duration wait;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (rate_ == 0) return !stop.IsSet();
    const auto now = Clock::now();
    const auto start = std::max(now, free_at_);
    free_at_ = start + TimeOf(bytes);
    wait = start - now;
  }
  if (!stop.SleepFor(wait)) return true;
  std::lock_guard<std::mutex> lock(mu_);
  if (rate_ > 0) free_at_ -= TimeOf(bytes);  // they are not sent
  return false;
}

Clock::duration RateLimit::TimeOf(uint64_t bytes) const {
  return Scaled(std::chrono::seconds(1), static_cast<double>(bytes) / rate_);
}

}  // namespace adaptcp

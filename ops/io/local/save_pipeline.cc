#include "ops/io/local/save_pipeline.h"

#include <algorithm>
#include <utility>

#include "ops/io/local/crew.h"

namespace adaptcp {

SavePipeline::SavePipeline(size_t memory_limit,
                           std::chrono::milliseconds update_wait)
    : limit_(memory_limit), update_wait_(update_wait) {}

bool SavePipeline::Begin() {
  std::lock_guard<std::mutex> lock(mu_);
  if (closing_ || !status_.ok()) return false;
  ++running_;
  return true;
}

void SavePipeline::End() {
  std::lock_guard<std::mutex> lock(mu_);
  if (--running_ == 0) idle_.notify_all();
}

Status SavePipeline::Reserve(size_t bytes, CaptureSource source) {
  std::unique_lock<std::mutex> lock(mu_);
  const bool is_update = source == CaptureSource::kUpdate;
  const auto fits = [&] {
    if (!status_.ok()) return true;
    if (!is_update && updates_waiting_ > 0) return false;
    return used_ == 0 || used_ + bytes <= limit_;
  };
  if (!fits()) {
    ++waiting_;
    urgent_.notify_all();
    const auto start = std::chrono::steady_clock::now();
    const auto waited = [&] {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::steady_clock::now() - start)
          .count();
    };
    if (!is_update) {
      room_.wait(lock, fits);
      --waiting_;
      counters_.drain_wait_ns += waited();
    } else {
      ++updates_waiting_;
      const bool in_time = room_.wait_for(lock, update_wait_, fits);
      --waiting_;
      if (--updates_waiting_ == 0) room_.notify_all();
      counters_.update_wait_ns += waited();
      ++counters_.updates_delayed;
      if (!in_time) {
        return Status::DeadlineExceeded(
            "an update waited " + std::to_string(update_wait_.count()) +
            " ms for capture memory (" + std::to_string(limit_) +
            " bytes); raise capture_memory_bytes or slow the checkpoints down");
      }
    }
  }
  ADAPTCP_RETURN_IF_ERROR(status_);
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  if (used_ > limit_ / 2) urgent_.notify_all();
  return Status::Ok();
}

void SavePipeline::Charge(size_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  if (used_ > limit_ / 2) urgent_.notify_all();
}

void SavePipeline::Release(size_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  used_ -= bytes;
  room_.notify_all();
}

void SavePipeline::Push(std::unique_ptr<CapturedBatch> batch,
                        CaptureSource source) {
  (source == CaptureSource::kDrain    ? counters_.rows_by_drain
   : source == CaptureSource::kLookup ? counters_.rows_by_lookup
                                      : counters_.rows_by_update) +=
      batch->rows();
  std::lock_guard<std::mutex> lock(mu_);
  // Nobody would take it from the queue any more. It goes after the lock has.
  if (!status_.ok()) return;
  // Asked afterwards, nobody would seem to wait.
  awaited_ = popping_ > 0 && queue_.empty() ? awaited_ + 1 : 0;
  queue_.push_back(std::move(batch));
  work_.notify_one();
}

void SavePipeline::CloseWhenIdle() {
  std::unique_lock<std::mutex> lock(mu_);
  closing_ = true;  // or those who come one after another would never let it close
  idle_.wait(lock, [&] { return running_ == 0 || !status_.ok(); });
  closed_ = true;
  work_.notify_all();
  idle_.notify_all();
}

void SavePipeline::WaitClosed() {
  std::unique_lock<std::mutex> lock(mu_);
  idle_.wait(lock, [&] { return closed_ || !status_.ok(); });
}

bool SavePipeline::Pop(std::unique_ptr<CapturedBatch>* batch,
                       const std::function<void()>& idle) {
  constexpr std::chrono::milliseconds kLook(20);
  const auto ready = [&] {
    return !queue_.empty() || closed_ || !status_.ok();
  };
  std::unique_lock<std::mutex> lock(mu_);
  ++popping_;
  while (!work_.wait_for(lock, kLook, ready)) {
    if (idle == nullptr) continue;
    lock.unlock();
    idle();
    lock.lock();
  }
  --popping_;
  if (!status_.ok() || queue_.empty()) return false;
  *batch = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void SavePipeline::Rest(std::chrono::nanoseconds time) {
  if (time <= std::chrono::nanoseconds(0)) return;
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mu_);
  urgent_.wait_for(lock, time, [&] {
    return used_ > limit_ / 2 || waiting_ > 0 || !status_.ok();
  });
  counters_.rest_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::steady_clock::now() - start)
                           .count();
}

bool SavePipeline::is_crowded() const {
  constexpr size_t kSome = 2;
  std::lock_guard<std::mutex> lock(mu_);
  return popping_ == 0 && queue_.size() >= kSome;
}

bool SavePipeline::is_starved() const {
  constexpr int kSome = 4;
  std::lock_guard<std::mutex> lock(mu_);
  return awaited_ >= kSome;
}

void SavePipeline::Abort(const Status& why) {
  auto dropped = std::make_shared<decltype(queue_)>();
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (status_.ok()) status_ = why;
    queue_.swap(*dropped);
    room_.notify_all();
    urgent_.notify_all();
    work_.notify_all();
    idle_.notify_all();
  }
  stop_.Set();
  if (dropped->empty()) return;
  // The thread has the only reference, or it might be this one that frees.
  (void)Crew().Start([dropped = std::move(dropped)] {});
}

Status SavePipeline::status() const {
  std::lock_guard<std::mutex> lock(mu_);
  return status_;
}

size_t SavePipeline::peak_bytes() const {
  std::lock_guard<std::mutex> lock(mu_);
  return peak_;
}

}  // namespace adaptcp

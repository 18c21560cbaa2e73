#include "ops/tracker/gate.h"

#include <string>

namespace adaptcp {

// Enter adds itself, then looks at closing_; a cut sets closing_, then looks at
// inside_. Both are sequentially consistent, so at least one sees the other.

void Gate::Enter() {
  for (;;) {
    inside_.fetch_add(1);
    if (!closing_.load()) return;
    Exit();
    std::unique_lock<std::mutex> lock(mutex_);
    opened_.wait(lock, [this] { return !closing_.load(); });
  }
}

void Gate::Exit() {
  if (inside_.fetch_sub(1) == 1 && closing_.load()) {
    // The empty critical section orders this after the cut's check of inside_,
    // so that the notification can't fall between its check and its wait.
    { std::lock_guard<std::mutex> lock(mutex_); }
    emptied_.notify_all();
  }
}

void Gate::Reopen() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_.store(false);
  }
  opened_.notify_all();
}

Status Gate::RunExclusive(std::chrono::milliseconds timeout,
                          const std::function<void()>& fn) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!opened_.wait_until(lock, deadline, [this] { return !closing_; })) {
      return Status::DeadlineExceeded(
          "the gate was not free for a cut: another one kept it for " +
          std::to_string(timeout.count()) + " ms");
    }
    closing_.store(true);
  }
  struct ReopenAtExit {
    Gate* gate;
    ~ReopenAtExit() { gate->Reopen(); }
  } reopen{this};
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!emptied_.wait_until(lock, deadline,
                             [this] { return inside_.load() == 0; })) {
      return Status::DeadlineExceeded(
          std::to_string(inside_.load()) +
          " operations were still inside the gate after " +
          std::to_string(timeout.count()) + " ms; no cut was taken");
    }
  }
  // Latecomers may still flicker in and out of inside_; they turn back.
  fn();
  return Status::Ok();
}

}  // namespace adaptcp

#include "ops/io/local/crew.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace adaptcp {

struct Crew::State {
  std::mutex mu;
  std::condition_variable ended;
  int running = 0;
};

Crew::Crew() : state_(std::make_shared<State>()) {}

bool Crew::Start(std::function<void()> body) {
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    ++state_->running;
  }
  const auto end = [](State* state) {
    std::lock_guard<std::mutex> lock(state->mu);
    --state->running;
    state->ended.notify_all();
  };
  try {
    std::thread([state = state_, end, body = std::move(body)]() mutable {
      body();
      // What it shares goes before whoever joins goes on.
      body = nullptr;
      end(state.get());
    }).detach();
  } catch (const std::system_error&) {
    end(state_.get());
    return false;
  }
  return true;
}

bool Crew::JoinFor(std::chrono::nanoseconds time) {
  std::unique_lock<std::mutex> lock(state_->mu);
  return state_->ended.wait_for(lock, time,
                                [&] { return state_->running == 0; });
}

}  // namespace adaptcp

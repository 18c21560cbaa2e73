// Threads that a store may hang for ever: whoever started them can go on without.

#ifndef ADAPTCP_OPS_IO_LOCAL_CREW_H_
#define ADAPTCP_OPS_IO_LOCAL_CREW_H_

#include <chrono>
#include <functional>
#include <memory>

namespace adaptcp {

// Thread-safe. The threads are detached: a body has to own, or share, all that
// it uses, as it may outlive the crew.
class Crew {
 public:
  Crew();

  // False: the system has no thread left; `body` is dropped.
  [[nodiscard]] bool Start(std::function<void()> body);
  // Waits, for a limited time, until none is running; false if some still are.
  bool JoinFor(std::chrono::nanoseconds time);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_CREW_H_

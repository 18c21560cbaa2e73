// The gate of a parameter server: writers pass it shared, a cut takes it alone.
// A cut is right only if every writer of every table of every group is on one
// side of it as a whole (read old row, claim, touch, write), so there is one
// gate per process, not one per table.

#ifndef ADAPTCP_OPS_TRACKER_GATE_H_
#define ADAPTCP_OPS_TRACKER_GATE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "ops/util/status.h"

namespace adaptcp {

// Thread-safe. The first lock in the lock order (ops/README.md): take no other
// lock of the tracker before it. Not reentrant: a thread inside that enters
// again while the gate is closing waits for itself until the cut gives up.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Blocks while a cut is waiting or running, so that a stream of writers can't
  // keep a cut out. Costs two atomic operations otherwise.
  void Enter();
  // Never blocks on writers. Requires a matching Enter().
  void Exit();

  // Closes the gate, waits until everyone inside has left, runs `fn` and
  // reopens. DeadlineExceeded if writers (or another cut) are still there after
  // `timeout`: the gate is open again and `fn` has not run. `fn` must not enter
  // the gate and should be short: all training waits for it. With an empty `fn`
  // this is a barrier: whatever was inside has left when it returns ok.
  Status RunExclusive(std::chrono::milliseconds timeout,
                      const std::function<void()>& fn);

 private:
  void Reopen();

  std::atomic<int64_t> inside_{0};
  std::atomic<bool> closing_{false};  // a cut waits or runs: one at a time
  std::mutex mutex_;  // guards the waits, and closing_ where it is written
  std::condition_variable opened_;
  std::condition_variable emptied_;
};

// Holds the gate shared for its lifetime.
class GateScope {
 public:
  explicit GateScope(Gate* gate) : gate_(gate) { gate_->Enter(); }
  ~GateScope() { gate_->Exit(); }
  GateScope(const GateScope&) = delete;
  GateScope& operator=(const GateScope&) = delete;

 private:
  Gate* gate_;  // not owned
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_GATE_H_

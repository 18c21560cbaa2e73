// How long lookups and updates wait for the locks of a tracker: the gate and the
// stripes. Everything but the tables is there: a thread that looks batches up
// and hurries them, one that updates, a drain, and cuts. What a lookup does here
// besides waiting is 50 microseconds; the table's own work is left out, and so is
// capture memory, for which only updates wait (`update_wait_seconds` of a save).
//
// Threads also wait for a processor. How long, shows the case in which all the
// work goes on in another tracker behind another gate: what lookups take beyond
// that is waiting for locks.
//
//   lock_wait_bench [rows, default 2000000] [seconds per case, default 10]

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "ops/tracker/gate.h"
#include "ops/tracker/group_tracker.h"

namespace {

using adaptcp::CutKind;
using adaptcp::Gate;
using adaptcp::GateScope;
using adaptcp::GroupTracker;
using adaptcp::RowClass;
using adaptcp::Seq;
using Clock = std::chrono::steady_clock;
using Keys = std::vector<int64_t>;

constexpr size_t kBatch = 1000;
constexpr size_t kDrainRows = 4096;
// What it takes to read a row out of three tables, and to hand it on.
constexpr std::chrono::nanoseconds kReadRow(600);

class Job {
 public:
  explicit Job(int64_t rows) : rows_(rows) {
    Keys keys(kBatch);
    for (int64_t from = 0; from < rows; from += kBatch) {
      for (size_t i = 0; i < kBatch; ++i) keys[i] = from + i;
      tracker_.Touch(keys.data(), keys.size());
    }
  }

  void LookUp(const Keys& keys) {
    const GateScope inside(&gate_);
    tracker_.CollectUncaptured(keys.data(), keys.size(), &collected_,
                               /*wait=*/false);
  }

  void Update(const Keys& keys) {
    const GateScope inside(&gate_);
    std::vector<uint32_t> idx;
    const Seq cut = tracker_.TouchOrCollect(keys.data(), keys.size(), &idx);
    if (idx.empty()) return;
    std::vector<RowClass> classes(idx.size());
    tracker_.Claim(cut, keys.data(), idx.data(), idx.size(), nullptr,
                   classes.data(), nullptr);
    tracker_.TouchCollected(keys.data(), keys.size(), idx);
  }

  // One base: a cut, the drain, its outcome.
  void Save() {
    const Seq n = ++sequence_;
    const auto closed = gate_.RunExclusive(std::chrono::seconds(30), [&] {
      if (!tracker_.Cut({n, CutKind::kBase, HUGE_VAL}).ok()) std::abort();
    });
    if (!closed.ok()) std::abort();
    Keys keys;
    std::vector<RowClass> classes(kDrainRows);
    while (tracker_.NextPending(n, kDrainRows, &keys)) {
      const auto read = Clock::now() + kReadRow * keys.size();
      while (Clock::now() < read) {
      }
      tracker_.Claim(n, keys.data(), nullptr, keys.size(), nullptr,
                     classes.data(), nullptr);
    }
    if (!gate_.RunExclusive(std::chrono::seconds(30), [] {}).ok()) std::abort();
    if (!tracker_.Resolve(n, true).ok()) std::abort();
  }

  // A cut that nobody drains: every lookup finds all of its keys uncaptured.
  void LeavePending() {
    if (!tracker_.Cut({++sequence_, CutKind::kBase, HUGE_VAL}).ok()) {
      std::abort();
    }
  }

  int64_t rows() const { return rows_; }

 private:
  const int64_t rows_;
  Gate gate_;
  GroupTracker<int64_t> tracker_;
  Seq sequence_ = 0;
  std::vector<uint32_t> collected_;  // of the only thread that looks up
};

// Calls with random batches until told to stop; milliseconds of each call.
std::vector<double> Repeat(const Job& job, const std::atomic<bool>& stop,
                           uint64_t seed,
                           const std::function<void(const Keys&)>& call) {
  std::mt19937_64 random(seed);
  std::vector<double> taken;
  Keys keys(kBatch);
  while (!stop) {
    for (int64_t& key : keys) key = random() % job.rows();
    const auto start = Clock::now();
    call(keys);
    taken.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - start)
            .count());
    // A step does other things, too; and the machine is not this job's alone.
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return taken;
}

void Report(const char* what, std::vector<double> taken) {
  if (taken.empty()) return;
  std::sort(taken.begin(), taken.end());
  const auto at = [&](double q) {
    return taken[std::min<size_t>(taken.size() - 1, q * taken.size())];
  };
  std::printf("  %-8s %8zu calls, ms: median %.3f, p99 %.3f, p99.9 %.3f, max %.3f\n",
              what, taken.size(), at(0.5), at(0.99), at(0.999), taken.back());
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 2000000;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 10;
  if (rows <= 0 || !(seconds > 0)) {
    std::fprintf(stderr, "rows and seconds: Received: %s %s Expected: above 0\n",
                 argv[1], argc > 2 ? argv[2] : "");
    return 2;
  }
  Job job(rows), other(rows);
  other.LeavePending();
  struct Case {
    const char* name;
    Job* looked_up;
    bool updates, saves;
  };
  for (const Case& c :
       {Case{"lookups while a base is pending, alone", &other, false, false},
        Case{"updates and bases without a pause in another tracker", &other,
             true, true},
        Case{"updates and bases without a pause", &job, true, true}}) {
    std::atomic<bool> stop{false};
    std::vector<double> lookups, updates;
    int saves = 0;
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      lookups =
          Repeat(job, stop, 1, [&](const Keys& k) { c.looked_up->LookUp(k); });
    });
    if (c.updates) {
      threads.emplace_back([&] {
        updates = Repeat(job, stop, 2, [&](const Keys& k) { job.Update(k); });
      });
    }
    if (c.saves) {
      threads.emplace_back([&] {
        for (; !stop; ++saves) job.Save();
      });
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stop = true;
    for (std::thread& thread : threads) thread.join();
    std::printf("%s (%d bases of %lld rows)\n", c.name, saves,
                static_cast<long long>(rows));
    Report("lookups", std::move(lookups));
    Report("updates", std::move(updates));
  }
  return 0;
}

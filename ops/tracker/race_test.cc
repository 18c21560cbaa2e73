// Writers, removals, lookups, drain threads, clears, scans, cuts and outcomes at
// once. Every checkpoint must equal the copy taken under the closed gate.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "ops/tracker/gate.h"
#include "ops/tracker/group_tracker.h"
#include "ops/tracker/testing/race_tables.h"

namespace adaptcp {
namespace testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Key kKeys = 4096;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kCuts = 40;  // several times slower
#else
constexpr int kCuts = 200;
#endif
constexpr milliseconds kLong{120000};
constexpr double kThresholds[] = {-1, 0.12, 0.3,
                                  std::numeric_limits<double>::infinity()};

class Job {
 public:
  explicit Job(uint64_t seed, Estimator estimator) : random_(seed) {
    TrackerOptions options;
    options.estimator = estimator;
    options.stripes = 4;     // so that threads meet
    options.min_listed = 4;  // lists and walks
    options.min_remembered = 1;
    options.walk_step = 7;
    tracker_ = std::make_unique<GroupTracker<Key>>(options);
  }

  void Run(int writers, int cuts) {
    std::vector<std::thread> threads;
    for (int i = 0; i < writers; ++i) {
      threads.emplace_back([this, seed = random_()] { Writer(seed); });
    }
    threads.emplace_back([this, seed = random_()] { Lookups(seed); });
    threads.emplace_back([this, seed = random_()] { Clears(seed); });
    threads.emplace_back([this, seed = random_()] { Scans(seed); });
    for (int i = 0; i < cuts && !::testing::Test::HasFailure(); ++i) {
      // Rows keep coming, so that stripes grow while they are walked.
      range_ = std::min<Key>(kKeys, 16 + i * kKeys / kCuts);
      Checkpoint(random_() % 100);
    }
    stop_ = true;
    for (auto& thread : threads) thread.join();
    Checkpoint(99);  // what the last writes left
  }

  int scans_used() const { return scans_used_; }
  int clears() const { return clears_; }

 private:
  // Spins, as a rule: on a machine that is busy otherwise a yield takes long.
  static void Pause(std::mt19937_64* random) {
    const uint64_t dice = (*random)();
    if (dice % 128 == 0) std::this_thread::yield();
    if (dice % 8 != 0) return;
    static std::atomic<int> sink{0};
    for (uint64_t i = dice / 8 % 64; i > 0; --i) sink.load();
  }

  static void WaitForWork() { std::this_thread::sleep_for(microseconds(50)); }

  Values Read(Key key, std::mt19937_64* random) const {
    const int64_t parameter = parameter_.Read(key);
    Pause(random);  // a torn read must lose its claim
    return {parameter, slot_.Read(key)};
  }

  // Now and then long enough for the next cut to come.
  static void PauseForLong(std::mt19937_64* random) {
    if ((*random)() % 256 == 0) std::this_thread::sleep_for(microseconds(400));
  }

  // From reading on: the part that writers, lookups and drains share.
  void Capture(Seq n, const std::vector<Key>& keys,
               const std::vector<uint32_t>* idx, std::mt19937_64* random) {
    const size_t m = idx != nullptr ? idx->size() : keys.size();
    const auto key_at = [&](size_t j) { return keys[idx ? (*idx)[j] : j]; };
    std::vector<Values> rows;
    std::vector<uint8_t> absent;
    for (size_t j = 0; j < m; ++j) {
      rows.push_back(Read(key_at(j), random));
      absent.push_back(rows[j] == Values());
    }
    PauseForLong(random);
    std::vector<RowClass> classes(m);
    tracker_->Claim(n, keys.data(), idx ? idx->data() : nullptr, m,
                    absent.data(), classes.data(), nullptr);
    Pause(random);
    for (size_t j = 0; j < m; ++j) {
      if (classes[j] == RowClass::kLost) continue;
      sinks_[n % kSinks].load()->Publish(key_at(j), classes[j], rows[j]);
    }
  }

  std::vector<Key> SomeKeys(std::mt19937_64* random, size_t count) const {
    std::vector<Key> keys;
    // One batch that several writers may be at, at once.
    if ((*random)() % 4 == 0) return {0, 1, 2, 3};
    while (keys.size() < count) {
      const Key range = (*random)() % 2 == 0 ? 16 : range_.load();
      keys.push_back((*random)() % range);
    }
    return keys;
  }

  void Writer(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> need;
    while (!stop_) {
      const std::vector<Key> some = SomeKeys(&random, 8);
      const int tables = 1 + random() % 3;
      const bool remove = random() % 8 == 0;
      GateScope scope(&gate_);
      // One op per table, as in training: the second sees the same keys again.
      for (const int table : {1, 2}) {
        if (!(tables & table)) continue;
        const std::vector<Key> keys = remove ? Known(some) : some;
        const Seq n =
            tracker_->TouchOrCollect(keys.data(), keys.size(), &need);
        if (!need.empty()) {
          Capture(n, keys, &need, &random);
          tracker_->TouchCollected(keys.data(), keys.size(), need);
        }
        for (Key key : keys) {
          const int64_t value = remove ? 0 : ++values_;
          if (table == 1) parameter_.Write(key, value);
          Pause(&random);
          if (table == 2) slot_.Write(key, -value);
        }
      }
    }
  }

  // Those of the keys that a removal concerns.
  std::vector<Key> Known(const std::vector<Key>& keys) const {
    std::vector<uint32_t> idx;
    tracker_->FindKnown(keys.data(), keys.size(), &idx);
    std::vector<Key> known;
    for (uint32_t i : idx) known.push_back(keys[i]);
    return known;
  }

  void Lookups(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> need;
    while (!stop_) {
      const std::vector<Key> keys = SomeKeys(&random, 4);
      {
        GateScope inside(&gate_);
        tracker_->RecordAccesses(keys.data(), keys.size());
      }
      GateScope scope(&lookups_);  // not the gate of the cuts
      const Seq n =
          tracker_->CollectUncaptured(keys.data(), keys.size(), &need,
                                      /*wait=*/false);
      if (n != 0) Capture(n, keys, &need, &random);
      Pause(&random);
    }
  }

  void Drain(Seq n, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Key> keys;
    while (tracker_->NextPending(n, 1 + random() % 16, &keys)) {
      Capture(n, keys, nullptr, &random);
    }
  }

  // Tables that are cleared, and sometimes filled with a few new rows.
  void Clears(uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!stop_) {
      if (!clear_due_.exchange(false)) {
        WaitForWork();
        continue;
      }
      ASSERT_TRUE(gate_.RunExclusive(kLong, [&] {
        const Seq n = tracker_->pending_sequence();
        IndexCursor cursor;
        std::vector<Key> keys;
        while (tracker_->NextUnclaimed(n, &cursor, 16, &keys)) {
          Capture(n, keys, nullptr, &random);
        }
        const int tables = 1 + random() % 3;
        if (tables & 1) parameter_.Clear();
        if (tables & 2) slot_.Clear();
        keys = random() % 2 ? SomeKeys(&random, 4) : std::vector<Key>();
        for (Key key : keys) slot_.Write(key, --values_);
        tracker_->MarkEverything();
        tracker_->Touch(keys.data(), keys.size());
      }).ok());
      ++clears_;
    }
  }

  // Bases without a cut. One that is ready waits for a checkpoint to go by it.
  void Scans(uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!stop_) {
      Scanned scanned;
      scanned.start = scan_due_.exchange(0);
      if (scanned.start == 0) {
        WaitForWork();
        continue;
      }
      ScanCursor cursor;
      std::vector<Key> keys;
      std::vector<float> p;
      std::set<Key> seen;
      while (tracker_->Scan(scanned.start, 16, &cursor, &keys, &p)) {
        for (Key key : keys) {
          ASSERT_TRUE(seen.insert(key).second) << key;
          const Values row = Read(key, &random);
          if (row != Values()) scanned.rows[key] = row;
        }
        PauseForLong(&random);
      }
      std::lock_guard<std::mutex> hold(scanned_mutex_);
      scanned_ = std::move(scanned);
    }
  }

  struct Scanned {
    Seq start = 0;
    Rows rows;
  };
  // The chain of a head.
  struct Chain {
    Seq base_start = 0;
    Rows base;
    std::vector<std::pair<Seq, Rows>> increments;
  };
  // An outcome that the tracker has not been told.
  struct Untold {
    Seq n = 0;
    bool committed = false;
    Seq scanned_base = 0;
  };

  std::optional<Scanned> TakeScan(CutKind kind) {
    std::lock_guard<std::mutex> hold(scanned_mutex_);
    if (!scanned_) return std::nullopt;
    if (scanned_->start <= chain_.base_start) scanned_.reset();
    if (!scanned_ || kind == CutKind::kBase) return std::nullopt;
    return *scanned_;
  }

  void Resolve(const Untold& outcome) {
    const Status status =
        tracker_->Resolve(outcome.n, outcome.committed, outcome.scanned_base);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  void Checkpoint(int dice) {
    const Seq n = tracker_->current_sequence();
    CutKind kind = dice % 10 == 0 ? CutKind::kBase : CutKind::kDelta;
    const double threshold = kThresholds[random_() % 4];
    auto sink = std::make_unique<Sink>();
    sinks_[n % kSinks] = sink.get();
    Rows oracle;
    std::optional<Scanned> scan;
    ASSERT_TRUE(gate_.RunExclusive(kLong, [&] {
      Resolve(std::exchange(untold_, Untold()));
      if (tracker_->NeedsBase()) kind = CutKind::kBase;
      scan = TakeScan(kind);
      for (Key key = 0; key < kKeys; ++key) {
        const Values row{parameter_.Read(key), slot_.Read(key)};
        if (row != Values()) oracle[key] = row;
      }
      const Status status = tracker_->Cut({n, kind, threshold});
      EXPECT_TRUE(status.ok()) << status.ToString();
    }).ok());
    const PHistogram histogram = tracker_->HistogramOfP(n + 1, 0.12, 100);
    EXPECT_GE(histogram.counted, std::min<uint64_t>(100, histogram.keys));
    if (random_() % 4 == 0 && chain_.base_start != 0) scan_due_ = n;
    if (random_() % 16 == 0) clear_due_ = true;
    const bool early_failure = dice < 15;
    std::vector<std::thread> drains;
    for (int i = 0; i < 2; ++i) {
      drains.emplace_back([this, n, seed = random_()] { Drain(n, seed); });
    }
    Untold outcome{n, !early_failure && dice >= 40, scan ? scan->start : 0};
    if (early_failure) Resolve(outcome);  // under their feet
    for (auto& drain : drains) drain.join();
    if (!early_failure) {
      // Rows are claimed before they are published: wait for the latter.
      ASSERT_TRUE(gate_.RunExclusive(kLong, [] {}).ok());
      ASSERT_TRUE(lookups_.RunExclusive(kLong, [] {}).ok());
      ASSERT_EQ(tracker_->CountUncaptured(n), 0u);
      const Chain chain = Next(n, kind, scan, sink->cold);
      ASSERT_EQ(State(chain, sink->hot), oracle) << "checkpoint " << n;
      if (outcome.committed) {
        chain_ = chain;
        scans_used_ += scan.has_value();
      }
      if (random_() % 5 == 0) {
        untold_ = outcome;
      } else {
        Resolve(outcome);
      }
    }
    kept_.push_back(std::move(sink));  // a lost claimant may still hold it
  }

  // The chain of a head after chain_.
  Chain Next(Seq n, CutKind kind, const std::optional<Scanned>& scan,
             const Rows& cold) const {
    if (kind == CutKind::kBase) return {n, cold, {}};
    Chain chain = chain_;
    if (scan) {
      chain.base_start = scan->start;
      chain.base = scan->rows;
      auto& all = chain.increments;
      all.erase(std::remove_if(
                    all.begin(), all.end(),
                    [&](const auto& one) { return one.first <= scan->start; }),
                all.end());
    }
    chain.increments.emplace_back(n, cold);
    return chain;
  }

  static Rows State(const Chain& chain, const Rows& hot) {
    Rows state;
    Merge(chain.base, &state);
    for (const auto& increment : chain.increments) {
      Merge(increment.second, &state);
    }
    Merge(hot, &state);
    return state;
  }

  static constexpr Seq kSinks = 1024;

  std::mt19937_64 random_;
  Gate gate_;
  Gate lookups_;
  std::unique_ptr<GroupTracker<Key>> tracker_;
  Column parameter_{kKeys}, slot_{kKeys};
  std::atomic<int64_t> values_{0};
  std::atomic<Key> range_{16};
  std::atomic<bool> stop_{false};
  std::atomic<bool> clear_due_{false};
  std::atomic<int> clears_{0};
  std::atomic<Seq> scan_due_{0};  // its start
  std::mutex scanned_mutex_;      // guards scanned_
  std::optional<Scanned> scanned_;
  int scans_used_ = 0;
  std::atomic<Sink*> sinks_[kSinks] = {};
  std::vector<std::unique_ptr<Sink>> kept_;
  Chain chain_;  // of the newest committed head
  Untold untold_;
};

TEST(TrackerRaceTest, EveryCheckpointEqualsTheCopyTakenAtItsCut) {
  Job few(1, Estimator::kUpdates), many(2, Estimator::kAccesses);
  few.Run(2, kCuts);
  many.Run(4, kCuts);
  EXPECT_GT(few.scans_used() + many.scans_used(), 0);
  EXPECT_GT(few.clears() + many.clears(), 0);
}

}  // namespace
}  // namespace testing
}  // namespace adaptcp

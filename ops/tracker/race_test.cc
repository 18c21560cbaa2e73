// Writers, lookups, drain threads, cuts and outcomes at once, over a toy group
// of two columns that lock each row and column by itself, as TFRA's tables do.
// Every checkpoint must equal the copy taken under the closed gate.

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "ops/tracker/gate.h"
#include "ops/tracker/group_tracker.h"

namespace adaptcp {
namespace {

using Key = int64_t;
using Values = std::pair<int64_t, int64_t>;  // 0: the column lacks the key
using Rows = std::map<Key, Values>;
using std::chrono::milliseconds;

constexpr Key kKeys = 4096;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kCuts = 60;  // several times slower
#else
constexpr int kCuts = 200;
#endif
constexpr milliseconds kLong{120000};

class Column {
 public:
  int64_t Read(Key key) const {
    std::lock_guard<SpinLock> hold(cells_[key].lock);
    return cells_[key].value;
  }
  void Write(Key key, int64_t value) {
    std::lock_guard<SpinLock> hold(cells_[key].lock);
    cells_[key].value = value;
  }

 private:
  struct Cell {
    SpinLock lock;
    int64_t value = 0;
  };
  std::unique_ptr<Cell[]> cells_{new Cell[kKeys]};
};

// What was published for one cut.
class Sink {
 public:
  void Publish(Key key, RowClass c, const Values& row) {
    std::lock_guard<std::mutex> hold(mutex_);
    const bool is_new = cold.count(key) + hot.count(key) == 0;
    EXPECT_TRUE(is_new) << "row " << key << " was captured twice";
    (c == RowClass::kHot ? hot : cold)[key] = row;
  }
  Rows cold, hot;

 private:
  std::mutex mutex_;
};

class Job {
 public:
  explicit Job(uint64_t seed) : random_(seed) {
    TrackerOptions options;
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
    for (int i = 0; i < cuts && !::testing::Test::HasFailure(); ++i) {
      // Rows keep coming, so that stripes grow while they are walked.
      range_ = std::min<Key>(kKeys, 16 + i * kKeys / kCuts);
      Checkpoint(random_() % 100);
    }
    stop_ = true;
    for (auto& thread : threads) thread.join();
    Checkpoint(99);  // what the last writes left
  }

 private:
  static void Pause(std::mt19937_64* random) {
    if ((*random)() % 8 == 0) std::this_thread::yield();
  }

  Values Read(Key key, std::mt19937_64* random) const {
    const int64_t parameter = parameter_.Read(key);
    Pause(random);  // a torn read must lose its claim
    return {parameter, slot_.Read(key)};
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
    Pause(random);
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
      const std::vector<Key> keys = SomeKeys(&random, 8);
      const int tables = 1 + random() % 3;
      const bool remove = random() % 8 == 0;
      GateScope scope(&gate_);
      // One op per table, as in training: the second sees the same keys again.
      for (const int table : {1, 2}) {
        if (!(tables & table)) continue;
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

  void Lookups(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> need;
    while (!stop_) {
      const std::vector<Key> keys = SomeKeys(&random, 4);
      GateScope scope(&lookups_);  // not the gate of the cuts
      const Seq n =
          tracker_->CollectUncaptured(keys.data(), keys.size(), &need);
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

  void Checkpoint(int dice) {
    static const double kThresholds[] = {
        -1, 0.12, 0.3, std::numeric_limits<double>::infinity()};
    const Seq n = tracker_->current_sequence();
    const CutKind kind = dice % 10 == 0 ? CutKind::kBase : CutKind::kDelta;
    const double threshold = kThresholds[random_() % 4];
    auto sink = std::make_unique<Sink>();
    sinks_[n % kSinks] = sink.get();
    Rows oracle;
    ASSERT_TRUE(gate_.RunExclusive(kLong, [&] {
      for (Key key = 0; key < kKeys; ++key) {
        const Values row{parameter_.Read(key), slot_.Read(key)};
        if (row != Values()) oracle[key] = row;
      }
      const Status status = tracker_->Cut({n, kind, threshold});
      EXPECT_TRUE(status.ok()) << status.ToString();
    }).ok());
    const bool early_failure = dice < 15;
    std::vector<std::thread> drains;
    for (int i = 0; i < 2; ++i) {
      drains.emplace_back([this, n, seed = random_()] { Drain(n, seed); });
    }
    if (early_failure) {
      ASSERT_TRUE(tracker_->Resolve(n, false).ok());  // under their feet
    }
    for (auto& drain : drains) drain.join();
    if (!early_failure) {
      // Rows are claimed before they are published: wait for the latter.
      ASSERT_TRUE(gate_.RunExclusive(kLong, [] {}).ok());
      ASSERT_TRUE(lookups_.RunExclusive(kLong, [] {}).ok());
      ASSERT_EQ(tracker_->CountUncaptured(n), 0u);
      Rows state = kind == CutKind::kBase ? Rows() : chain_;
      Merge(sink->cold, &state);
      Rows head = state;
      Merge(sink->hot, &head);
      ASSERT_EQ(head, oracle) << "checkpoint " << n;
      const bool commit = dice >= 40;
      const Status status = tracker_->Resolve(n, commit);
      ASSERT_TRUE(status.ok()) << status.ToString();
      if (commit) chain_ = std::move(state);
    }
    kept_.push_back(std::move(sink));  // a lost claimant may still hold it
  }

  static void Merge(const Rows& level, Rows* state) {
    for (const auto& [key, row] : level) {
      if (row == Values()) {
        state->erase(key);
      } else {
        (*state)[key] = row;
      }
    }
  }

  static constexpr Seq kSinks = 1024;

  std::mt19937_64 random_;
  Gate gate_;
  Gate lookups_;
  std::unique_ptr<GroupTracker<Key>> tracker_;
  Column parameter_, slot_;
  std::atomic<int64_t> values_{0};
  std::atomic<Key> range_{16};
  std::atomic<bool> stop_{false};
  std::atomic<Sink*> sinks_[kSinks] = {};
  std::vector<std::unique_ptr<Sink>> kept_;
  Rows chain_;  // base and increments committed so far
};

TEST(TrackerRaceTest, EveryCheckpointEqualsTheCopyTakenAtItsCut) {
  Job(1).Run(2, kCuts);
  Job(2).Run(4, kCuts);
}

}  // namespace
}  // namespace adaptcp

// The unsaved lists: when they give way to a walk, how long they get, and what
// all of it costs in memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ops/tracker/group_tracker.h"

namespace adaptcp {
namespace {

using Tracker = GroupTracker<int64_t>;
using Keys = std::vector<int64_t>;
constexpr double kAllHot = -1;
constexpr double kAllCold = std::numeric_limits<double>::infinity();

Keys Range(int64_t n) {
  Keys keys(n);
  std::iota(keys.begin(), keys.end(), 0);
  return keys;
}

void ClaimAll(Tracker* tracker, Seq n) {
  Keys keys;
  std::vector<RowClass> classes;
  while (tracker->NextPending(n, 4096, &keys)) {
    classes.resize(keys.size());
    tracker->Claim(n, keys.data(), nullptr, keys.size(), nullptr,
                   classes.data(), nullptr);
  }
}

TrackerOptions OneStripe() {
  TrackerOptions options;
  options.stripes = 1;
  options.min_listed = 8;
  options.walk_step = 16;
  return options;
}

TEST(UnsavedListTest, GivesWayToAWalkBeyondAQuarter) {
  Tracker tracker(OneStripe());
  const Keys keys = Range(1000);
  tracker.Touch(keys.data(), keys.size());
  EXPECT_EQ(tracker.Stats().scanned_stripes, 1u);
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllCold}).ok());
  ClaimAll(&tracker, 1);
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  EXPECT_EQ(tracker.Stats().unsaved_listed, 0u);

  tracker.Touch(keys.data(), 250);
  EXPECT_EQ(tracker.Stats().scanned_stripes, 0u);
  EXPECT_EQ(tracker.Stats().unsaved_listed, 250u);
  tracker.Touch(&keys[250], 1);
  EXPECT_EQ(tracker.Stats().scanned_stripes, 1u);
  // The walk finds just the unsaved rows.
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, kAllCold}).ok());
  EXPECT_EQ(tracker.CountUncaptured(2), 251u);
  Keys pending;
  ASSERT_TRUE(tracker.NextPending(2, 2000, &pending));
  std::sort(pending.begin(), pending.end());
  EXPECT_EQ(pending, Range(251));
}

// Rows that stay hot are listed by every outcome and by every first write of an
// interval; the list must not grow from checkpoint to checkpoint.
TEST(UnsavedListTest, DoesNotGrowWithTheNumberOfCheckpoints) {
  Tracker tracker(OneStripe());
  const Keys keys = Range(1000);
  tracker.Touch(keys.data(), keys.size());
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllCold}).ok());
  ClaimAll(&tracker, 1);
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  for (Seq n = 2; n < 40; ++n) {
    tracker.Touch(keys.data(), 50);
    tracker.Touch(keys.data(), 50);
    ASSERT_TRUE(tracker.Cut({n, CutKind::kDelta, kAllHot}).ok());
    ClaimAll(&tracker, n);
    ASSERT_TRUE(tracker.Resolve(n, n % 3 != 0).ok());
    EXPECT_EQ(tracker.Stats().unsaved_listed, 50u);
    tracker.Touch(keys.data(), 50);
    EXPECT_LE(tracker.Stats().unsaved_listed, 100u);
    EXPECT_EQ(tracker.Stats().scanned_stripes, 0u);
  }
}

// A stripe that grows in the middle of its walk is walked again.
TEST(UnsavedListTest, AWalkSurvivesGrowth) {
  Tracker tracker(OneStripe());
  const Keys keys = Range(3000);
  tracker.Touch(keys.data(), 1000);
  ASSERT_TRUE(tracker.Cut({1, CutKind::kBase, kAllCold}).ok());
  Keys some, all;
  while (tracker.NextPending(1, 100, &some)) {
    all.insert(all.end(), some.begin(), some.end());
    std::vector<RowClass> classes(some.size());
    tracker.Claim(1, some.data(), nullptr, some.size(), nullptr,
                  classes.data(), nullptr);
    if (all.size() == 500) tracker.Touch(keys.data() + 1000, 2000);
  }
  std::sort(all.begin(), all.end());
  // Those written before the cut, each once.
  EXPECT_EQ(tracker.CountUncaptured(1), 0u);
  EXPECT_EQ(all, Range(1000));
}

// The same where it is delicate: in tiny tables growth may move a displaced
// entry to a slot before the place of the walk.
TEST(UnsavedListTest, AWalkOfATinyStripeSurvivesGrowth) {
  TrackerOptions options = OneStripe();
  options.walk_step = 1;
  for (int64_t round = 0; round < 3000; ++round) {
    Tracker tracker(options);
    Keys keys = Range(40);
    for (int64_t& key : keys) key += round * 100;
    tracker.Touch(keys.data(), 13);
    ASSERT_TRUE(tracker.Cut({1, CutKind::kBase, kAllCold}).ok());
    Keys some;
    for (int i = 0; i < round % 4; ++i) {
      ASSERT_TRUE(tracker.NextPending(1, 1, &some));
      RowClass c;
      tracker.Claim(1, some.data(), nullptr, 1, nullptr, &c, nullptr);
    }
    tracker.Touch(&keys[13], keys.size() - 13);
    ClaimAll(&tracker, 1);
    ASSERT_EQ(tracker.CountUncaptured(1), 0u) << "round " << round;
  }
}

// Forgetting tombstones moves entries about while the outcome is applied to
// them; no row that stays unsaved may be passed over.
TEST(UnsavedListTest, AWalkThatForgetsTombstonesListsAllHotRows) {
  Tracker tracker(OneStripe());
  const Keys keys = Range(1000);
  tracker.Touch(keys.data(), keys.size());
  ASSERT_EQ(tracker.Stats().scanned_stripes, 1u);
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllHot}).ok());
  std::vector<uint8_t> absent(keys.size());
  for (size_t i = 0; i < absent.size(); ++i) absent[i] = i % 5 != 0;
  std::vector<RowClass> classes(keys.size());
  tracker.Claim(1, keys.data(), nullptr, keys.size(), absent.data(),
                classes.data(), nullptr);
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  EXPECT_EQ(tracker.Stats().keys, 200u);
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, kAllHot}).ok());
  EXPECT_EQ(tracker.CountUncaptured(2), 200u);
}

double BytesPerKey(const Tracker& tracker) {
  const TrackerStats stats = tracker.Stats();
  return static_cast<double>(stats.memory_bytes) / stats.keys;
}

// Ten million keys, everything unsaved; then the worst moment of a cut: full
// lists of the pending and of the next checkpoint side by side.
TEST(UnsavedListTest, MemoryPerKeyIsBounded) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int64_t kRows = 2000000;  // the same code, at a tenth of the speed
#else
  constexpr int64_t kRows = 10000000;
#endif
  constexpr int64_t kBatch = 1 << 16;
  Tracker tracker;
  double worst = 0;
  Keys keys(kBatch);
  const auto touch = [&](int64_t rows, bool measure) {
    for (int64_t from = 0; from < rows; from += kBatch) {
      const int64_t n = std::min(kBatch, rows - from);
      std::iota(keys.begin(), keys.begin() + n, from);
      tracker.Touch(keys.data(), n);
      if (measure && from > 1000000) {
        worst = std::max(worst, BytesPerKey(tracker));
      }
    }
  };
  touch(kRows, true);
  EXPECT_LE(worst, 46);
  EXPECT_LE(BytesPerKey(tracker), 46);
  RecordProperty("bytes_per_key", std::to_string(BytesPerKey(tracker)));

  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllCold}).ok());
  ClaimAll(&tracker, 1);
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  touch(kRows / 5, false);
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, kAllHot}).ok());
  touch(kRows / 5, false);
  EXPECT_EQ(tracker.Stats().unsaved_listed, kRows / 5u);
  EXPECT_LE(BytesPerKey(tracker), 46);
  std::printf("bytes per key: %.1f worst while filling, %.1f with two lists\n",
              worst, BytesPerKey(tracker));
}

}  // namespace
}  // namespace adaptcp

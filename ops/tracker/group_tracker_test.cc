// The rules of the tracker one by one; model_test.cc has their combinations.

#include "ops/tracker/group_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

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

void Touch(Tracker* tracker, const Keys& keys) {
  tracker->Touch(keys.data(), keys.size());
}

Keys Pending(Tracker* tracker, Seq n, size_t batch = 1000) {
  Keys all, some;
  while (tracker->NextPending(n, batch, &some)) {
    EXPECT_LE(some.size(), batch);
    all.insert(all.end(), some.begin(), some.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

struct Claimed {
  std::vector<RowClass> classes;
  std::vector<float> p;
};
Claimed Claim(Tracker* tracker, Seq n, const Keys& keys, bool absent = false) {
  Claimed claimed;
  claimed.classes.resize(keys.size());
  claimed.p.resize(keys.size());
  const std::vector<uint8_t> flags(keys.size(), absent);
  tracker->Claim(n, keys.data(), nullptr, keys.size(), flags.data(),
                 claimed.classes.data(), claimed.p.data());
  return claimed;
}

void Commit(Tracker* tracker, Seq n) {
  Claim(tracker, n, Pending(tracker, n));
  const Status status = tracker->Resolve(n, true);
  ASSERT_TRUE(status.ok()) << status.ToString();
}

TEST(GroupTrackerTest, HotRowsStayUnsavedAndColdOnesDoNot) {
  Tracker tracker;
  Touch(&tracker, {1, 2, 3});
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllHot}).ok());
  EXPECT_TRUE(tracker.pending());
  EXPECT_EQ(Claim(&tracker, 1, {1, 2}).classes,
            (std::vector<RowClass>{RowClass::kHot, RowClass::kHot}));
  EXPECT_EQ(tracker.CountUncaptured(1), 1u);
  EXPECT_EQ(Pending(&tracker, 1), (Keys{3}));
  Claim(&tracker, 1, {3});
  EXPECT_EQ(tracker.CountUncaptured(1), 0u);
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  EXPECT_FALSE(tracker.pending());
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, kAllCold}).ok());
  EXPECT_EQ(Pending(&tracker, 2), (Keys{1, 2, 3}));
  EXPECT_EQ(Claim(&tracker, 2, {1, 2, 3}).classes,
            std::vector<RowClass>(3, RowClass::kCold));
  ASSERT_TRUE(tracker.Resolve(2, true).ok());
  ASSERT_TRUE(tracker.Cut({3, CutKind::kDelta, kAllCold}).ok());
  EXPECT_EQ(Pending(&tracker, 3), Keys());
}

TEST(GroupTrackerTest, OnlyUncapturedRowsOfTheCutAreCollected) {
  Tracker tracker;
  std::vector<uint32_t> need = {7};
  const Keys keys = {5, 6, 5, 9};
  EXPECT_EQ(tracker.CollectUncaptured(keys.data(), 4, &need), 0u);
  EXPECT_TRUE(need.empty());
  Touch(&tracker, {5, 6});
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, 0}).ok());
  Touch(&tracker, {9});  // made after the cut
  EXPECT_EQ(tracker.CollectUncaptured(keys.data(), 4, &need), 1u);
  EXPECT_EQ(need, (std::vector<uint32_t>{0, 1, 2}));
  std::vector<RowClass> classes(3);
  tracker.Claim(1, keys.data(), need.data(), 3, nullptr, classes.data(),
                nullptr);
  EXPECT_EQ(classes, (std::vector<RowClass>{RowClass::kHot, RowClass::kHot,
                                            RowClass::kLost}));
  tracker.CollectUncaptured(keys.data(), 4, &need);
  EXPECT_TRUE(need.empty());
}

// A row read for a failed cut may have been written before the next one.
TEST(GroupTrackerTest, AClaimForAnOlderCutIsLost) {
  Tracker tracker;
  Touch(&tracker, {1});
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, 0}).ok());
  ASSERT_TRUE(tracker.Resolve(1, false).ok());
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, 0}).ok());
  EXPECT_EQ(Claim(&tracker, 1, {1}).classes[0], RowClass::kLost);
  EXPECT_EQ(Claim(&tracker, 0, {1}).classes[0], RowClass::kLost);
  Keys keys;
  EXPECT_FALSE(tracker.NextPending(1, 10, &keys));
  EXPECT_EQ(Claim(&tracker, 2, {1}).classes[0], RowClass::kHot);
}

TEST(GroupTrackerTest, TheIndicatorDecaysAndDecides) {
  Tracker tracker;
  Touch(&tracker, {1, 2});
  Touch(&tracker, {1});  // once per interval counts
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllHot}).ok());
  EXPECT_FLOAT_EQ(Claim(&tracker, 1, {1}).p[0], 0.1f);
  Touch(&tracker, {1});
  ASSERT_TRUE(tracker.Resolve(1, false).ok());
  // Row 1: 0.1 * 0.9 + 0.1 = 0.19, row 2: 0.1 * 0.9 = 0.09.
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, 0.1}).ok());
  const Claimed claimed = Claim(&tracker, 2, {1, 2});
  EXPECT_FLOAT_EQ(claimed.p[0], 0.19f);
  EXPECT_FLOAT_EQ(claimed.p[1], 0.09f);
  EXPECT_EQ(claimed.classes,
            (std::vector<RowClass>{RowClass::kHot, RowClass::kCold}));
}

TEST(GroupTrackerTest, TheIndicatorReadsTheUpdateProbability) {
  const Decay decay(0.9);
  EXPECT_FLOAT_EQ(decay.Idle(1, 100), std::pow(0.9, 100));  // past the table
  EXPECT_FLOAT_EQ(decay.Idle(1, 3), 0.729);
  float p = 0;
  for (int i = 0; i < 500; ++i) p = decay.Written(p, 2);  // every other one
  // 1/2 on average; just after a write: 0.1 / (1 - 0.81).
  EXPECT_NEAR(p, 0.5263, 1e-4);
  for (double factor = 0.01; factor < 1; factor += 0.01) {
    EXPECT_LE(Decay(factor).Written(1, 1), 1) << factor;
  }
}

TEST(GroupTrackerTest, ABaseTakesEveryRowColdAndClearsThem) {
  Tracker tracker;
  Touch(&tracker, {1, 2});
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllCold}).ok());
  Commit(&tracker, 1);
  Touch(&tracker, {2});
  ASSERT_TRUE(tracker.Cut({2, CutKind::kBase, kAllHot}).ok());
  EXPECT_EQ(Pending(&tracker, 2), (Keys{1, 2}));
  EXPECT_EQ(Claim(&tracker, 2, {1, 2}).classes,
            std::vector<RowClass>(2, RowClass::kCold));
  Touch(&tracker, {1});
  ASSERT_TRUE(tracker.Resolve(2, true).ok());
  EXPECT_EQ(tracker.base_sequence(), 2u);
  ASSERT_TRUE(tracker.Cut({3, CutKind::kDelta, kAllHot}).ok());
  EXPECT_EQ(Pending(&tracker, 3), (Keys{1}));
}

TEST(GroupTrackerTest, ACommittedTombstoneIsForgottenUnlessWrittenAgain) {
  Tracker tracker;
  Touch(&tracker, {1, 2, 3});
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllHot}).ok());
  // Tombstones are cold whatever the threshold.
  EXPECT_EQ(Claim(&tracker, 1, {1, 2, 3}, true).classes,
            std::vector<RowClass>(3, RowClass::kCold));
  Touch(&tracker, {2});
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  EXPECT_EQ(tracker.Stats().keys, 1u);
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, kAllHot}).ok());
  EXPECT_EQ(Pending(&tracker, 2), (Keys{2}));
}

TEST(GroupTrackerTest, AnOutcomeCountsOnceAndOnlyForItsCheckpoint) {
  Tracker tracker;
  Touch(&tracker, {1});
  ASSERT_TRUE(tracker.Resolve(0, true).ok());
  ASSERT_TRUE(tracker.Resolve(5, true).ok());
  ASSERT_TRUE(tracker.Cut({5, CutKind::kDelta, kAllHot}).ok());
  EXPECT_EQ(tracker.pending_sequence(), 5u);
  EXPECT_EQ(tracker.current_sequence(), 6u);
  ASSERT_TRUE(tracker.Resolve(4, true).ok());
  EXPECT_EQ(tracker.pending_sequence(), 5u);
  Commit(&tracker, 5);
  EXPECT_EQ(tracker.pending_sequence(), 0u);
  ASSERT_TRUE(tracker.Resolve(5, false).ok());
  EXPECT_EQ(tracker.Stats().unsaved_listed, 1u);
}

TEST(GroupTrackerTest, ABaseThatFailedGoesByNoOther) {
  Tracker tracker((TrackerOptions()));
  Touch(&tracker, Range(10));
  ASSERT_TRUE(tracker.Cut({1, CutKind::kBase, kAllCold}).ok());
  Commit(&tracker, 1);
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, kAllCold}).ok());
  Claim(&tracker, 2, Pending(&tracker, 2));
  ASSERT_TRUE(tracker.Resolve(2, true, 1).ok());
  ASSERT_TRUE(tracker.Cut({3, CutKind::kBase, kAllCold}).ok());
  // Who tells it may tell of the last that was committed, too.
  const Status status = tracker.Resolve(3, false, 1);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(tracker.Cut({4, CutKind::kDelta, kAllCold}).ok());
}

TEST(GroupTrackerTest, RefusesCutsThatMakeNoSense) {
  using Code = Status::Code;
  Tracker tracker;
  const double nan = std::nan("");
  EXPECT_EQ(tracker.Cut({0, CutKind::kDelta, 0}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(tracker.Cut({kMaxSequence + 1, CutKind::kDelta, 0}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(tracker.Cut({1, CutKind::kDelta, nan}).code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(tracker.Cut({3, CutKind::kDelta, 0}).ok());
  const Status pending = tracker.Cut({4, CutKind::kDelta, 0});
  EXPECT_EQ(pending.code(), Code::kFailedPrecondition);
  EXPECT_NE(pending.message().find("checkpoint 3"), std::string::npos);
  ASSERT_TRUE(tracker.Resolve(3, false).ok());
  EXPECT_EQ(tracker.Cut({3, CutKind::kDelta, 0}).code(),
            Code::kFailedPrecondition);
  EXPECT_TRUE(tracker.Cut({4, CutKind::kDelta, 0}).ok());
}

// A caller that commits without a complete drain hears of it, and the row is
// in the next checkpoint.
TEST(GroupTrackerTest, ACommitWithoutAllItsRowsIsReported) {
  for (const CutKind kind : {CutKind::kDelta, CutKind::kBase}) {
    Tracker tracker;
    Touch(&tracker, {1, 2});
    ASSERT_TRUE(tracker.Cut({1, kind, kAllCold}).ok());
    Claim(&tracker, 1, {1});
    EXPECT_EQ(tracker.Resolve(1, true).code(), Status::Code::kDataLoss);
    ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, kAllCold}).ok());
    EXPECT_EQ(Pending(&tracker, 2), (Keys{2}));
  }
}

TEST(GroupTrackerTest, RestoresLevelsFromTheNewestOn) {
  Tracker tracker;
  ASSERT_TRUE(tracker.Reset(10, 3).ok());
  EXPECT_EQ(tracker.base_sequence(), 3u);
  uint8_t fresh[3];
  const float p[] = {0.5, 0.25, 0.125};
  const uint8_t alive[] = {0, 0, 0}, dead[] = {0, 1, 1};
  const Keys differential = {1, 2}, increment = {2, 3, 4}, base = {1, 3, 5};
  ASSERT_TRUE(tracker.RestoreRows(differential.data(), 2, alive, p, 7, true,
                                  fresh).ok());
  EXPECT_EQ((Keys{fresh[0], fresh[1]}), (Keys{1, 1}));
  ASSERT_TRUE(tracker.RestoreRows(increment.data(), 3, dead, p, 7, false,
                                  fresh).ok());
  EXPECT_EQ((Keys{fresh[0], fresh[1], fresh[2]}), (Keys{0, 1, 1}));
  ASSERT_TRUE(tracker.RestoreRows(base.data(), 3, nullptr, nullptr, 7, false,
                                  fresh).ok());
  EXPECT_EQ((Keys{fresh[0], fresh[1], fresh[2]}), (Keys{0, 0, 1}));
  EXPECT_EQ(tracker.Stats().keys, 5u);
  tracker.FinishRestore();
  EXPECT_EQ(tracker.Stats().keys, 3u);  // 3 and 4 are dead
  ASSERT_TRUE(tracker.Cut({10, CutKind::kDelta, kAllHot}).ok());
  EXPECT_EQ(Pending(&tracker, 10), (Keys{1, 2}));
  EXPECT_FLOAT_EQ(Claim(&tracker, 10, {1}).p[0], 0.5f * 0.729f);
}

TEST(GroupTrackerTest, RefusesRestoresThatWouldLoseRows) {
  Tracker tracker;
  EXPECT_FALSE(tracker.Reset(0, 0).ok());
  EXPECT_FALSE(tracker.Reset(5, 5).ok());
  ASSERT_TRUE(tracker.Reset(10, 3).ok());
  const int64_t key = 1;
  uint8_t fresh;
  const auto restore = [&](Seq head, bool differential) {
    return tracker.RestoreRows(&key, 1, nullptr, nullptr, head, differential,
                               &fresh).code();
  };
  EXPECT_EQ(restore(2, false), Status::Code::kInvalidArgument);
  EXPECT_EQ(restore(3, true), Status::Code::kInvalidArgument);
  EXPECT_EQ(restore(10, false), Status::Code::kInvalidArgument);
  EXPECT_EQ(restore(3, false), Status::Code::kOk);
}

TEST(GroupTrackerTest, SeededAndMarkedRowsAreUnsaved) {
  Tracker tracker;
  const Keys keys = Range(100);
  tracker.Seed(keys.data(), keys.size());
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, 0}).ok());
  EXPECT_EQ(tracker.Stats().pending_listed, 100u);
  EXPECT_EQ(Pending(&tracker, 1), keys);
  EXPECT_EQ(Claim(&tracker, 1, keys).classes,
            std::vector<RowClass>(100, RowClass::kCold));  // p = 0
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  EXPECT_EQ(tracker.Stats().unsaved_listed, 0u);
  EXPECT_EQ(tracker.Stats().pending_listed, 0u);
  tracker.MarkEverything();
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, 0}).ok());
  EXPECT_EQ(Pending(&tracker, 2), keys);
}

TEST(GroupTrackerTest, TablesThatWereReplacedNeedABase) {
  Tracker tracker;
  Touch(&tracker, Range(10));
  EXPECT_FALSE(tracker.NeedsBase());
  ASSERT_TRUE(tracker.Cut({1, CutKind::kBase, 0}).ok());
  // After the cut: this base does not count, whatever becomes of it.
  tracker.MarkEverything();
  Commit(&tracker, 1);
  EXPECT_TRUE(tracker.NeedsBase());
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, 0}).ok());
  Claim(&tracker, 2, Range(10));
  ASSERT_TRUE(tracker.Resolve(2, true).ok());
  EXPECT_TRUE(tracker.NeedsBase());
  ASSERT_TRUE(tracker.Cut({3, CutKind::kBase, 0}).ok());
  ASSERT_TRUE(tracker.Resolve(3, false).ok());
  EXPECT_TRUE(tracker.NeedsBase());
  ASSERT_TRUE(tracker.Cut({4, CutKind::kBase, 0}).ok());
  Commit(&tracker, 4);
  EXPECT_FALSE(tracker.NeedsBase());
  tracker.MarkEverything();
  ASSERT_TRUE(tracker.Reset(9, 8).ok());
  EXPECT_FALSE(tracker.NeedsBase());
}

TEST(GroupTrackerTest, UnclaimedRowsAreThoseHandedOutToo) {
  Tracker tracker;
  const Keys keys = Range(100);
  Touch(&tracker, keys);
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, 0}).ok());
  EXPECT_EQ(Pending(&tracker, 1), keys);  // and nobody claims them
  Claim(&tracker, 1, Range(30));
  IndexCursor cursor;
  Keys found, batch;
  while (tracker.NextUnclaimed(1, &cursor, 7, &batch)) {
    EXPECT_LE(batch.size(), 7u);
    found.insert(found.end(), batch.begin(), batch.end());
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, Keys(keys.begin() + 30, keys.end()));
  cursor = {};
  EXPECT_FALSE(tracker.NextUnclaimed(2, &cursor, 7, &batch));
}

TEST(GroupTrackerTest, OnlyKeysWithAnEntryAreKnown) {
  Tracker tracker;
  Touch(&tracker, {1, 3});
  const Keys keys = {3, 2, 1, 2, 3};
  std::vector<uint32_t> known;
  tracker.FindKnown(keys.data(), keys.size(), &known);
  EXPECT_EQ(known, (std::vector<uint32_t>{0, 2, 4}));
}

TEST(GroupTrackerTest, RefusesBadOptions) {
  EXPECT_TRUE(TrackerOptions().Validate().ok());
  TrackerOptions options;
  options.decay = 1;
  EXPECT_FALSE(options.Validate().ok());
  options = TrackerOptions();
  options.stripes = 3;
  EXPECT_FALSE(options.Validate().ok());
  options = TrackerOptions();
  options.walk_step = 0;
  EXPECT_FALSE(options.Validate().ok());
  options = TrackerOptions();
  options.decay = 0;
  EXPECT_TRUE(options.Validate().ok());
  options.estimator = Estimator::kAccesses;
  EXPECT_FALSE(options.Validate().ok());
}

TEST(GroupTrackerTest, StringKeys) {
  GroupTracker<std::string> tracker;
  const std::vector<std::string> keys = {"", "a", std::string(100, 'z'),
                                         std::string("a\0b", 3)};
  tracker.Touch(keys.data(), keys.size());
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, 0}).ok());
  std::vector<std::string> pending;
  ASSERT_TRUE(tracker.NextPending(1, 10, &pending));
  EXPECT_EQ(std::set<std::string>(pending.begin(), pending.end()),
            std::set<std::string>(keys.begin(), keys.end()));
}

}  // namespace
}  // namespace adaptcp

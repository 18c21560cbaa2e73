// The scan of all rows that makes a base beside training.

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "ops/tracker/group_tracker.h"

namespace adaptcp {
namespace {

using Tracker = GroupTracker<int64_t>;

TrackerOptions OneStripe() {
  TrackerOptions options;
  options.stripes = 1;
  options.walk_step = 1;
  return options;
}

// Captures all that cut n needs, as tombstones or with a threshold's class;
// returns the keys.
std::set<int64_t> Capture(Tracker* tracker, Seq n, bool absent) {
  std::set<int64_t> captured;
  std::vector<int64_t> keys;
  while (tracker->NextPending(n, 64, &keys)) {
    const std::vector<uint8_t> gone(keys.size(), absent);
    std::vector<RowClass> classes(keys.size());
    tracker->Claim(n, keys.data(), nullptr, keys.size(), gone.data(),
                   classes.data(), nullptr);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (classes[i] != RowClass::kLost) captured.insert(keys[i]);
    }
  }
  return captured;
}

TEST(ScanTest, ErasuresBesideItHideNoRow) {
  Tracker tracker(OneStripe());
  std::vector<int64_t> keys(3000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  tracker.Touch(keys.data(), keys.size());
  Seq n = 1;
  ASSERT_TRUE(tracker.Cut({n, CutKind::kDelta, 2}).ok());
  Capture(&tracker, n, false);
  ASSERT_TRUE(tracker.Resolve(n, true).ok());

  std::mt19937_64 random(7);
  std::set<int64_t> seen, removed;
  ScanCursor cursor;
  std::vector<int64_t> some;
  std::vector<float> p;
  while (tracker.Scan(1, 40, &cursor, &some, &p)) {
    for (const int64_t key : some) EXPECT_TRUE(seen.insert(key).second) << key;
    // Rows go, and with them entries in front of the cursor and behind it.
    std::vector<int64_t> victims;
    for (int i = 0; i < 12; ++i) victims.push_back(random() % keys.size());
    tracker.Touch(victims.data(), victims.size());
    ASSERT_TRUE(tracker.Cut({++n, CutKind::kDelta, 2}).ok());
    Capture(&tracker, n, true);
    ASSERT_TRUE(tracker.Resolve(n, true).ok());
    removed.insert(victims.begin(), victims.end());
  }
  for (const int64_t key : keys) {
    EXPECT_TRUE(seen.count(key) || removed.count(key)) << key;
  }
  EXPECT_GT(keys.size() - removed.size(), 1000u);
}

// The stripe grows while it is walked, again and again: no row is missed, and none
// comes twice. In small ones the run over the end is no small part.
TEST(ScanTest, GrowthBesideItHidesNoRowAndBringsNoneAgain) {
  std::mt19937_64 random(3);
  int grown = 0;
  for (int round = 0; round < 400; ++round) {
    Tracker tracker(OneStripe());
    std::vector<int64_t> old(1 + random() % (round % 4 == 0 ? 2000 : 60));
    for (int64_t& key : old) key = static_cast<int64_t>(random());
    tracker.Touch(old.data(), old.size());
    ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, 2}).ok());
    Capture(&tracker, 1, false);
    ASSERT_TRUE(tracker.Resolve(1, true).ok());
    std::set<int64_t> seen;
    ScanCursor cursor;
    std::vector<int64_t> some;
    std::vector<float> p;
    const size_t before = tracker.Stats().memory_bytes;
    while (tracker.Scan(1, 1 + random() % 20, &cursor, &some, &p)) {
      for (const int64_t key : some) {
        ASSERT_TRUE(seen.insert(key).second) << key << ", round " << round;
      }
      std::vector<int64_t> fresh(random() % 8);
      for (int64_t& key : fresh) key = static_cast<int64_t>(random());
      tracker.Touch(fresh.data(), fresh.size());
    }
    grown += tracker.Stats().memory_bytes > before;
    for (const int64_t key : old) ASSERT_TRUE(seen.count(key)) << key;
  }
  EXPECT_GT(grown, 200);
}

// Other tables have another order: what is left of the walk is walked as a whole.
TEST(ScanTest, AResetBesideItBeginsItAnew) {
  Tracker tracker(OneStripe());
  std::vector<int64_t> keys(500);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  tracker.Touch(keys.data(), keys.size());
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, 2}).ok());
  ScanCursor cursor;
  std::vector<int64_t> some;
  std::vector<float> p;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(tracker.Scan(1, 40, &cursor, &some, &p));
  ASSERT_TRUE(tracker.Reset(2, 1).ok());
  tracker.Touch(keys.data(), keys.size());
  std::set<int64_t> seen;
  while (tracker.Scan(1, 40, &cursor, &some, &p)) {
    seen.insert(some.begin(), some.end());
  }
  EXPECT_EQ(seen.size(), keys.size());
}

TEST(ScanTest, RowsNotWrittenSinceItsStartAreClean) {
  Tracker tracker(OneStripe());
  const std::vector<int64_t> old = {1, 2, 3}, written_since = {3, 4};
  tracker.Touch(old.data(), old.size());
  // All hot: they stay unsaved.
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, -1}).ok());
  EXPECT_EQ(Capture(&tracker, 1, false), (std::set<int64_t>{1, 2, 3}));
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  tracker.Touch(written_since.data(), written_since.size());
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, -1}).ok());
  EXPECT_EQ(Capture(&tracker, 2, false), (std::set<int64_t>{1, 2, 3, 4}));
  EXPECT_FALSE(tracker.Resolve(2, true, 2).ok());  // not before its own cut
  ASSERT_TRUE(tracker.Resolve(2, true, 1).ok());
  EXPECT_EQ(tracker.base_sequence(), 1u);
  EXPECT_EQ(tracker.Stats().unsaved_listed, 2u);
  ASSERT_TRUE(tracker.Cut({3, CutKind::kDelta, -1}).ok());
  EXPECT_EQ(Capture(&tracker, 3, false), (std::set<int64_t>{3, 4}));
}

TEST(ScanTest, IndicatorsAreThoseOfItsStart) {
  Tracker tracker(OneStripe());
  const int64_t key = 5;
  tracker.Touch(&key, 1);
  for (Seq n = 1; n <= 3; ++n) {
    ASSERT_TRUE(tracker.Cut({n, CutKind::kDelta, 2}).ok());
    Capture(&tracker, n, false);
    ASSERT_TRUE(tracker.Resolve(n, true).ok());
  }
  ScanCursor cursor;
  std::vector<int64_t> keys;
  std::vector<float> p;
  ASSERT_TRUE(tracker.Scan(3, 10, &cursor, &keys, &p));
  ASSERT_EQ(p.size(), 1u);
  EXPECT_FLOAT_EQ(p[0], 0.1f * 0.9f * 0.9f);
  EXPECT_FALSE(tracker.Scan(3, 10, &cursor, &keys, &p));
}

}  // namespace
}  // namespace adaptcp

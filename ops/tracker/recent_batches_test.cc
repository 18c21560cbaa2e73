// Batches that need not be touched again: exactly those that were, and only
// until the next cut or reset.

#include "ops/tracker/recent_batches.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ops/tracker/group_tracker.h"

namespace adaptcp {
namespace {

using Keys = std::vector<int64_t>;

Keys Range(int64_t from, int64_t n) {
  Keys keys(n);
  std::iota(keys.begin(), keys.end(), from);
  return keys;
}

TEST(RecentBatchesTest, KnowsABatchByEveryKeyAndItsInterval) {
  RecentBatches<int64_t> recent(16);
  const Keys keys = Range(0, 100);
  recent.Add(keys.data(), keys.size(), 7);
  EXPECT_TRUE(recent.Contains(keys.data(), keys.size(), 7));
  EXPECT_FALSE(recent.Contains(keys.data(), keys.size(), 8));
  EXPECT_FALSE(recent.Contains(keys.data(), keys.size() - 1, 7));
  for (size_t i = 0; i < keys.size(); ++i) {
    Keys other = keys;
    other[i] = 1000;
    EXPECT_FALSE(recent.Contains(other.data(), other.size(), 7)) << i;
  }
  recent.Clear();
  EXPECT_FALSE(recent.Contains(keys.data(), keys.size(), 7));
  EXPECT_EQ(recent.memory_bytes(), 0u);
}

TEST(RecentBatchesTest, RemembersFewAndNeitherSmallNorHugeOnes) {
  RecentBatches<int64_t> recent(16);
  constexpr size_t kBatches = RecentBatches<int64_t>::kBatches;
  const Keys keys = Range(0, 1000);
  for (size_t i = 0; i <= kBatches; ++i) recent.Add(&keys[i], 16, 1);
  EXPECT_FALSE(recent.Contains(&keys[0], 16, 1));
  for (size_t i = 1; i <= kBatches; ++i) {
    EXPECT_TRUE(recent.Contains(&keys[i], 16, 1));
  }
  EXPECT_EQ(recent.memory_bytes(), kBatches * 16 * sizeof(int64_t));
  recent.Add(keys.data(), 15, 1);
  EXPECT_FALSE(recent.Contains(keys.data(), 15, 1));
  const Keys huge = Range(0, RecentBatches<int64_t>::kMaxKeys + 1);
  recent.Add(huge.data(), huge.size(), 1);
  EXPECT_FALSE(recent.Contains(huge.data(), huge.size(), 1));
  recent.Add(keys.data(), 0, 1);
  EXPECT_FALSE(recent.Contains(keys.data(), 0, 1));
}

TEST(RecentBatchesTest, StringsAreNotRemembered) {
  RecentBatches<std::string> recent(1);
  const std::vector<std::string> keys(20, "key");
  recent.Add(keys.data(), keys.size(), 1);
  EXPECT_FALSE(recent.Contains(keys.data(), keys.size(), 1));
}

// The tracker must take up a batch it has seen once something came between.
class RememberedTest : public ::testing::Test {
 protected:
  std::vector<uint32_t> Write() {
    std::vector<uint32_t> need;
    const Seq n =
        tracker_.TouchOrCollect(keys_.data(), keys_.size(), &need);
    if (!need.empty()) {
      std::vector<RowClass> classes(need.size());
      tracker_.Claim(n, keys_.data(), need.data(), need.size(), nullptr,
                     classes.data(), nullptr);
      tracker_.TouchCollected(keys_.data(), keys_.size(), need);
    }
    return need;
  }
  void Cut(Seq n) {
    const double all_cold = std::numeric_limits<double>::infinity();
    ASSERT_TRUE(tracker_.Cut({n, CutKind::kDelta, all_cold}).ok());
  }

  GroupTracker<int64_t> tracker_;
  const Keys keys_ = Range(0, 100);
};

TEST_F(RememberedTest, EveryCutAsksForTheRowsOnce) {
  EXPECT_TRUE(Write().empty());
  EXPECT_TRUE(Write().empty());
  for (Seq n = 1; n < 10; ++n) {
    Cut(n);
    EXPECT_EQ(Write().size(), keys_.size());
    EXPECT_TRUE(Write().empty());
    ASSERT_TRUE(tracker_.Resolve(n, n % 2 == 0).ok());
    EXPECT_TRUE(Write().empty());
    EXPECT_GE(tracker_.Stats().unsaved_listed, keys_.size());
  }
}

TEST_F(RememberedTest, AResetForgets) {
  ASSERT_TRUE(tracker_.Reset(5, 0).ok());
  Write();
  ASSERT_TRUE(tracker_.Reset(5, 0).ok());
  EXPECT_EQ(tracker_.Stats().keys, 0u);
  Write();
  EXPECT_EQ(tracker_.Stats().keys, keys_.size());
  EXPECT_GE(tracker_.Stats().unsaved_listed, keys_.size());
}

// A row that is made while a base is pending is not part of it.
TEST_F(RememberedTest, NewRowsAreNotCollectedForABase) {
  ASSERT_TRUE(tracker_.Cut({1, CutKind::kBase, 0}).ok());
  EXPECT_TRUE(Write().empty());
  EXPECT_EQ(tracker_.Stats().keys, keys_.size());
  EXPECT_EQ(tracker_.CountUncaptured(1), 0u);
  ASSERT_TRUE(tracker_.Resolve(1, true).ok());
  Cut(2);
  EXPECT_EQ(tracker_.CountUncaptured(2), keys_.size());
}

}  // namespace
}  // namespace adaptcp

#include "ops/tracker/key_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace adaptcp {
namespace {

// Every key once, whatever the sizes: one that were left out would be lost.
template <typename K, typename Make>
void CheckPermutes(Make make) {
  for (const uint64_t rows : {uint64_t{0}, uint64_t{5}, uint64_t{70000},
                              uint64_t{5000000}, ~uint64_t{0} >> 1}) {
    for (const size_t n : {0, 1, 2, 777, 4096}) {
      std::vector<K> keys;
      for (size_t i = 0; i < n; ++i) keys.push_back(make(i));
      std::vector<uint32_t> order = {9, 9, 9};
      OrderByBucket(keys, rows, &order);
      std::vector<uint32_t> sorted = order;
      std::sort(sorted.begin(), sorted.end());
      std::vector<uint32_t> all(n);
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(sorted, all) << rows << " rows, " << n << " keys";
      std::vector<K> arranged = keys;
      Arrange(order, &arranged);
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(arranged[i], keys[order[i]]);
    }
  }
}

TEST(KeyOrderTest, PermutesInt64) {
  CheckPermutes<int64_t>([](size_t i) { return static_cast<int64_t>(i) - 5; });
}
TEST(KeyOrderTest, PermutesInt32) {
  CheckPermutes<int32_t>([](size_t i) { return static_cast<int32_t>(i) - 5; });
}
TEST(KeyOrderTest, PermutesStrings) {
  CheckPermutes<std::string>([](size_t i) { return std::to_string(i % 50); });
}

// The keys of one stripe of 256, as the drain has them: neighbours are at most a
// small piece of the table apart.
TEST(KeyOrderTest, FollowsTheBucketsOfATable) {
  constexpr uint64_t kRows = 5000000, kBuckets = uint64_t{1} << 21;
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < 4096; ++key) {
    if (StripeOfHash(HashKey(key), 256) == 77) keys.push_back(key);
  }
  std::vector<uint32_t> order;
  OrderByBucket(keys, kRows, &order);
  Arrange(order, &keys);
  size_t back = 0;
  int64_t farthest_back = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    const int64_t step =
        static_cast<int64_t>(HashKey(keys[i]) & (kBuckets - 1)) -
        static_cast<int64_t>(HashKey(keys[i - 1]) & (kBuckets - 1));
    back += step < 0;
    farthest_back = std::max(farthest_back, -step);
  }
  EXPECT_LE(farthest_back, 4);
  EXPECT_LT(back, keys.size() / 2);
}

}  // namespace
}  // namespace adaptcp

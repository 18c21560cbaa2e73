#include "ops/tracker/key_hash.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace adaptcp {
namespace {

// Computed with TFRA's HybridHash: a tracker that hashes otherwise is slower.
TEST(KeyHashTest, LowBitsOfIntegersAreThoseOfTfra) {
  EXPECT_EQ(HashKey(int64_t{1}), 0xb456bcfc34c2cb2cULL);
  EXPECT_EQ(HashKey(int64_t{-1}), 0x64b5720b4b825f21ULL);
  EXPECT_EQ(static_cast<uint32_t>(HashKey(int32_t{1})), 0x514e28b7u);
  EXPECT_EQ(static_cast<uint32_t>(HashKey(int32_t{-1})), 0x81f16f39u);
}

template <typename K>
std::vector<K> Keys(size_t n, int64_t stride) {
  std::vector<K> keys(n);
  for (size_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<K, std::string>) {
      keys[i] = std::to_string(i * stride);
    } else {
      keys[i] = static_cast<K>(i * stride);
    }
  }
  return keys;
}

// Stripes are fair samples of the keys, and places do not depend on them.
template <typename K>
void CheckSpread(int64_t stride) {
  constexpr uint32_t kStripes = 64;
  constexpr size_t kKeys = 64000;
  std::vector<size_t> rows(kStripes);
  std::vector<double> places(kStripes);
  std::set<uint64_t> hashes;
  for (const K& key : Keys<K>(kKeys, stride)) {
    const uint64_t hash = HashKey(key);
    hashes.insert(hash);
    const uint32_t stripe = StripeOfHash(hash, kStripes);
    ASSERT_LT(stripe, kStripes);
    ++rows[stripe];
    places[stripe] += PlaceOfHash(hash) / 4294967296.0;
  }
  EXPECT_EQ(hashes.size(), kKeys);
  for (uint32_t s = 0; s < kStripes; ++s) {
    EXPECT_NEAR(rows[s], 1000, 160);  // five times the standard deviation
    EXPECT_NEAR(places[s] / rows[s], 0.5, 0.05);
  }
}

TEST(KeyHashTest, Int64KeysSpread) {
  for (const int64_t stride : {1, 3, 4096, 1 << 30}) CheckSpread<int64_t>(stride);
}
TEST(KeyHashTest, Int32KeysSpread) {
  for (const int64_t stride : {1, 3, 4096}) CheckSpread<int32_t>(stride);
}
TEST(KeyHashTest, StringKeysSpread) { CheckSpread<std::string>(1); }

TEST(KeyHashTest, OneStripe) {
  EXPECT_EQ(StripeOfHash(HashKey(int64_t{12345}), 1), 0u);
}

}  // namespace
}  // namespace adaptcp

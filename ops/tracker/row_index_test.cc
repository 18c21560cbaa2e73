#include "ops/tracker/row_index.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace adaptcp {
namespace {

template <typename K>
K MakeKey(int64_t x) {
  return static_cast<K>(x);
}
template <>
std::string MakeKey<std::string>(int64_t x) {
  // Some inside the string object, some on the heap, one empty.
  if (x == 0) return std::string();
  return std::to_string(x) + std::string(x % 3 == 0 ? 30 : 0, 'x');
}

template <typename K>
class RowIndexTest : public ::testing::Test {};
using KeyTypes = ::testing::Types<int64_t, int32_t, std::string>;
TYPED_TEST_SUITE(RowIndexTest, KeyTypes);

// Every insertion, erasure and look-up as an unordered_map does it.
TYPED_TEST(RowIndexTest, AgreesWithAMapUnderRandomOperations) {
  std::mt19937_64 random(7);
  for (const int64_t range : {3, 40, 3000}) {
    RowIndex<TypeParam> index;
    std::unordered_map<TypeParam, Seq> map;
    for (int i = 0; i < 20000; ++i) {
      const TypeParam key = MakeKey<TypeParam>(random() % range - range / 2);
      const uint64_t hash = HashKey(key);
      index.Prefetch(hash);
      const auto entry = index.Find(key, hash);
      ASSERT_EQ(entry != nullptr, map.count(key) == 1);
      if (entry != nullptr) {
        ASSERT_EQ(entry->key, key);
        ASSERT_EQ(entry->last_update, map[key]);
      }
      // Phases of growth and of shrinking.
      if (random() % 100 < (i / 4000 % 2 == 0 ? 70u : 30u)) {
        const auto made = index.FindOrInsert(key, hash);
        if (entry == nullptr) {
          ASSERT_EQ(made->last_update, 0u);
          ASSERT_EQ(made->last_saved, 0u);
          ASSERT_EQ(made->mark, 0u);
          ASSERT_EQ(made->estimate, 0);
        }
        made->last_update = map[key] = i + 1;
        made->last_saved = made->mark = 9;
        made->estimate = 9;
      } else if (entry != nullptr) {
        index.Erase(entry);
        map.erase(key);
      }
      ASSERT_EQ(index.size(), map.size());
    }
    size_t walked = 0;
    for (size_t i = 0; i < index.capacity(); ++i) {
      const auto* entry = index.slot(i);
      if (entry->last_update == 0) continue;
      ++walked;
      ASSERT_EQ(map.at(entry->key), entry->last_update);
    }
    EXPECT_EQ(walked, map.size());
  }
}

// Erasing while walking visits every entry, as the outcome of a cut relies on.
TYPED_TEST(RowIndexTest, AWalkThatErasesMissesNothing) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    RowIndex<TypeParam> index;
    const int count = 1 + random() % 40;
    for (int x = 0; x < count; ++x) {
      const TypeParam key = MakeKey<TypeParam>(random() % 1000);
      index.FindOrInsert(key, HashKey(key))->last_update = 1;
    }
    const size_t size = index.size();
    std::unordered_map<TypeParam, int> seen;
    for (size_t i = 0; i < index.capacity();) {
      auto* entry = index.slot(i);
      if (entry->last_update == 0) {
        ++i;
        continue;
      }
      const bool erase = HashKey(entry->key) >> 20 & 1;
      ++seen[entry->key];
      if (erase) {
        index.EraseAt(i);
      } else {
        ++i;
      }
    }
    ASSERT_EQ(seen.size(), size);
    for (const auto& [key, times] : seen) {
      ASSERT_EQ(index.Find(key, HashKey(key)) == nullptr,
                (HashKey(key) >> 20 & 1) == 1);
    }
  }
}

TYPED_TEST(RowIndexTest, CountsTheMemoryOfKeys) {
  RowIndex<TypeParam> index;
  EXPECT_EQ(index.memory_bytes(), 0u);
  for (int64_t x = 0; x < 100; ++x) {
    const TypeParam key = MakeKey<TypeParam>(x);
    index.FindOrInsert(key, HashKey(key))->last_update = 1;
  }
  const size_t slots = index.capacity() * sizeof(RowEntry<TypeParam>);
  EXPECT_GE(index.memory_bytes(), slots);
  if (std::is_same<TypeParam, std::string>::value) {
    EXPECT_GE(index.memory_bytes(), slots + 33 * 32);
  }
  for (int64_t x = 0; x < 100; ++x) {
    const TypeParam key = MakeKey<TypeParam>(x);
    index.Erase(index.Find(key, HashKey(key)));
  }
  EXPECT_EQ(index.memory_bytes(), slots);
  index.Clear();
  EXPECT_EQ(index.memory_bytes(), 0u);
}

TEST(RowIndexKeysTest, NoKeyIsReserved) {
  RowIndex<int64_t> index;
  const std::vector<int64_t> keys = {std::numeric_limits<int64_t>::min(), -1, 0,
                                     1, std::numeric_limits<int64_t>::max()};
  for (int64_t key : keys) {
    EXPECT_EQ(index.Find(key, HashKey(key)), nullptr);
    index.FindOrInsert(key, HashKey(key))->last_update = 1;
  }
  EXPECT_EQ(index.size(), keys.size());
  for (int64_t key : keys) {
    ASSERT_NE(index.Find(key, HashKey(key)), nullptr);
    index.Erase(index.Find(key, HashKey(key)));
    EXPECT_EQ(index.Find(key, HashKey(key)), nullptr);
  }
}

TEST(RowIndexKeysTest, SlotsAreSmall) {
  EXPECT_EQ(sizeof(RowEntry<int64_t>), 24u);
  EXPECT_EQ(sizeof(RowEntry<int32_t>), 20u);
}

// Large tables are mapped instead of taken from the heap.
TEST(RowIndexKeysTest, GrowsThroughMappedMemory) {
  RowIndex<int64_t> index;
  for (int64_t key = 0; key < 100000; ++key) {
    index.FindOrInsert(key, HashKey(key))->last_update = key + 1;
  }
  for (int64_t key = 0; key < 100000; ++key) {
    ASSERT_EQ(index.Find(key, HashKey(key))->last_update, key + 1);
  }
}

std::vector<int64_t> KeysInOrder(RowIndex<int64_t>* index) {
  std::vector<int64_t> keys;
  for (size_t i = 0; i < index->capacity(); ++i) {
    if (index->slot(i)->last_update != 0) keys.push_back(index->slot(i)->key);
  }
  return keys;
}

// A restore inserts rows in the order that another table, or this one before it
// was cleared, had them in. If the orders were alike they would pile up at one
// end of a table that is still small.
TEST(RowIndexKeysTest, OrdersOfTwoTablesAreUnrelated) {
  constexpr size_t kKeys = 10000;
  RowIndex<int64_t> first, second;
  const auto fill = [&](RowIndex<int64_t>* index) {
    for (size_t key = 0; key < kKeys; ++key) {
      index->FindOrInsert(key, HashKey(static_cast<int64_t>(key)))
          ->last_update = 1;
    }
    return KeysInOrder(index);
  };
  const std::vector<int64_t> order = fill(&first);
  const auto steps_forward = [&](const std::vector<int64_t>& other) {
    std::vector<size_t> place(kKeys);
    for (size_t i = 0; i < kKeys; ++i) place[other[i]] = i;
    size_t forward = 0;
    for (size_t i = 1; i < kKeys; ++i) {
      forward += place[order[i]] > place[order[i - 1]];
    }
    return static_cast<double>(forward) / (kKeys - 1);
  };
  ASSERT_EQ(order.size(), kKeys);
  EXPECT_EQ(steps_forward(order), 1);
  EXPECT_NEAR(steps_forward(fill(&second)), 0.5, 0.1);
  first.Clear();
  EXPECT_NEAR(steps_forward(fill(&first)), 0.5, 0.1);
}

TEST(RowIndexKeysTest, ReservedRoomIsEnoughAndKeepsWhatIsThere) {
  RowIndex<int64_t> index;
  index.FindOrInsert(-1, HashKey(int64_t{-1}))->last_update = 7;
  index.Reserve(5000);
  const uint64_t growths = index.growths();
  for (int64_t key = 1; key < 5000; ++key) {
    index.FindOrInsert(key, HashKey(key))->last_update = 1;
  }
  EXPECT_EQ(index.growths(), growths);
  EXPECT_EQ(index.size(), 5000u);
  EXPECT_EQ(index.Find(-1, HashKey(int64_t{-1}))->last_update, 7u);
  index.Reserve(10);
  EXPECT_EQ(index.growths(), growths);
}

}  // namespace
}  // namespace adaptcp

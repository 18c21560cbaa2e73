// The order in which the rows of a few thousand keys lie in a table of TFRA.

#ifndef ADAPTCP_OPS_TRACKER_KEY_ORDER_H_
#define ADAPTCP_OPS_TRACKER_KEY_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/tracker/key_hash.h"

namespace adaptcp {

// Fills order[0..n) with 0..n-1 so that keys[order[0]], keys[order[1]], ... stand
// nearly as their buckets do in a table of `rows` rows: what is read in this order
// is read from the front to the back, and half of its cache misses are spared. Any
// order is right. Keys that are not far apart stay as they came, which makes it
// one pass over the keys, some nanoseconds each.
template <typename K>
void OrderByBucket(const std::vector<K>& keys, uint64_t rows,
                   std::vector<uint32_t>* order) {
  constexpr int kMostBits = 11;  // the counts fit into a cache
  // Buckets of four, no fewer of them than the rows need.
  int bits = 1;
  while (bits < 40 && uint64_t{4} << bits < rows) ++bits;
  // Without those of the stripe (StripeOfHash of 256), which all have in common.
  const int total = bits <= 20 ? std::min(bits, 12) : bits - 20 + 12;
  const int shift = total > kMostBits ? total - kMostBits : 0;
  const auto place = [&](const K& key) -> uint32_t {
    const uint64_t bucket = HashKey(key) & ((uint64_t{1} << bits) - 1);
    return static_cast<uint32_t>(((bucket >> 20) << 12 | (bucket & 0xfff)) >>
                                 shift);
  };
  std::vector<uint32_t> ends((size_t{1} << (total - shift)) + 1);
  std::vector<uint32_t> places(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    places[i] = place(keys[i]);
    ++ends[places[i] + 1];
  }
  for (size_t b = 1; b < ends.size(); ++b) ends[b] += ends[b - 1];
  order->resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    (*order)[ends[places[i]]++] = static_cast<uint32_t>(i);
  }
}

// values[order[0]], values[order[1]], ... in place of values[0], values[1], ...
template <typename T>
void Arrange(const std::vector<uint32_t>& order, std::vector<T>* values) {
  std::vector<T> arranged;
  arranged.reserve(order.size());
  for (const uint32_t i : order) arranged.push_back(std::move((*values)[i]));
  *values = std::move(arranged);
}

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_KEY_ORDER_H_

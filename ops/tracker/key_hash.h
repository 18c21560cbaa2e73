// Hashes of row keys. They live in memory only: no file depends on them.
//
// Those of integers are, in their low bits, those by which TFRA's table
// (HybridHash, table_op_cpu.h) finds the bucket of a key: bucket = hash mod 2^n.
// Bits 12 and up choose a stripe, so that the rows of a stripe are in a few runs
// of 4096 buckets that follow one another: whoever reads rows stripe by stripe, or
// inserts them so, has the piece of table that it works on in the caches. With
// stripes of any other hash every row was a cache miss and one of the TLB, and
// finding took twice as long. Were TFRA's hash to change, this would be as slow
// again, and as right. The high 32 bits choose a place in the stripe.

#ifndef ADAPTCP_OPS_TRACKER_KEY_HASH_H_
#define ADAPTCP_OPS_TRACKER_KEY_HASH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace adaptcp {

// The finaliser of splitmix64: a bijection whose every output bit depends on
// every input bit, so that consecutive ids spread over stripes and places.
inline uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

inline uint64_t HashKey(int64_t key) {
  uint64_t x = static_cast<uint64_t>(key);
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}
inline uint64_t HashKey(int32_t key) {
  uint32_t x = static_cast<uint32_t>(key);
  const uint64_t place = MixBits(x + 0x9e3779b97f4a7c15ULL);
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  return (place & ~uint64_t{0xffffffff}) | x;
}
inline uint64_t HashKey(const std::string& key) {
  return MixBits(std::hash<std::string>()(key));
}

// Of `stripes`, a power of two, at most 65536.
inline uint32_t StripeOfHash(uint64_t hash, uint32_t stripes) {
  return static_cast<uint32_t>(hash >> 12) & (stripes - 1);
}
inline uint32_t PlaceOfHash(uint64_t hash) {
  return static_cast<uint32_t>(hash >> 32);
}

// Bytes a key owns outside of its own object.
inline size_t KeyHeapBytes(int64_t) { return 0; }
inline size_t KeyHeapBytes(int32_t) { return 0; }
inline size_t KeyHeapBytes(const std::string& key) {
  static const size_t kInline = std::string().capacity();
  return key.capacity() > kInline ? key.capacity() + 1 : 0;
}

// Gives those bytes back. Assigning an empty string keeps the buffer.
inline void ReleaseKey(int64_t*) {}
inline void ReleaseKey(int32_t*) {}
inline void ReleaseKey(std::string* key) { std::string().swap(*key); }

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_KEY_HASH_H_

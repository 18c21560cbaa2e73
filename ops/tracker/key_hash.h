// Hashes of row keys. The high bits choose a stripe, the low 32 a place in it.
// They live in memory only: no file depends on them.

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
  return MixBits(static_cast<uint64_t>(key) + 0x9e3779b97f4a7c15ULL);
}
inline uint64_t HashKey(int32_t key) {
  return HashKey(static_cast<int64_t>(key));
}
inline uint64_t HashKey(const std::string& key) {
  return MixBits(std::hash<std::string>()(key));
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

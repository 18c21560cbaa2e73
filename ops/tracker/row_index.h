// The open-addressing table of row entries of one stripe.

#ifndef ADAPTCP_OPS_TRACKER_ROW_INDEX_H_
#define ADAPTCP_OPS_TRACKER_ROW_INDEX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>

#include "ops/tracker/key_hash.h"
#include "ops/tracker/row_entry.h"
#include "ops/tracker/slot_array.h"

namespace adaptcp {

// Linear probing, backward-shift deletion (no deleted slots that pile up), and
// growth by a quarter: sizes need not be powers of two, because a place is
// hash * capacity / 2^32. That map keeps order, so growth copies sequentially.
// The load is 65 to 81 % once grown: 30 to 37 bytes per int64 key.
//
// Every table multiplies hashes by a random number of its own first. Rows are
// saved in the order of the table they were in; without it a restore would fill
// a growing table from one end, in a single run of slots without a gap, and
// every insertion would walk all of that run.
//
// The owner of the stripe locks; only Prefetch may be called without the lock.
// Entry pointers are valid until the next insertion or erasure.
template <typename K>
class RowIndex {
 public:
  using Entry = RowEntry<K>;

  RowIndex() = default;
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  // nullptr if the key has no entry. `hash` is HashKey(key), here and below.
  Entry* Find(const K& key, uint64_t hash) {
    const size_t capacity = array_.size();
    if (capacity == 0) return nullptr;
    Entry* slots = array_.data();
    for (size_t i = HomeOf(hash, capacity); slots[i].last_update != 0;) {
      if (slots[i].key == key) return &slots[i];
      if (++i == capacity) i = 0;
    }
    return nullptr;
  }

  // A new entry is all zero but for the key: the caller must set last_update,
  // which tells a slot in use from an empty one, before anything else.
  Entry* FindOrInsert(const K& key, uint64_t hash) {
    size_t capacity = array_.size();
    for (;;) {
      if (capacity != 0) {
        Entry* slots = array_.data();
        size_t i = HomeOf(hash, capacity);
        while (slots[i].last_update != 0) {
          if (slots[i].key == key) return &slots[i];
          if (++i == capacity) i = 0;
        }
        if ((size_ + 1) * 16 <= capacity * 13) {
          ++size_;
          slots[i].key = key;
          heap_bytes_ += KeyHeapBytes(slots[i].key);
          return &slots[i];
        }
      }
      Grow(capacity < 16     ? 16
           : capacity < 1024 ? capacity * 2
                             : capacity + capacity / 4);
      capacity = array_.size();
    }
  }

  // Empties slot i. Entries behind it may move one or more places forward, at
  // most into slot i: a walk that erases at i looks at i again.
  void EraseAt(size_t i) {
    const size_t capacity = array_.size();
    Entry* slots = array_.data();
    heap_bytes_ -= KeyHeapBytes(slots[i].key);
    ReleaseKey(&slots[i].key);
    for (size_t j = i;;) {
      if (++j == capacity) j = 0;
      if (slots[j].last_update == 0) break;
      const size_t home = HomeOf(HashKey(slots[j].key), capacity);
      // Entry j may fill hole i unless its home lies (cyclically) in (i, j].
      const bool stays = i <= j ? (i < home && home <= j)
                                : (i < home || home <= j);
      if (!stays) {
        slots[i] = std::move(slots[j]);
        i = j;
      }
    }
    slots[i] = Entry();
    --size_;
  }
  void Erase(const Entry* entry) { EraseAt(entry - array_.data()); }

  // Makes room for `keys` entries at once. A hint: throws std::bad_alloc, and
  // nothing has changed then.
  void Reserve(size_t keys) {
    const size_t capacity = keys * 16 / 13 + 16;
    if (capacity > array_.size()) Grow(capacity);
  }

  void Clear() {
    Publish(SlotArray<Entry>());
    scramble_.store(NewScramble(), std::memory_order_relaxed);
    size_ = 0;
    heap_bytes_ = 0;
  }

  // Slots by number, for walks. Insertions never move an entry unless they
  // grow the table, which changes growths().
  size_t capacity() const { return array_.size(); }
  Entry* slot(size_t i) { return array_.data() + i; }
  uint64_t growths() const { return growths_; }

  size_t size() const { return size_; }
  size_t memory_bytes() const {
    return array_.size() * sizeof(Entry) + heap_bytes_;
  }

  // Where in the order of the table an entry has its home. Growth keeps ranks;
  // Clear changes them all, and with them `order`.
  uint64_t RankOf(const Entry& entry) const {
    return Scrambled(HashKey(entry.key));
  }
  uint32_t order() const { return scramble_.load(std::memory_order_relaxed); }
  // The home of a rank, and the least rank with that home or a later one.
  size_t HomeOfRank(uint64_t rank) const { return rank * array_.size() >> 32; }
  uint64_t FirstRankOf(size_t slot) const {
    return ((uint64_t{slot} << 32) + array_.size() - 1) / array_.size();
  }

  // Without the lock: the two loads may belong to different sizes, and the
  // address to no memory at all, which a prefetch ignores.
  void Prefetch(uint64_t hash) const {
    const uintptr_t slots = prefetch_slots_.load(std::memory_order_relaxed);
    const size_t capacity = prefetch_capacity_.load(std::memory_order_relaxed);
    __builtin_prefetch(reinterpret_cast<const void*>(
                           slots + HomeOf(hash, capacity) * sizeof(Entry)),
                       1);
  }

 private:
  uint32_t Scrambled(uint64_t hash) const {
    return PlaceOfHash(hash) * scramble_.load(std::memory_order_relaxed);
  }
  size_t HomeOf(uint64_t hash, size_t capacity) const {
    return static_cast<size_t>(uint64_t{Scrambled(hash)} * capacity >> 32);
  }

  // Odd, so that no two hashes come to be one.
  static uint32_t NewScramble() {
    static std::atomic<uint64_t> next{std::random_device()()};
    return static_cast<uint32_t>(MixBits(next.fetch_add(1))) | 1;
  }

  void Publish(SlotArray<Entry> array) {
    array_ = std::move(array);
    ++growths_;
    prefetch_slots_.store(reinterpret_cast<uintptr_t>(array_.data()),
                          std::memory_order_relaxed);
    prefetch_capacity_.store(array_.size(), std::memory_order_relaxed);
  }

  void Grow(size_t capacity) {
    SlotArray<Entry> grown(capacity);
    Entry* to = grown.data();
    Entry* from = array_.data();
    for (size_t k = 0; k < array_.size(); ++k) {
      if (from[k].last_update == 0) continue;
      size_t i = HomeOf(HashKey(from[k].key), capacity);
      while (to[i].last_update != 0) {
        if (++i == capacity) i = 0;
      }
      to[i] = std::move(from[k]);
    }
    Publish(std::move(grown));
  }

  SlotArray<Entry> array_;
  size_t size_ = 0;
  size_t heap_bytes_ = 0;
  uint64_t growths_ = 0;
  std::atomic<uintptr_t> prefetch_slots_{0};
  std::atomic<size_t> prefetch_capacity_{0};
  std::atomic<uint32_t> scramble_{NewScramble()};  // written under the lock
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_ROW_INDEX_H_

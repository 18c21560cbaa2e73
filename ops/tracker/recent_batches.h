// The key batches that were touched last.

#ifndef ADAPTCP_OPS_TRACKER_RECENT_BATCHES_H_
#define ADAPTCP_OPS_TRACKER_RECENT_BATCHES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/tracker/row_entry.h"

namespace adaptcp {

// A training step writes the same keys once per table of the group: parameter,
// then slots. Touching a key twice in an interval changes nothing, and comparing
// two batches costs a fiftieth of touching one, so the last few are remembered.
// Comparison is exact; no hash stands in for it.
//
// Thread-safe; its mutex is a leaf, held for moments. Strings, and batches too
// small or too large to gain from it, are never remembered.
template <typename K>
class RecentBatches {
 public:
  // As many steps as may be under way at once in a group, roughly.
  static constexpr size_t kBatches = 8;
  static constexpr size_t kMaxKeys = size_t{1} << 17;

  explicit RecentBatches(size_t min_keys) : min_keys_(min_keys) {}

  // Whether exactly these keys, in this order, were added for `interval`.
  bool Contains(const K* keys, size_t n, Seq interval) const {
    if (!Remembers(n)) return false;
    std::array<std::shared_ptr<const Batch>, kBatches> alike;
    size_t count = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& batch : batches_) {
        if (batch != nullptr && batch->interval == interval &&
            batch->keys.size() == n && batch->keys.back() == keys[n - 1]) {
          alike[count++] = batch;
        }
      }
    }
    return std::any_of(alike.begin(), alike.begin() + count,
                       [&](const auto& batch) {
                         return std::equal(keys, keys + n,
                                           batch->keys.begin());
                       });
  }

  // Every key has last_update == interval, which is the current one.
  void Add(const K* keys, size_t n, Seq interval) {
    if (!Remembers(n)) return;
    std::shared_ptr<const Batch> batch = std::make_shared<Batch>(
        Batch{interval, std::vector<K>(keys, keys + n)});
    std::lock_guard<std::mutex> lock(mutex_);
    batches_[next_] = std::move(batch);
    next_ = (next_ + 1) % kBatches;
  }

  void Clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    batches_.fill(nullptr);
  }

  size_t memory_bytes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t bytes = 0;
    for (const auto& batch : batches_) {
      if (batch != nullptr) bytes += batch->keys.capacity() * sizeof(K);
    }
    return bytes;
  }

 private:
  struct Batch {
    Seq interval;
    std::vector<K> keys;
  };

  bool Remembers(size_t n) const {
    return std::is_trivially_copyable<K>::value && n > 0 && n >= min_keys_ &&
           n <= kMaxKeys;
  }

  const size_t min_keys_;
  mutable std::mutex mutex_;
  std::array<std::shared_ptr<const Batch>, kBatches> batches_;
  size_t next_ = 0;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_RECENT_BATCHES_H_

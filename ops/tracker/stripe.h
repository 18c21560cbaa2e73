// One stripe of a tracker: the entries whose hash falls into it, the list of
// those that are unsaved, and its share of the pending cut.

#ifndef ADAPTCP_OPS_TRACKER_STRIPE_H_
#define ADAPTCP_OPS_TRACKER_STRIPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "ops/tracker/row_index.h"
#include "ops/tracker/spin_lock.h"

namespace adaptcp {

// A place in a walk over a stripe. A walk is done in pieces, the lock released
// in between. If the table grew meanwhile the walk starts again: no entry is
// missed, some are seen twice.
struct WalkCursor {
  size_t position = 0;
  uint64_t growths = 0;
};

// A place in a walk that sees each entry once, however the table changes: what is
// of a lower rank has been seen.
struct RankCursor {
  uint64_t rank = 0;
  uint32_t order = 0;
};

enum class Visit { kKeep, kErase };

// Every member but index.Prefetch needs `lock`.
template <typename K>
struct alignas(64) Stripe {
  using Entry = RowEntry<K>;
  static constexpr size_t kAhead = 12;  // keys to prefetch ahead, measured

  SpinLock lock;
  RowIndex<K> index;

  // The keys of unsaved rows in order of their first write of the interval.
  // Dropped for a walk over all entries (`scan`) once it is longer than a
  // quarter of them: bounded memory, and no slower. A key may be listed twice
  // (put back by an outcome, then written again).
  std::vector<K> unsaved;
  bool scan = false;

  // The cut being captured. `pending` is 0 from the moment its outcome arrives,
  // the lists stay until that has been applied to all of them.
  Seq pending = 0;
  bool pending_is_base = false;
  bool pending_scan = false;
  std::vector<K> pending_list;
  WalkCursor drain;

  Seq base = 0;  // start of the newest committed base

  bool NeededByCut(const Entry& e) const {
    return pending != 0 && MarkSequence(e.mark) != pending &&
           e.last_update <= pending && (pending_is_base || e.Unsaved(base));
  }

  void List(const K& key, size_t always_allowed) {
    if (scan) return;
    if (unsaved.size() >= std::max(always_allowed, index.size() / 4)) {
      ScanAll();
      return;
    }
    try {
      if (unsaved.size() == unsaved.capacity()) {
        unsaved.reserve(unsaved.size() + unsaved.size() / 2 + 16);
      }
      unsaved.push_back(key);
    } catch (const std::bad_alloc&) {
      ScanAll();  // an unsaved row that no list names would be lost
    }
  }

  void ScanAll() {
    scan = true;
    std::vector<K>().swap(unsaved);
  }

  // The unsaved rows become the candidates of the cut; O(1).
  void BeginCut(Seq n, bool is_base) {
    pending = n;
    pending_is_base = is_base;
    pending_scan = scan || is_base;
    pending_list.swap(unsaved);
    scan = false;
    drain = WalkCursor();
    if (pending_scan) std::vector<K>().swap(pending_list);
  }

  void ForgetCandidates() {
    pending_scan = false;
    std::vector<K>().swap(pending_list);
  }

  // Calls visit(Entry*) -> Visit for at most `limit` slots or listed keys from
  // the cursor on. True once the end is reached.
  template <typename F>
  bool WalkEntries(WalkCursor* cursor, size_t limit, F&& visit) {
    if (cursor->growths != index.growths()) {
      cursor->position = 0;
      cursor->growths = index.growths();
    }
    const size_t capacity = index.capacity();
    while (limit-- > 0 && cursor->position < capacity) {
      Entry* entry = index.slot(cursor->position);
      if (entry->last_update != 0 && visit(entry) == Visit::kErase) {
        index.EraseAt(cursor->position);  // may pull another entry in here
      } else {
        ++cursor->position;
      }
    }
    return cursor->position >= capacity;
  }

  // Calls visit(const Entry&) for the entries from the cursor on, and pauses after
  // `limit` slots where a run of slots in use ends: no entry is then on the other
  // side of the pause than its rank, and none comes there by erasures or growth.
  // True once the end is reached.
  template <typename F>
  bool WalkRanks(RankCursor* cursor, size_t limit, F&& visit) {
    if (cursor->order != index.order()) *cursor = {0, index.order()};
    const size_t capacity = index.capacity();
    if (capacity == 0) return true;
    // The last run may go on over the end, in front of entries of low ranks.
    for (size_t i = index.HomeOfRank(cursor->rank);; ++i) {
      const bool over = i >= capacity;
      const size_t at = over ? i - capacity : i;
      const Entry& entry = *index.slot(at);
      if (limit > 0) --limit;
      if (entry.last_update != 0) {
        const uint64_t rank = index.RankOf(entry);
        if (rank >= cursor->rank && (index.HomeOfRank(rank) > at) == over) {
          visit(entry);
        }
      } else if (over) {
        return true;
      } else if (limit == 0 && i + 1 < capacity) {
        cursor->rank = index.FirstRankOf(i + 1);
        return false;
      }
    }
  }

  // The same as WalkEntries over the candidates of the cut.
  template <typename F>
  bool WalkCandidates(WalkCursor* cursor, size_t limit, F&& visit) {
    if (pending_scan) return WalkEntries(cursor, limit, visit);
    const size_t size = pending_list.size();
    while (limit-- > 0 && cursor->position < size) {
      if (cursor->position + kAhead < size) {
        index.Prefetch(HashKey(pending_list[cursor->position + kAhead]));
      }
      const K& key = pending_list[cursor->position++];
      Entry* entry = index.Find(key, HashKey(key));
      if (entry != nullptr && visit(entry) == Visit::kErase) {
        index.Erase(entry);
      }
    }
    return cursor->position >= size;
  }

  void Clear(Seq base_sequence) {
    index.Clear();
    ForgetCandidates();
    std::vector<K>().swap(unsaved);
    scan = false;
    pending = 0;
    base = base_sequence;
  }
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_STRIPE_H_

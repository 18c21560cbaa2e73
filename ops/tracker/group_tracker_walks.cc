// The parts of GroupTracker that go through the whole index: set-up, tables that
// change as wholes, the ends of a restore, observation. What goes key by key is in group_tracker.cc.

#include <algorithm>

#include "ops/tracker/group_tracker.h"

namespace adaptcp {

namespace {

using Hold = std::lock_guard<SpinLock>;

}  // namespace

template <typename K>
Status GroupTracker<K>::Reset(Seq next_sequence, Seq base_sequence) {
  if (next_sequence == 0 || next_sequence > kMaxSequence ||
      base_sequence >= next_sequence) {
    return Status::InvalidArgument(
        "bad sequences for a reset. Received: next " +
        std::to_string(next_sequence) + ", base " +
        std::to_string(base_sequence) + " Expected: base < next <= " +
        std::to_string(kMaxSequence));
  }
  std::lock_guard<std::mutex> control(control_);
  pending_.store(0);
  recent_.Clear();
  for (uint32_t s = 0; s < options_.stripes; ++s) {
    Hold hold(stripes_[s].lock);
    stripes_[s].Clear(base_sequence);
  }
  drain_.store(0);
  unresolved_.store(0);
  current_.store(next_sequence);
  base_.store(base_sequence);
  replaced_.store(0);
  return Status::Ok();
}

template <typename K>
void GroupTracker<K>::Reserve(uint64_t keys) {
  // Stripes differ by chance.
  const double mean = static_cast<double>(keys) / options_.stripes;
  const double each = mean + 4 * std::sqrt(mean);
  if (each > static_cast<double>(kMaxSequence)) return;
  for (uint32_t s = 0; s < options_.stripes; ++s) {
    Hold hold(stripes_[s].lock);
    try {
      stripes_[s].index.Reserve(static_cast<size_t>(each));
    } catch (const std::bad_alloc&) {
      return;
    }
  }
}

template <typename K>
void GroupTracker<K>::FinishRestore() {
  const uint32_t dead = MakeMark(0, MarkClass::kTombstone);
  for (uint32_t s = 0; s < options_.stripes; ++s) {
    Stripe<K>& stripe = stripes_[s];
    WalkCursor cursor;
    for (bool done = false; !done;) {
      Hold hold(stripe.lock);
      done = stripe.WalkEntries(
          &cursor, options_.walk_step, [&](Entry* entry) {
            return entry->mark == dead && !entry->Unsaved(stripe.base)
                       ? Visit::kErase
                       : Visit::kKeep;
          });
    }
  }
}

template <typename K>
bool GroupTracker<K>::NextUnclaimed(Seq n, IndexCursor* cursor,
                                    size_t max_keys,
                                    std::vector<K>* keys) const {
  keys->clear();
  while (n != 0 && cursor->stripe < options_.stripes &&
         keys->size() < max_keys) {
    Stripe<K>& stripe = stripes_[cursor->stripe];
    bool done = true;
    {
      Hold hold(stripe.lock);
      if (stripe.pending == n) {
        done = stripe.WalkCandidates(
            &cursor->in_stripe,
            std::min<size_t>(options_.walk_step, max_keys - keys->size()),
            [&](Entry* entry) {
              if (stripe.NeededByCut(*entry)) keys->push_back(entry->key);
              return Visit::kKeep;
            });
      }
    }
    if (done) *cursor = {cursor->stripe + 1, WalkCursor()};
  }
  return !keys->empty();
}

template <typename K>
void GroupTracker<K>::MarkEverything() {
  // Not while an outcome is applied: that erases entries, which moves others
  // past a walk.
  std::lock_guard<std::mutex> control(control_);
  const Seq current = current_.load();
  replaced_.store(current);
  for (uint32_t s = 0; s < options_.stripes; ++s) {
    Stripe<K>& stripe = stripes_[s];
    WalkCursor cursor;
    for (bool done = false; !done;) {
      Hold hold(stripe.lock);
      stripe.ScanAll();
      done = stripe.WalkEntries(&cursor, options_.walk_step, [&](Entry* entry) {
        entry->estimate =
            decay_.Idle(entry->estimate, current - entry->last_update);
        entry->last_update = current;
        return Visit::kKeep;
      });
    }
  }
}

template <typename K>
bool GroupTracker<K>::Scan(Seq start, size_t max_keys, ScanCursor* cursor,
                           std::vector<K>* keys, std::vector<float>* p) const {
  keys->clear();
  p->clear();
  while (keys->size() < max_keys && cursor->stripe < options_.stripes) {
    Stripe<K>& stripe = stripes_[cursor->stripe];
    Hold hold(stripe.lock);
    const bool done = stripe.WalkRanks(
        &cursor->in_stripe,
        std::min<size_t>(options_.walk_step, max_keys - keys->size()),
        [&](const Entry& entry) {
          keys->push_back(entry.key);
          // One written since has a newer row in a level above.
          const Seq idle = start - std::min(start, entry.last_update);
          p->push_back(
              decay_.ToProbability(decay_.Idle(entry.estimate, idle)));
        });
    if (done) *cursor = {cursor->stripe + 1, RankCursor()};
  }
  return !keys->empty();
}

template <typename K>
TrackerStats GroupTracker<K>::Stats() const {
  TrackerStats stats;
  stats.memory_bytes =
      options_.stripes * sizeof(Stripe<K>) + recent_.memory_bytes();
  for (uint32_t s = 0; s < options_.stripes; ++s) {
    Stripe<K>& stripe = stripes_[s];
    Hold hold(stripe.lock);
    stats.keys += stripe.index.size();
    stats.unsaved_listed +=
        stripe.scan ? stripe.index.size() : stripe.unsaved.size();
    if (stripe.pending != 0) {
      stats.pending_listed += stripe.pending_scan ? stripe.index.size()
                                                  : stripe.pending_list.size();
    }
    stats.scanned_stripes += stripe.scan;
    stats.memory_bytes +=
        stripe.index.memory_bytes() +
        (stripe.unsaved.capacity() + stripe.pending_list.capacity()) *
            sizeof(K);
  }
  stats.accesses = accesses_.load();
  return stats;
}

template <typename K>
uint64_t GroupTracker<K>::RoughRows() const {
  Hold hold(stripes_[0].lock);
  return uint64_t{stripes_[0].index.size()} * options_.stripes;
}

template <typename K>
PHistogram GroupTracker<K>::HistogramOfP(Seq as_of, double threshold,
                                         uint64_t enough) const {
  PHistogram out;
  for (uint32_t i = 0; i < options_.stripes; ++i) {
    // From another one each time, and from another place in it, so that it is
    // not always the same rows that count.
    Stripe<K>& stripe = stripes_[(i + as_of * 37) % options_.stripes];
    for (size_t walked = 0;;) {  // slots, from `begin` on and round the end
      Hold hold(stripe.lock);
      if (walked == 0) out.keys += stripe.index.size();
      const size_t capacity = stripe.index.capacity();
      if (out.counted >= enough || walked >= capacity) break;
      const size_t begin = stripe.index.HomeOfRank(as_of * 0x9e3779b9u);
      const size_t at = (begin + walked) % capacity;
      const size_t step = std::min<size_t>(
          {options_.walk_step, capacity - at, capacity - walked});
      // Goes on where it was if the table grows meanwhile: rows near that
      // place may be counted twice, which no policy can notice.
      WalkCursor cursor{at, stripe.index.growths()};
      stripe.WalkEntries(&cursor, step, [&](Entry* entry) {
        const Seq idle = as_of - std::min<Seq>(as_of, entry->last_update);
        const float p =
            decay_.ToProbability(decay_.Idle(entry->estimate, idle));
        const int bucket = PHistogram::BucketOf(p);
        ++out.counted;
        out.all.Add(bucket, p);
        if (entry->Unsaved(stripe.base)) {
          out.unsaved.Add(bucket, p);
          out.hot += p > threshold;
        }
        return Visit::kKeep;
      });
      walked += step;
    }
  }
  return out;
}

// The class is instantiated in group_tracker.cc, without these members.
#define ADAPTCP_INSTANTIATE(K)                          \
  template Status GroupTracker<K>::Reset(Seq, Seq);     \
  template void GroupTracker<K>::Reserve(uint64_t);     \
  template void GroupTracker<K>::FinishRestore();       \
  template bool GroupTracker<K>::NextUnclaimed(         \
      Seq, IndexCursor*, size_t, std::vector<K>*)   \
      const;                                            \
  template void GroupTracker<K>::MarkEverything();      \
  template bool GroupTracker<K>::Scan(                  \
      Seq, size_t, ScanCursor*, std::vector<K>*,         \
      std::vector<float>*) const;                       \
  template TrackerStats GroupTracker<K>::Stats() const; \
  template uint64_t GroupTracker<K>::RoughRows() const; \
  template PHistogram GroupTracker<K>::HistogramOfP(    \
      Seq, double, uint64_t) const

ADAPTCP_INSTANTIATE(int64_t);
ADAPTCP_INSTANTIATE(int32_t);
ADAPTCP_INSTANTIATE(std::string);

#undef ADAPTCP_INSTANTIATE

}  // namespace adaptcp

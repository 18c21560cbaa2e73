#include "ops/tracker/group_tracker.h"

#include <algorithm>
#include <cmath>

namespace adaptcp {

namespace {

using Hold = std::lock_guard<SpinLock>;

}  // namespace

Status TrackerOptions::Validate() const {
  if (!(decay >= 0 && decay < 1)) {
    return Status::InvalidArgument(
        "bad decay of the update indicator. Received: " +
        std::to_string(decay) + " Expected: a number in [0, 1)");
  }
  if (estimator == Estimator::kAccesses && decay == 0) {
    return Status::InvalidArgument(
        "accesses can't be estimated without a memory. Received: a decay of 0 "
        "Expected: above 0");
  }
  if (stripes == 0 || stripes > 65536 || (stripes & (stripes - 1)) != 0) {
    return Status::InvalidArgument(
        "bad number of stripes. Received: " + std::to_string(stripes) +
        " Expected: a power of two, at most 65536");
  }
  if (walk_step == 0) {
    return Status::InvalidArgument(
        "bad walk step. Received: 0 Expected: at least 1");
  }
  return Status::Ok();
}

template <typename K>
GroupTracker<K>::GroupTracker(const TrackerOptions& options)
    : options_(options),
      decay_(options.decay, options.estimator),
      stripes_(new Stripe<K>[options.stripes]),
      recent_(options.min_remembered) {}

// Calls f(j, key, hash, stripe) for each key, its slot prefetched.
template <typename K>
template <typename F>
void GroupTracker<K>::ForEachKey(const K* keys, const uint32_t* idx, size_t n,
                                 F&& f) const {
  constexpr size_t kAhead = Stripe<K>::kAhead;
  constexpr size_t kRing = 16;  // a power of two > kAhead
  uint64_t hashes[kRing];
  const auto key_at = [&](size_t j) -> const K& {
    return keys[idx == nullptr ? j : idx[j]];
  };
  const auto announce = [&](size_t j) {
    const uint64_t hash = HashKey(key_at(j));
    hashes[j % kRing] = hash;
    StripeOf(hash).index.Prefetch(hash);
  };
  for (size_t j = 0; j < std::min(n, kAhead); ++j) announce(j);
  for (size_t j = 0; j < n; ++j) {
    if (j + kAhead < n) announce(j + kAhead);
    const uint64_t hash = hashes[j % kRing];
    f(j, key_at(j), hash, &StripeOf(hash));
  }
}

// --- Writers

template <typename K>
Seq GroupTracker<K>::CollectUncaptured(const K* keys, size_t n,
                                       std::vector<uint32_t>* out,
                                       bool wait) const {
  out->clear();
  const Seq pending = pending_.load(std::memory_order_acquire);
  if (pending == 0) return 0;
  ForEachKey(keys, nullptr, n,
             [&](size_t j, const K& key, uint64_t hash, Stripe<K>* stripe) {
               std::unique_lock<SpinLock> hold(stripe->lock, std::defer_lock);
               if (wait) {
                 hold.lock();
               } else if (!hold.try_lock()) {
                 return;
               }
               if (stripe->pending != pending) return;
               const Entry* entry = stripe->index.Find(key, hash);
               if (entry != nullptr && stripe->NeededByCut(*entry)) {
                 out->push_back(static_cast<uint32_t>(j));
               }
             });
  return pending;
}

template <typename K>
void GroupTracker<K>::Claim(Seq n, const K* keys, const uint32_t* idx,
                            size_t m, const uint8_t* all_absent, RowClass* out,
                            float* p) {
  ForEachKey(
      keys, idx, m,
      [&](size_t j, const K& key, uint64_t hash, Stripe<K>* stripe) {
        out[j] = RowClass::kLost;
        if (p != nullptr) p[j] = 0;
        Hold hold(stripe->lock);
        // A row read for an older cut may have been written before this one.
        if (n == 0 || stripe->pending != n) return;
        Entry* entry = stripe->index.Find(key, hash);
        if (entry == nullptr || !stripe->NeededByCut(*entry)) return;
        const float at_cut = decay_.ToProbability(
            decay_.Idle(entry->estimate, n - entry->last_update));
        MarkClass mark = MarkClass::kCold;
        if (all_absent != nullptr && all_absent[j] != 0) {
          mark = MarkClass::kTombstone;
        } else if (!stripe->pending_is_base && at_cut > hot_threshold_) {
          mark = MarkClass::kHot;
        }
        entry->mark = MakeMark(n, mark);
        if (mark == MarkClass::kTombstone && stripe->pending_is_base) return;
        out[j] = mark == MarkClass::kHot ? RowClass::kHot : RowClass::kCold;
        if (p != nullptr) p[j] = at_cut;
      });
}

// Under the stripe's lock.
template <typename K>
void GroupTracker<K>::TouchEntry(Stripe<K>* stripe, const K& key, Entry* entry,
                                 Seq current) {
  if (entry->last_update == current) return;
  entry->estimate =
      entry->last_update == 0
          ? decay_.Created()
          : decay_.Written(entry->estimate, current - entry->last_update);
  entry->last_update = current;
  stripe->List(key, options_.min_listed);
}

template <typename K>
void GroupTracker<K>::TouchThese(const K* keys, const uint32_t* idx, size_t n,
                                 Seq current) {
  ForEachKey(keys, idx, n,
             [&](size_t, const K& key, uint64_t hash, Stripe<K>* stripe) {
               Hold hold(stripe->lock);
               TouchEntry(stripe, key, stripe->index.FindOrInsert(key, hash),
                          current);
             });
}

template <typename K>
void GroupTracker<K>::Touch(const K* keys, size_t n) {
  const Seq current = current_.load(std::memory_order_relaxed);
  if (recent_.Contains(keys, n, current)) return;
  TouchThese(keys, nullptr, n, current);
  recent_.Add(keys, n, current);
}

template <typename K>
Seq GroupTracker<K>::TouchOrCollect(const K* keys, size_t n,
                                    std::vector<uint32_t>* out) {
  out->clear();
  const Seq pending = pending_.load(std::memory_order_acquire);
  if (pending == 0) {
    Touch(keys, n);
    return 0;
  }
  const Seq current = current_.load(std::memory_order_relaxed);
  // Touched after the cut: their rows were captured before that.
  if (recent_.Contains(keys, n, current)) return 0;
  ForEachKey(keys, nullptr, n,
             [&](size_t j, const K& key, uint64_t hash, Stripe<K>* stripe) {
               Hold hold(stripe->lock);
               Entry* entry = stripe->index.FindOrInsert(key, hash);
               // A new entry is of a row made after the cut.
               if (entry->last_update != 0 && stripe->pending == pending &&
                   stripe->NeededByCut(*entry)) {
                 out->push_back(static_cast<uint32_t>(j));
               } else {
                 TouchEntry(stripe, key, entry, current);
               }
             });
  if (out->empty()) recent_.Add(keys, n, current);
  return pending;
}

template <typename K>
void GroupTracker<K>::TouchCollected(const K* keys, size_t n,
                                     const std::vector<uint32_t>& collected) {
  const Seq current = current_.load(std::memory_order_relaxed);
  TouchThese(keys, collected.data(), collected.size(), current);
  recent_.Add(keys, n, current);
}

template <typename K>
void GroupTracker<K>::Seed(const K* keys, size_t n) {
  const Seq current = current_.load(std::memory_order_relaxed);
  ForEachKey(keys, nullptr, n,
             [&](size_t, const K& key, uint64_t hash, Stripe<K>* stripe) {
               Hold hold(stripe->lock);
               Entry* entry = stripe->index.FindOrInsert(key, hash);
               if (entry->last_update != 0) return;  // tracked already
               entry->last_update = current;
               stripe->List(key, options_.min_listed);
             });
}

template <typename K>
void GroupTracker<K>::RecordAccesses(const K* keys, size_t n) {
  if (decay_.estimator() != Estimator::kAccesses) return;
  const Seq current = current_.load(std::memory_order_relaxed);
  ForEachKey(keys, nullptr, n,
             [&](size_t, const K& key, uint64_t hash, Stripe<K>* stripe) {
               Hold hold(stripe->lock);
               Entry* entry = stripe->index.Find(key, hash);
               if (entry == nullptr) return;
               entry->estimate = decay_.Accessed(
                   entry->estimate, current - entry->last_update);
             });
  accesses_.fetch_add(n, std::memory_order_relaxed);
}

template <typename K>
void GroupTracker<K>::FindKnown(const K* keys, size_t n,
                                std::vector<uint32_t>* out) const {
  out->clear();
  ForEachKey(keys, nullptr, n,
             [&](size_t j, const K& key, uint64_t hash, Stripe<K>* stripe) {
               Hold hold(stripe->lock);
               if (stripe->index.Find(key, hash) != nullptr) {
                 out->push_back(static_cast<uint32_t>(j));
               }
             });
}

// --- The drain

template <typename K>
bool GroupTracker<K>::NextPending(Seq n, size_t max_keys,
                                  std::vector<K>* keys) {
  keys->clear();
  if (n == 0) return false;
  while (keys->size() < max_keys) {
    uint64_t at = drain_.load();
    const uint32_t s = static_cast<uint32_t>(at);
    if (at >> 32 != n || s >= options_.stripes) break;
    Stripe<K>& stripe = stripes_[s];
    bool done;
    {
      Hold hold(stripe.lock);
      if (stripe.pending != n) break;
      done = stripe.WalkCandidates(
          &stripe.drain,
          std::min<size_t>(options_.walk_step, max_keys - keys->size()),
          [&](Entry* entry) {
            if (stripe.NeededByCut(*entry)) keys->push_back(entry->key);
            return Visit::kKeep;
          });
    }
    if (done) drain_.compare_exchange_strong(at, at + 1);
  }
  return !keys->empty();
}

template <typename K>
uint64_t GroupTracker<K>::CountUncaptured(Seq n) const {
  uint64_t count = 0;
  for (uint32_t s = 0; s < options_.stripes; ++s) {
    Stripe<K>& stripe = stripes_[s];
    WalkCursor cursor;
    for (bool done = false; !done;) {
      Hold hold(stripe.lock);
      if (n == 0 || stripe.pending != n) break;
      done = stripe.WalkCandidates(&cursor, options_.walk_step,
                                   [&](Entry* entry) {
                                     count += stripe.NeededByCut(*entry);
                                     return Visit::kKeep;
                                   });
    }
  }
  return count;
}

// --- Control

template <typename K>
Status GroupTracker<K>::Cut(const CutRequest& request) {
  const Seq n = request.sequence;
  if (n == 0 || n > kMaxSequence) {
    return Status::InvalidArgument(
        "bad checkpoint sequence. Received: " + std::to_string(n) +
        " Expected: 1 to " + std::to_string(kMaxSequence));
  }
  if (std::isnan(request.hot_threshold)) {
    return Status::InvalidArgument(
        "bad hot threshold. Received: NaN Expected: a number or infinity");
  }
  // Training stands still: don't wait for an outcome that is being applied.
  std::unique_lock<std::mutex> control(control_, std::try_to_lock);
  const Seq unresolved = unresolved_.load();
  if (!control.owns_lock() || unresolved != 0) {
    return Status::FailedPrecondition(
        "checkpoint " + std::to_string(n) + " can't be cut: the outcome of " +
        "checkpoint " + std::to_string(unresolved) +
        " has not been applied yet");
  }
  if (n < current_.load()) {
    return Status::FailedPrecondition(
        "checkpoint sequences only grow. Received: " + std::to_string(n) +
        " Expected: at least " + std::to_string(current_.load()));
  }
  hot_threshold_ = request.hot_threshold;
  for (uint32_t s = 0; s < options_.stripes; ++s) {
    Hold hold(stripes_[s].lock);
    stripes_[s].BeginCut(n, request.kind == CutKind::kBase);
  }
  drain_.store(uint64_t{n} << 32);
  unresolved_.store(n);
  current_.store(n + 1);
  pending_.store(n, std::memory_order_release);
  return Status::Ok();
}

// Returns the number of rows that a committed checkpoint lacks.
template <typename K>
uint64_t GroupTracker<K>::ResolveStripe(Stripe<K>* stripe, Seq n,
                                        bool committed, Seq scanned_base) {
  bool is_base;
  {
    Hold hold(stripe->lock);
    is_base = stripe->pending_is_base;
    stripe->pending = 0;  // nobody claims here any more
    // Before the walk: hot rows that the new base holds are not listed again.
    if (committed) stripe->base = std::max(stripe->base, scanned_base);
  }
  uint64_t lacking = 0;
  const auto visit = [&](Entry* e) {
    const bool captured = MarkSequence(e->mark) == n;
    const MarkClass mark = ClassOfMark(e->mark);
    // Seen before: listed twice, or the walk started again.
    if (captured && mark == MarkClass::kResolved) return Visit::kKeep;
    if (committed && captured && mark != MarkClass::kHot) {
      if (mark == MarkClass::kTombstone && e->last_update <= n) {
        return Visit::kErase;
      }
      e->last_saved = n;
    }
    // Writes after the cut were listed when they came.
    if (e->last_update > n) {
      if (captured) e->mark = MakeMark(n, MarkClass::kResolved);
      return Visit::kKeep;
    }
    const bool needed = is_base || e->Unsaved(stripe->base);
    if (committed && !captured && needed) {
      ++lacking;
      e->last_update = n + 1;  // or a base would hide the row for good
    }
    if (e->Unsaved(stripe->base)) stripe->List(e->key, options_.min_listed);
    if (captured || needed) e->mark = MakeMark(n, MarkClass::kResolved);
    return Visit::kKeep;
  };
  WalkCursor cursor;
  for (bool done = false; !done;) {
    Hold hold(stripe->lock);
    done = stripe->WalkCandidates(&cursor, options_.walk_step, visit);
    if (done) {
      stripe->ForgetCandidates();
      if (committed && is_base) stripe->base = n;
    }
  }
  return lacking;
}

template <typename K>
Status GroupTracker<K>::Resolve(Seq n, bool committed, Seq scanned_base) {
  // Asked before locking too: a repeated message must not make a cut fail.
  if (n == 0 || unresolved_.load() != n) return Status::Ok();
  std::lock_guard<std::mutex> control(control_);
  if (unresolved_.load() != n) return Status::Ok();
  const bool is_base = stripes_[0].pending_is_base;
  if (!committed) scanned_base = 0;
  if (scanned_base >= n || (is_base && scanned_base != 0)) {
    return Status::InvalidArgument(
        "checkpoint " + std::to_string(n) + (is_base ? " (a base)" : "") +
        " can't go by a base that starts at " + std::to_string(scanned_base));
  }
  pending_.store(0);
  uint64_t lacking = 0;
  for (uint32_t s = 0; s < options_.stripes; ++s) {
    lacking += ResolveStripe(&stripes_[s], n, committed, scanned_base);
  }
  if (committed) {
    base_.store(is_base ? n : std::max(base_.load(), scanned_base));
  }
  unresolved_.store(0);
  if (lacking != 0) {
    return Status::DataLoss("checkpoint " + std::to_string(n) +
                            " was committed without " +
                            std::to_string(lacking) +
                            " rows that its drain never captured");
  }
  return Status::Ok();
}

// --- Restore

template <typename K>
Status GroupTracker<K>::RestoreRows(const K* keys, size_t n,
                                    const uint8_t* tombstone, const float* p,
                                    Seq head, bool from_differential,
                                    uint8_t* fresh, uint32_t age) {
  const Seq base = base_.load();
  // A row of the differential with head == base would count as saved.
  if (head == 0 || head < base + from_differential ||
      head >= current_.load()) {
    return Status::InvalidArgument(
        "rows can't be restored as of head " + std::to_string(head) +
        (from_differential ? " (differential)" : "") +
        ". Expected: a head from base " + std::to_string(base) +
        " on and below the next sequence " + std::to_string(current_.load()));
  }
  ForEachKey(keys, nullptr, n,
             [&](size_t j, const K& key, uint64_t hash, Stripe<K>* stripe) {
               Hold hold(stripe->lock);
               Entry* entry = stripe->index.FindOrInsert(key, hash);
               fresh[j] = entry->last_update == 0;
               if (!fresh[j]) return;
               entry->last_update = head;
               entry->estimate =
                   p == nullptr
                       ? 0
                       : decay_.Idle(decay_.FromProbability(p[j]), age);
               if (tombstone != nullptr && tombstone[j] != 0) {
                 entry->mark = MakeMark(0, MarkClass::kTombstone);
               }
               if (from_differential) {
                 stripe->List(key, options_.min_listed);
               } else {
                 entry->last_saved = head;
               }
             });
  return Status::Ok();
}

template class GroupTracker<int64_t>;
template class GroupTracker<int32_t>;
template class GroupTracker<std::string>;

}  // namespace adaptcp

// Which rows of a group are not in a checkpoint yet, and which of them the
// pending one still has to capture.
//
// A group is one embedding variable with its slot variables: same keys, one
// tracker per group and parameter server. The invariant:
//
//   A row is unsaved when last_update > max(last_saved, base), base being the
//   start of the newest committed base. A checkpoint saves every unsaved row as
//   of its cut. At commit a row that was saved cold (into the increment) gets
//   last_saved = n; one saved hot (into the differential) stays unsaved.
//
// A write op, whole inside the gate:
//
//   GateScope scope(&gate);
//   Seq n = tracker.TouchOrCollect(keys, count, &need);
//   if (!need.empty()) {
//     ... read the rows `need` names from every table of the group ...
//     tracker.Claim(n, keys, need.data(), need.size(), absent, cls, p);
//     ... publish those not kLost, increment or differential by their class ...
//     tracker.TouchCollected(keys, count, need);
//   }
//   ... write the table ...
//
// Read, then claim, then write, and never anything else: a row that was read
// before its claim succeeded can't have been written after the cut. The drain
// does the same without the gate and without the last two steps.

#ifndef ADAPTCP_OPS_TRACKER_GROUP_TRACKER_H_
#define ADAPTCP_OPS_TRACKER_GROUP_TRACKER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/tracker/decay.h"
#include "ops/tracker/p_histogram.h"
#include "ops/tracker/recent_batches.h"
#include "ops/tracker/row_entry.h"
#include "ops/tracker/stripe.h"
#include "ops/util/status.h"

namespace adaptcp {

enum class CutKind : uint8_t {
  kDelta = 0,  // captures the unsaved rows
  kBase = 1,   // captures every row, all of them cold
};

enum class RowClass : uint8_t {
  // Captured by someone else, or not needed, as tombstones in a base, which has
  // nothing to take back: don't publish.
  kLost = 0,
  kCold = 1,  // goes into the increment (into the base, if that is the kind)
  kHot = 2,   // goes into the differential
};

struct CutRequest {
  Seq sequence = 0;
  CutKind kind = CutKind::kDelta;
  // A row is hot iff its p at the cut is greater: < 0 makes every row hot,
  // +infinity none. Tombstones and all rows of a base are cold regardless.
  double hot_threshold = 0;
};

struct TrackerOptions {
  double decay = 0.9;        // of estimates per interval, in [0, 1)
  Estimator estimator = Estimator::kUpdates;  // the other needs decay > 0
  uint32_t stripes = 256;    // power of two, at most 65536
  uint32_t min_listed = 64;  // an unsaved list may always be this long
  uint32_t walk_step = 1024; // entries walked per hold of a stripe lock
  uint32_t min_remembered = 16;  // smaller batches are rather touched again

  Status Validate() const;
};

// A place in a walk over all stripes.
struct IndexCursor {
  uint32_t stripe = 0;
  WalkCursor in_stripe;
};

// The same of one that sees each entry once.
struct ScanCursor {
  uint32_t stripe = 0;
  RankCursor in_stripe;
};

struct TrackerStats {
  uint64_t keys = 0;
  // Candidates of the next cut so far; an upper bound where a list was dropped
  // (`scanned_stripes`): all entries of the stripe count.
  uint64_t unsaved_listed = 0;
  // The same of the pending cut, those that are captured among them.
  uint64_t pending_listed = 0;
  // Entries with the text of string keys, lists without it; batches remembered.
  uint64_t memory_bytes = 0;
  uint32_t scanned_stripes = 0;
  uint64_t accesses = 0;  // keys handed to RecordAccesses so far
};

// Thread-safe as each method says. Locks: one stripe lock at a time, held for
// dozens of nanoseconds (walk_step entries in walks, longer while a stripe
// grows); `control_` before stripe locks. Nothing here waits for the gate, and
// nothing is called back under a lock. Throws std::bad_alloc only.
template <typename K>
class GroupTracker {
 public:
  // Requires options.Validate().ok().
  explicit GroupTracker(const TrackerOptions& options = TrackerOptions());
  GroupTracker(const GroupTracker&) = delete;
  GroupTracker& operator=(const GroupTracker&) = delete;

  // --- Writers, inside the gate. Any thread.

  // Whether a checkpoint is capturing. Inside the gate it may become false (the
  // outcome arrived) but never true.
  bool pending() const {
    return pending_.load(std::memory_order_relaxed) != 0;
  }

  // Puts into `out` the indices of the keys whose rows the pending cut still
  // needs; a key that occurs twice is named twice. Returns the sequence of that
  // cut, to be handed to Claim, or 0 with `out` empty.
  // Without `wait` keys whose stripe is locked are left out: who only hurries
  // rows must not wait until a thread that holds the lock gets its processor
  // back.
  Seq CollectUncaptured(const K* keys, size_t n, std::vector<uint32_t>* out,
                        bool wait = true) const;

  // After reading the rows of the `m` keys keys[idx[j]] (keys[j] if idx is
  // null): marks those that cut n still needs as captured and sets out[j] to
  // their class and p[j] (if p is not null) to their p at the cut;
  // out[j] = kLost for the others. all_absent[j] != 0 says that no table of the
  // group had the key: a tombstone (null: none is).
  //
  // The caller must publish every row it was given, or fail the checkpoint.
  // Since that happens after the claim, buffers are complete only when the
  // drain threads have finished and a Gate::RunExclusive barrier has passed.
  void Claim(Seq n, const K* keys, const uint32_t* idx, size_t m,
             const uint8_t* all_absent, RowClass* out, float* p);

  // Before a write or removal of these keys in any table of the group, after
  // Claim: rows are unsaved from here on and belong to the next cut.
  void Touch(const K* keys, size_t n);

  // CollectUncaptured and Touch in one pass: touches the keys whose rows no
  // pending cut needs, collects the others. Those are to be captured and then
  // touched by TouchCollected, which is given the whole batch and its indices.
  Seq TouchOrCollect(const K* keys, size_t n, std::vector<uint32_t>* out);
  void TouchCollected(const K* keys, size_t n,
                      const std::vector<uint32_t>& collected);

  // A lookup, inside the gate: counts an access to each of the keys that has an
  // entry, twice if it is there twice. Nothing unless the estimator is of
  // accesses. One that comes after a cut and before its row is captured counts
  // for that cut too.
  void RecordAccesses(const K* keys, size_t n);

  // Puts into `out` the indices of the keys that have an entry. Any other is in
  // no table: removing it does nothing, so a removal touches only these.
  void FindKnown(const K* keys, size_t n, std::vector<uint32_t>* out) const;

  // --- The drain. Any number of threads, no gate.

  // Replaces `keys` by at most `max_keys` candidates of cut n that are not
  // captured yet. Different calls get different keys, as a rule: Claim decides.
  // False if none are left or n is not pending (any more).
  bool NextPending(Seq n, size_t max_keys, std::vector<K>* keys);

  // Rows that cut n needs and nobody has claimed, by walking all candidates: 0
  // when the drain is complete. A check before the checkpoint is reported done.
  uint64_t CountUncaptured(Seq n) const;

  // Replaces `keys` by at most `max_keys` keys that cut n needs and nobody has
  // claimed, those that NextPending has handed to somebody included. False at
  // the end. Once each batch has been claimed before the next is asked for,
  // nothing is left to claim.
  bool NextUnclaimed(Seq n, IndexCursor* cursor, size_t max_keys,
                     std::vector<K>* keys) const;

  // --- A base without a cut: a scan of all rows beside writers and checkpoints.
  //
  // Its start is a cut that was taken before the scan began. It is the base only
  // of checkpoints cut after the scan has ended on every parameter server, which
  // need the increments after the start too: what a row was at, or after, its
  // reading is in the scan or above it.

  // Replaces `keys` by some of the tracked keys, about `max_keys`, and `p` by
  // their p as of cut `start`; false once none are left. No key comes
  // twice; those of deleted rows come too. One thread per cursor, no gate.
  bool Scan(Seq start, size_t max_keys, ScanCursor* cursor,
            std::vector<K>* keys, std::vector<float>* p) const;

  // --- Control.

  // Requires the gate to be closed. Never waits: FailedPrecondition if a cut is
  // unresolved or the sequence was used before, InvalidArgument if the request
  // makes no sense. Afterwards writes belong to interval sequence + 1.
  Status Cut(const CutRequest& request);

  // Applies the outcome of checkpoint n. Any thread, no gate; concurrent calls
  // wait for each other. Ok and without effect if n is not unresolved.
  // scanned_base: the start of the scanned base (see Scan) that n goes by from
  // now on, 0 if it goes by the base before: rows not written since are clean.
  // Of no meaning if n is not committed.
  // DataLoss if n is committed though rows it needs were never claimed: they
  // stay unsaved, so that the next checkpoint has them, but n lacks them.
  Status Resolve(Seq n, bool committed, Seq scanned_base = 0);

  // The cut that is pending or being resolved, 0 if none.
  Seq pending_sequence() const { return unresolved_.load(); }
  // The interval that writes belong to now.
  Seq current_sequence() const { return current_.load(); }
  Seq base_sequence() const { return base_.load(); }

  // --- Restore and set-up, while nobody trains or saves.

  // Forgets everything. Writes belong to interval `next_sequence`, which must be
  // greater than every sequence restored afterwards.
  Status Reset(Seq next_sequence, Seq base_sequence);

  // Makes room for about `keys` keys. A hint: takes memory only as it is used,
  // and does nothing if there is none.
  void Reserve(uint64_t keys);

  // One batch of rows of head `head`, which come newest level first:
  // differential, increments, base; a level must be done before the next one
  // begins, batches of one level may come from several threads. fresh[i] says
  // that the key was not seen before, so that its row counts. Rows of the
  // differential come back unsaved, the others clean. tombstone and p may be
  // null: no row is a tombstone, every p is 0. p is as of `age` intervals before
  // the head, at which the rows were written.
  Status RestoreRows(const K* keys, size_t n, const uint8_t* tombstone,
                     const float* p, Seq head, bool from_differential,
                     uint8_t* fresh, uint32_t age = 0);

  // Drops the entries of clean tombstones, which were kept as "seen".
  void FinishRestore();

  // Rows that existed before they were tracked: unsaved, and cold (p = 0).
  // Inside the gate or under the closed one.
  void Seed(const K* keys, size_t n);

  // Every tracked row becomes unsaved, in the current interval: something has
  // changed tables as wholes. Requires the gate to be closed, and that a pending
  // cut has nothing left to claim or will never be committed. May wait for an
  // outcome that is being applied.
  void MarkEverything();

  // Whether that happened and no base has been committed since that was cut
  // later. A delta would be right too, but would hold every row.
  bool NeedsBase() const { return replaced_.load() > base_.load(); }

  // --- Observation. Any thread; a snapshot that is not consistent across
  // stripes, as rows change meanwhile.
  TrackerStats Stats() const;
  // How many keys there are, give or take a few percent of many, for the price of
  // one stripe lock: of one stripe, times the stripes.
  uint64_t RoughRows() const;
  // Counts rows by their p at a cut `as_of` that were taken now, and the unsaved
  // ones above `threshold`. A sample: stripe after stripe, until there are
  // `enough` rows, or walk_step more; keys are hashed to stripes and to places in
  // them, so a part of a stripe is as good as any other choice.
  PHistogram HistogramOfP(Seq as_of, double threshold, uint64_t enough) const;

 private:
  using Entry = RowEntry<K>;

  Stripe<K>& StripeOf(uint64_t hash) const {
    return stripes_[StripeOfHash(hash, options_.stripes)];
  }
  template <typename F>
  void ForEachKey(const K* keys, const uint32_t* idx, size_t n, F&& f) const;
  void TouchEntry(Stripe<K>* stripe, const K& key, Entry* entry, Seq current);
  void TouchThese(const K* keys, const uint32_t* idx, size_t n, Seq current);
  uint64_t ResolveStripe(Stripe<K>* stripe, Seq n, bool committed,
                         Seq scanned_base);

  const TrackerOptions options_;
  const Decay decay_;
  const std::unique_ptr<Stripe<K>[]> stripes_;
  // Touched in the interval they name. An entry that was touched in the current
  // interval stays so until the next cut, whatever outcome arrives meanwhile.
  RecentBatches<K> recent_;

  // Serialises Cut, Resolve and the set-up calls.
  mutable std::mutex control_;
  std::atomic<Seq> pending_{0};     // being captured
  std::atomic<Seq> unresolved_{0};  // the same, until its outcome is applied
  std::atomic<Seq> current_{1};
  std::atomic<Seq> base_{0};
  std::atomic<Seq> replaced_{0};  // interval of the last MarkEverything
  std::atomic<uint64_t> accesses_{0};
  // Of the pending cut. Written before the first stripe becomes pending, read
  // under the lock of a stripe that is.
  double hot_threshold_ = 0;
  // Sequence << 32 | stripe that the drain is at: a thread left over from an
  // older cut can't move it.
  std::atomic<uint64_t> drain_{0};
};

extern template class GroupTracker<int64_t>;
extern template class GroupTracker<int32_t>;
extern template class GroupTracker<std::string>;

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_GROUP_TRACKER_H_

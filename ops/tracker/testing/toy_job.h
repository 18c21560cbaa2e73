// A training job in miniature: a coordinator, the shards of one group, its
// checkpoints, and an oracle: full copies of the tables taken at every cut.

#ifndef ADAPTCP_OPS_TRACKER_TESTING_TOY_JOB_H_
#define ADAPTCP_OPS_TRACKER_TESTING_TOY_JOB_H_

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/tracker/testing/toy_group.h"

namespace adaptcp {
namespace testing {

// What a job can do wrong with a base that was scanned beside training.
enum class ScanMistake {
  kNone,
  kUsedEarly,           // by a checkpoint cut before the scan ended
  kIncrementsDropped,   // all of them, not only those up to its start
  kClearedUpToHead,     // rows are clean that were written after its start
};

class ToyJob {
 public:
  static constexpr int kAll = -1;

  ToyJob(const TrackerOptions& options, size_t shards,
         ScanMistake mistake = ScanMistake::kNone)
      : options_(options), mistake_(mistake) {
    for (size_t i = 0; i < shards; ++i) AddShard();
  }

  // The first thing found wrong, empty if nothing.
  const std::string& violation() const { return violation_; }

  void Write(Key key, int tables, bool twice) {
    ShardOf(key).Write(key, tables, ++value_, twice);
  }
  void Remove(Key key, int tables) { ShardOf(key).Remove(key, tables); }
  void BeginLookup(Key key) {
    readings_.emplace_back(Index(key), ShardOf(key).BeginLookup(key));
  }
  // A table of one shard, or of all, is cleared and filled with new keys.
  // captured = false: what a pending cut needs could not be captured in time.
  void Replace(int tables, bool everywhere, Key first, size_t count,
               bool captured) {
    if (pending_ && !captured) pending_->given_up = true;
    ++value_;
    for (size_t s = 0; s < shards_.size(); ++s) {
      if (!everywhere && s != 0) continue;
      std::vector<Key> keys;
      for (Key key = first; keys.size() < count; ++key) {
        if (Index(key) == s) keys.push_back(key);
      }
      shards_[s]->Replace(tables, keys, value_, captured);
    }
  }
  // read = false: the keys were handed to a thread that has not read them yet.
  void BeginDrain(size_t shard, size_t rows, bool read) {
    if (!pending_) return;
    shard %= shards_.size();
    readings_.emplace_back(shard,
                           shards_[shard]->BeginDrain(pending_->n, rows, read));
  }
  void FinishReadings() {
    for (auto& [shard, reading] : readings_) shards_[shard]->Finish(reading);
    readings_.clear();
  }

  void Cut(CutKind kind, double threshold, Seq gap) {
    if (pending_) return;
    // Shards that missed the last outcome learn it from the next request.
    for (auto& shard : shards_) {
      Resolve(shard.get(), shard->tracker.pending_sequence(),
              last_committed_ == shard->tracker.pending_sequence(),
              last_scanned_base_);
    }
    const Seq n = sequence_ + gap;
    sequence_ = n + 1;
    for (auto& shard : shards_) {
      shard->DropCaptured();
      Check(shard->tracker.Cut({n, kind, threshold}));
      oracle_[n].insert(shard->rows.begin(), shard->rows.end());
    }
    const bool scanned =
        scan_ && (scan_->done || mistake_ == ScanMistake::kUsedEarly);
    pending_ = Pending{n, kind, kind == CutKind::kDelta && scanned, false};
    last_cut_ = n;
  }

  // A base without a cut, piece by piece.
  void BeginScan() {
    if (scan_ || last_cut_ == 0) return;
    scan_ = Scanned{last_cut_, std::make_shared<Rows>(), {}, false};
    scan_->cursors.resize(shards_.size());
  }
  void ContinueScan(size_t shard, size_t rows) {
    if (!scan_ || scan_->done) return;
    shard %= shards_.size();
    scan_->done = true;
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (i == shard && !shards_[i]->Scan(scan_->start, rows,
                                          &scan_->cursors[i].first,
                                          scan_->rows.get())) {
        scan_->cursors[i].second = true;
      }
      if (!scan_->cursors[i].second) scan_->done = false;
    }
  }

  // Whether the coordinator is to make the next cut a base.
  bool NeedsBase() const {
    return std::any_of(shards_.begin(), shards_.end(), [](const auto& shard) {
      return shard->tracker.NeedsBase();
    });
  }

  // told: the shard that hears of the outcome, kAll, or any other number: none.
  // outcome_known = false: the manifest exists, the coordinator can't tell and
  // goes on as after a failure.
  void Commit(int told, bool outcome_known = true) {
    if (!pending_) return;
    if (pending_->given_up) return Abandon(told);
    const Seq n = pending_->n;
    FinishReadings();  // drain threads are joined before segments are sealed
    auto increment = std::make_shared<Rows>();
    auto differential = std::make_shared<Rows>();
    for (auto& shard : shards_) {
      shard->DrainAll(n);
      if (shard->tracker.pending_sequence() == n &&
          shard->tracker.CountUncaptured(n) != 0) {
        Fail("rows left after the drain of " + std::to_string(n));
      }
      if (shard->double_captures != 0) Fail("a row was captured twice");
      if (shard->untracked_rows != 0) Fail("a row has no entry");
      increment->insert(shard->cold.begin(), shard->cold.end());
      differential->insert(shard->hot.begin(), shard->hot.end());
    }
    Head head{n, chain_.base, chain_.base_start, chain_.increments,
              differential};
    Seq scanned_base = 0;
    if (pending_->kind == CutKind::kBase) {
      head.base = increment;
      head.base_start = n;
      head.increments.clear();
      if (!differential->empty()) Fail("a base has hot rows");
    } else {
      if (pending_->scanned) {
        head.base = std::make_shared<Rows>(*scan_->rows);
        head.base_start = scanned_base = scan_->start;
        const Seq last = mistake_ == ScanMistake::kIncrementsDropped
                             ? n : scan_->start;
        auto& all = head.increments;
        all.erase(all.begin(),
                  std::find_if(all.begin(), all.end(), [&](const auto& one) {
                    return one.first > last;
                  }));
        if (mistake_ == ScanMistake::kClearedUpToHead) scanned_base = n - 1;
      }
      head.increments.emplace_back(n, increment);
    }
    heads_.push_back(head);
    if (heads_.size() > 3) heads_.erase(heads_.begin());
    CheckHead(head);
    const bool uses_up_scan = pending_->scanned || head.base_start == n;
    Finish(told, outcome_known, scanned_base);
    if (outcome_known) {
      chain_ = head;
      last_committed_ = n;
      last_scanned_base_ = scanned_base;
      if (uses_up_scan) scan_.reset();
    }
  }
  void Abandon(int told) {
    if (pending_) Finish(told, false);
  }

  void Restore(size_t which, size_t shards, size_t batch) {
    if (heads_.empty()) return;
    const Head head = heads_[which % heads_.size()];
    readings_.clear();
    shards_.clear();
    for (size_t i = 0; i < shards; ++i) {
      AddShard();
      Check(shards_[i]->tracker.Reset(sequence_, head.base_start));
    }
    pending_.reset();
    scan_.reset();
    last_committed_ = last_scanned_base_ = 0;
    chain_ = head;
    RestoreLevel(*head.differential, head.n, true, batch);
    for (size_t i = head.increments.size(); i-- > 0;) {
      RestoreLevel(*head.increments[i].second, head.n, false, batch);
    }
    if (head.base) RestoreLevel(*head.base, head.n, false, batch);
    Rows live;
    for (auto& shard : shards_) {
      shard->tracker.FinishRestore();
      live.insert(shard->rows.begin(), shard->rows.end());
      // Tombstones of the differential aside, of which there are none.
      if (shard->tracker.Stats().keys != shard->rows.size()) {
        Fail("entries and rows differ after a restore");
      }
    }
    if (live != oracle_[head.n]) Fail("restored tables differ from the cut");
  }

  void CheckHeads() {
    for (const Head& head : heads_) CheckHead(head);
  }

 private:
  using Object = std::shared_ptr<const Rows>;
  struct Head {
    Seq n = 0;
    Object base;
    Seq base_start = 0;
    std::vector<std::pair<Seq, Object>> increments;
    Object differential;
  };
  struct Pending {
    Seq n;
    CutKind kind;
    bool scanned;  // goes by the scanned base
    bool given_up;
  };
  struct Scanned {
    Seq start;
    std::shared_ptr<Rows> rows;
    std::vector<std::pair<ScanCursor, bool>> cursors;  // and whether at the end
    bool done;
  };

  void AddShard() { shards_.push_back(std::make_unique<ToyGroup>(options_)); }
  size_t Index(Key key) const { return key % shards_.size(); }
  ToyGroup& ShardOf(Key key) { return *shards_[Index(key)]; }
  void Fail(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }
  void Check(const Status& status) {
    if (!status.ok()) Fail(status.ToString());
  }

  void Resolve(ToyGroup* shard, Seq n, bool committed, Seq scanned_base) {
    Check(shard->tracker.Resolve(n, committed, scanned_base));
    // Messages are repeated.
    Check(shard->tracker.Resolve(n, committed, scanned_base));
  }
  void Finish(int told, bool committed, Seq scanned_base = 0) {
    const Seq n = pending_->n;
    pending_.reset();
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (told != kAll && static_cast<size_t>(told) != i) continue;
      Resolve(shards_[i].get(), n, committed, scanned_base);
    }
  }

  void CheckHead(const Head& head) {
    Rows merged;
    std::vector<Object> levels;
    if (head.base) levels.push_back(head.base);
    for (const auto& increment : head.increments) {
      levels.push_back(increment.second);
    }
    levels.push_back(head.differential);
    for (const Object& level : levels) {
      for (const auto& [key, row] : *level) {
        if (row.absent()) {
          merged.erase(key);
        } else {
          merged[key] = row;
        }
      }
    }
    if (merged != oracle_[head.n]) {
      Fail("checkpoint " + std::to_string(head.n) + " differs from its cut");
    }
  }

  void RestoreLevel(const Rows& level, Seq head, bool differential,
                    size_t batch) {
    for (size_t s = 0; s < shards_.size(); ++s) {
      std::vector<Key> keys;
      std::vector<Row> rows;
      std::vector<uint8_t> tombstones;
      for (const auto& [key, row] : level) {
        if (Index(key) != s) continue;
        keys.push_back(key);
        rows.push_back(row);
        tombstones.push_back(row.absent());
      }
      std::vector<uint8_t> fresh(keys.size());
      for (size_t i = 0; i < keys.size(); i += batch) {
        Check(shards_[s]->tracker.RestoreRows(
            &keys[i], std::min(batch, keys.size() - i), &tombstones[i],
            nullptr, head, differential, &fresh[i]));
      }
      for (size_t i = 0; i < keys.size(); ++i) {
        if (fresh[i] && !tombstones[i]) shards_[s]->rows[keys[i]] = rows[i];
      }
    }
  }

  const TrackerOptions options_;
  const ScanMistake mistake_;
  std::vector<std::unique_ptr<ToyGroup>> shards_;
  std::vector<std::pair<size_t, ToyGroup::Reading>> readings_;
  int value_ = 0;
  Seq sequence_ = 1;
  std::optional<Pending> pending_;
  Seq last_cut_ = 0;
  Seq last_committed_ = 0;
  Seq last_scanned_base_ = 0;  // of the last committed, 0 if it has none
  std::optional<Scanned> scan_;
  Head chain_;
  std::vector<Head> heads_;  // those that are retained
  std::map<Seq, Rows> oracle_;
  std::string violation_;
};

}  // namespace testing
}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_TESTING_TOY_JOB_H_

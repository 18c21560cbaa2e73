// A group of two toy tables on one parameter server, with its tracker: what the
// kernels do, in a form a test can hold in its hand. Single-threaded.

#ifndef ADAPTCP_OPS_TRACKER_TESTING_TOY_GROUP_H_
#define ADAPTCP_OPS_TRACKER_TESTING_TOY_GROUP_H_

#include <cstdint>
#include <map>
#include <vector>

#include "ops/tracker/group_tracker.h"

namespace adaptcp {
namespace testing {

using Key = int64_t;

// A parameter and its slot, 0 where the table lacks the key.
struct Row {
  int parameter = 0;
  int slot = 0;
  bool operator==(const Row& o) const {
    return parameter == o.parameter && slot == o.slot;
  }
  bool absent() const { return parameter == 0 && slot == 0; }
};

using Rows = std::map<Key, Row>;  // without absent rows, unless tombstones

// Which table an operation concerns: 1 the parameter, 2 the slot, 3 both.
class ToyGroup {
 public:
  explicit ToyGroup(const TrackerOptions& options) : tracker(options) {}

  void Write(Key key, int tables, int value, bool twice) {
    // One op per table, as in training: the second sees the same keys again.
    const std::vector<Key> keys(twice ? 2 : 1, key);
    if (tables & 1) {
      BeforeWrite(keys);
      rows[key].parameter = value;
    }
    if (tables & 2) {
      BeforeWrite(keys);
      rows[key].slot = -value;
    }
  }

  // Removing what isn't there does nothing, like the tables. A key without a row
  // is touched all the same if it has an entry, as an op can't tell.
  void Remove(Key key, int tables) {
    const Row row = Read(key);
    const bool there = ((tables & 1) && row.parameter != 0) ||
                       ((tables & 2) && row.slot != 0);
    std::vector<uint32_t> known;
    tracker.FindKnown(&key, 1, &known);
    if (known.empty()) {
      untracked_rows += there;
      return;
    }
    BeforeWrite({key});
    if (tables & 1) rows[key].parameter = 0;
    if (tables & 2) rows[key].slot = 0;
    if (rows[key].absent()) rows.erase(key);
  }

  // Clears tables, then fills them with `keys`. What a pending cut needs is
  // captured before, unless `capture` is false: it must be abandoned then.
  void Replace(int tables, const std::vector<Key>& keys, int value,
               bool capture) {
    const Seq n = tracker.pending_sequence();
    IndexCursor cursor;
    Reading reading;
    reading.n = n;
    while (capture && tracker.NextUnclaimed(n, &cursor, 2, &reading.keys)) {
      Finish(reading);
    }
    for (auto row = rows.begin(); row != rows.end();) {
      if (tables & 1) row->second.parameter = 0;
      if (tables & 2) row->second.slot = 0;
      row = row->second.absent() ? rows.erase(row) : std::next(row);
    }
    for (Key key : keys) {
      if (tables & 1) rows[key].parameter = value;
      if (tables & 2) rows[key].slot = -value;
    }
    tracker.MarkEverything();
    tracker.Touch(keys.data(), keys.size());
  }

  // A lookup or a drain thread, in two steps with anything in between: rows
  // that were read for cut `n`, and later their claim. Without rows: keys that
  // were handed out, to be read and claimed later.
  struct Reading {
    Seq n = 0;
    std::vector<Key> keys;
    std::vector<Row> rows;
  };
  Reading BeginLookup(Key key) {
    Reading reading;
    std::vector<uint32_t> need;
    tracker.RecordAccesses(&key, 1);
    reading.n = tracker.CollectUncaptured(&key, 1, &need);
    for (uint32_t i : need) {
      reading.keys.push_back((&key)[i]);
      reading.rows.push_back(Read(key));
    }
    return reading;
  }
  Reading BeginDrain(Seq n, size_t max_keys, bool read = true) {
    Reading reading;
    reading.n = n;
    tracker.NextPending(n, max_keys, &reading.keys);
    if (read) ReadAll(&reading);
    return reading;
  }
  void Finish(Reading reading) {
    if (reading.rows.empty()) ReadAll(&reading);
    Publish(reading.n, reading.keys, nullptr, reading.rows);
  }
  void DrainAll(Seq n) {
    for (;;) {
      const Reading reading = BeginDrain(n, 3);
      if (reading.keys.empty()) return;
      Finish(reading);
    }
  }

  // Reads some rows into `base`; false at the end.
  bool Scan(Seq start, size_t max_keys, ScanCursor* cursor, Rows* base) const {
    std::vector<Key> keys;
    std::vector<float> p;
    const bool more = tracker.Scan(start, max_keys, cursor, &keys, &p);
    for (Key key : keys) {
      const Row row = Read(key);
      if (!row.absent()) (*base)[key] = row;
    }
    return more;
  }

  void DropCaptured() {
    cold.clear();
    hot.clear();
  }

  GroupTracker<Key> tracker;
  Rows rows;        // the live tables
  Rows cold, hot;   // captured for the pending cut
  int double_captures = 0;
  int untracked_rows = 0;

 private:
  void ReadAll(Reading* reading) const {
    for (Key key : reading->keys) reading->rows.push_back(Read(key));
  }
  Row Read(Key key) const {
    const auto it = rows.find(key);
    return it == rows.end() ? Row() : it->second;
  }

  void BeforeWrite(const std::vector<Key>& keys) {
    std::vector<uint32_t> need;
    const Seq n = tracker.TouchOrCollect(keys.data(), keys.size(), &need);
    if (need.empty()) return;
    std::vector<Row> read;
    for (uint32_t i : need) read.push_back(Read(keys[i]));
    Publish(n, keys, &need, read);
    tracker.TouchCollected(keys.data(), keys.size(), need);
  }

  void Publish(Seq n, const std::vector<Key>& keys,
               const std::vector<uint32_t>* idx, const std::vector<Row>& read) {
    std::vector<uint8_t> absent;
    for (const Row& row : read) absent.push_back(row.absent());
    std::vector<RowClass> classes(read.size());
    tracker.Claim(n, keys.data(), idx ? idx->data() : nullptr, read.size(),
                  absent.data(), classes.data(), nullptr);
    for (size_t j = 0; j < read.size(); ++j) {
      if (classes[j] == RowClass::kLost) continue;
      const Key key = keys[idx ? (*idx)[j] : j];
      double_captures += cold.count(key) + hot.count(key);
      (classes[j] == RowClass::kHot ? hot : cold)[key] = read[j];
    }
  }
};

}  // namespace testing
}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_TESTING_TOY_GROUP_H_

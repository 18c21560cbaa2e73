// What race_test.cc captures from and into: columns that lock each key by
// itself, as TFRA's tables do, and what was published for a cut.

#ifndef ADAPTCP_OPS_TRACKER_TESTING_RACE_TABLES_H_
#define ADAPTCP_OPS_TRACKER_TESTING_RACE_TABLES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ops/tracker/group_tracker.h"
#include "ops/tracker/spin_lock.h"

namespace adaptcp {
namespace testing {

using Key = int64_t;
using Values = std::pair<int64_t, int64_t>;  // 0: the column lacks the key
using Rows = std::map<Key, Values>;

// Any thread.
class Column {
 public:
  explicit Column(Key keys) : keys_(keys), cells_(new Cell[keys]) {}

  int64_t Read(Key key) const {
    std::lock_guard<SpinLock> hold(cells_[key].lock);
    return cells_[key].value;
  }
  void Write(Key key, int64_t value) {
    std::lock_guard<SpinLock> hold(cells_[key].lock);
    cells_[key].value = value;
  }
  void Clear() {
    for (Key key = 0; key < keys_; ++key) Write(key, 0);
  }

 private:
  struct Cell {
    SpinLock lock;
    int64_t value = 0;
  };
  const Key keys_;
  const std::unique_ptr<Cell[]> cells_;
};

// Any thread may publish; the rows are read when all have been joined.
class Sink {
 public:
  void Publish(Key key, RowClass c, const Values& row) {
    std::lock_guard<std::mutex> hold(mutex_);
    const bool is_new = cold.count(key) + hot.count(key) == 0;
    EXPECT_TRUE(is_new) << "row " << key << " was captured twice";
    (c == RowClass::kHot ? hot : cold)[key] = row;
  }
  Rows cold, hot;

 private:
  std::mutex mutex_;
};

// Lays a level of a checkpoint over those below.
inline void Merge(const Rows& level, Rows* state) {
  for (const auto& [key, row] : level) {
    if (row == Values()) {
      state->erase(key);
    } else {
      (*state)[key] = row;
    }
  }
}

}  // namespace testing
}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_TESTING_RACE_TABLES_H_

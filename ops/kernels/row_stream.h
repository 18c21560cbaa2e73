// Rows of a restore on their way out of this process: pieces of objects that a
// graph takes one after another and routes to the shards they belong to now.

#ifndef ADAPTCP_OPS_KERNELS_ROW_STREAM_H_
#define ADAPTCP_OPS_KERNELS_ROW_STREAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ops/io/local/object_readers.h"
#include "ops/kernels/segment_source.h"

namespace adaptcp {

// Thread-safe. Holds the pieces that were given a number until they are taken,
// at most one for each loop of the graph.
class RowStream {
 public:
  explicit RowStream(std::shared_ptr<ObjectReaders> readers)
      : readers_(std::move(readers)) {}

  // Blocks until there is a piece of that level. *group: which of the groups
  // asked for it has rows of, -1: the level has no more.
  Status Next(size_t level, int32_t* group, int64_t* number) {
    ObjectReaders::Piece piece;
    ADAPTCP_RETURN_IF_ERROR(readers_->Next(level, &piece));
    *group = -1;
    *number = 0;
    if (piece.object() == nullptr) return Status::Ok();
    const auto& object = static_cast<const SegmentObject&>(*piece.object());
    *group = static_cast<int32_t>(object.rows(piece.index()).group);
    std::lock_guard<std::mutex> lock(mu_);
    *number = ++last_;
    pieces_.emplace(last_, std::move(piece));
    return Status::Ok();
  }

  // Each once.
  Status Take(int64_t number, ObjectReaders::Piece* piece) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = pieces_.find(number);
    if (found == pieces_.end()) {
      return Status::NotFound("no piece " + std::to_string(number) +
                              " of rows waits to be routed");
    }
    *piece = std::move(found->second);
    pieces_.erase(found);
    return Status::Ok();
  }

 private:
  const std::shared_ptr<ObjectReaders> readers_;
  std::mutex mu_;  // guards what follows
  std::map<int64_t, ObjectReaders::Piece> pieces_;
  int64_t last_ = 0;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_ROW_STREAM_H_

// Segments held in memory after every checksum in them was verified: a restore
// reads each object once, and applies nothing of a file that is not whole.

#ifndef ADAPTCP_OPS_KERNELS_SEGMENT_SOURCE_H_
#define ADAPTCP_OPS_KERNELS_SEGMENT_SOURCE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ops/format/segment_reader.h"
#include "ops/io/local/object_readers.h"
#include "ops/io/local/range_buffer.h"
#include "ops/kernels/tf_util.h"

namespace adaptcp {

// Immutable once opened; any thread may read it. Memory: about the file's size.
class OpenedSegment {
 public:
  // object: {path, bytes, crc32c, kind, rows: {group: n}} as in the manifest,
  // with which the file must agree; so must what it holds with specs, {groups:
  // {group: {key_dtype, tables: [{name, dtype, dim}]}}, dense: {variable:
  // {dtype, shape}}}, unless that is null. Blocks as the source does. DataLoss
  // naming file and offset if it does not.
  static Status Open(const Json& object, const Json& specs,
                     std::unique_ptr<ByteSource> source,
                     std::unique_ptr<OpenedSegment>* out);

  const SegmentHeader& header() const { return header_; }
  const std::vector<std::unique_ptr<SegmentBlock>>& blocks() const {
    return blocks_;
  }
  // Row blocks of every shard of a group that the file has.
  std::vector<const RowBlockView*> BlocksOf(const std::string& group) const;

 private:
  SegmentHeader header_;
  std::vector<std::unique_ptr<SegmentBlock>> blocks_;
};

// What the objects of a request have in common.
struct ReadRequest {
  Json specs;
  // Groups whose rows are wanted; a piece is about piece_bytes of one of them,
  // 0: one block.
  std::vector<std::string> groups;
  size_t piece_bytes = 0;
  // False: one piece, the segment as a whole.
  bool by_rows = false;
  // How long a store may fail before a read of it does.
  std::chrono::milliseconds patience{60000};
};

// An object that ObjectReaders reads: a local one in one go, a remote one in
// ranges, each of which is tried again while the store fails.
class SegmentObject final : public ReadableObject {
 public:
  // Row blocks of one group, of any of its shards.
  struct Rows {
    size_t group = 0;  // in ReadRequest::groups
    std::vector<const RowBlockView*> blocks;
  };

  SegmentObject(Json object, std::shared_ptr<const ReadRequest> request);

  const std::string& name() const override { return path_; }
  uint64_t memory_bytes() const override;
  size_t parts() const override {
    return ranges_ == nullptr ? 1 : ranges_->ranges();
  }
  uint64_t part_bytes(size_t part) const override;
  Status Read(size_t part, const StopFlag& stop) override;
  Status Finish(size_t* pieces) override;

  // After Finish.
  const OpenedSegment& segment() const { return *segment_; }
  const Rows& rows(size_t piece) const { return rows_[piece]; }
  const GroupSpec& spec(const RowBlockView& block) const {
    return segment_->header().groups[block.group_index()];
  }

 private:
  Status ReadRange(size_t part) const;
  Status Parse(std::unique_ptr<ByteSource> source);

  const Json object_;
  const std::shared_ptr<const ReadRequest> request_;
  const std::string path_;
  const uint64_t bytes_;
  uint64_t range_bytes_ = 0;
  std::unique_ptr<RangeBuffer> ranges_;  // of a remote one, until it is parsed
  std::unique_ptr<OpenedSegment> segment_;
  std::vector<Rows> rows_;
};

// Begins to read the objects of levels [{objects: [...]}] for a request {specs,
// limits: {threads, memory_bytes, timeout_ms, patience_ms}}, any limit of which
// may be missing or 0: as much as is good. `read` says what is wanted of them;
// specs and patience are filled in.
std::shared_ptr<ObjectReaders> StartReaders(const Json& request,
                                            const Json& levels,
                                            ReadRequest read);

// One object alone, its ranges in parallel. request: {object, specs, limits}.
Status ReadSegment(const Json& request, std::shared_ptr<SegmentObject>* out);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_SEGMENT_SOURCE_H_

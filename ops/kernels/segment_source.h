// A segment held in memory after every checksum in it was verified: a restore
// reads each object once, and applies nothing of a file that is not whole.

#ifndef ADAPTCP_OPS_KERNELS_SEGMENT_SOURCE_H_
#define ADAPTCP_OPS_KERNELS_SEGMENT_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "ops/format/segment_reader.h"
#include "ops/kernels/tf_util.h"

namespace adaptcp {

// Immutable once opened; any thread may read it. Memory: about the file's size.
class OpenedSegment {
 public:
  // object: {path, bytes, crc32c, kind, rows: {group: n}} as in the manifest,
  // with which the file must agree; so must what it holds with specs, {groups:
  // {group: {key_dtype, tables: [{name, dtype, dim}]}}, dense: {variable: {dtype,
  // shape}}}, unless that is null. Blocks as the store does. DataLoss naming file
  // and offset if it does not, NotFound if it is not there.
  static Status Open(const Json& object, const Json& specs,
                     std::unique_ptr<OpenedSegment>* out);
  // The `object` and `specs` of a request.
  static Status Open(const Json& request, std::unique_ptr<OpenedSegment>* out) {
    return Open(request.value("object", Json::object()),
                request.value("specs", Json()), out);
  }

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

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_SEGMENT_SOURCE_H_

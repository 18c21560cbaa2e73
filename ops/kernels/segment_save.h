// The writing end of a save: takes captured batches out of the pipeline,
// gathers them in blocks, writes the blocks into segments.

#ifndef ADAPTCP_OPS_KERNELS_SEGMENT_SAVE_H_
#define ADAPTCP_OPS_KERNELS_SEGMENT_SAVE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/format/segment_files.h"
#include "ops/kernels/group.h"
#include "ops/kernels/save_pipeline.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/tensor.h"

namespace adaptcp {

// One thread at a time; blocks as the store does.
class SegmentSave {
 public:
  // request: {directory, run, generation, sequence, ps, kind: base|delta,
  // segment_bytes, block_bytes, quantization: {group: [[method, bits] per
  // table]}}; groups that are not there are written as they are. Rows are
  // quantised by the thread that calls Add.
  static Status Create(const Json& request,
                       const std::vector<std::unique_ptr<Group>>& groups,
                       std::unique_ptr<SegmentSave>* save);

  Status Add(const CapturedBatch& batch);
  // `slices`: [{name, shape, offset}] in the order of `tensors`.
  Status AddDense(const Json& slices,
                  const std::vector<tensorflow::Tensor>& tensors);
  // Finishes all files; *objects: [{path, kind, bytes, crc32c, rows,
  // tombstones, dense}].
  Status Finish(Json* objects);

  uint64_t bytes() const;
  // Of the blocks of rows so far: {group: bytes}.
  const std::map<std::string, uint64_t>& row_bytes() const {
    return row_bytes_;
  }

 private:
  struct Output {
    SegmentKind kind;
    std::unique_ptr<SegmentFiles> files;
    std::vector<std::unique_ptr<RowBlockBuilder>> builders;  // by group
  };

  SegmentSave() = default;
  Status Flush(Output* output, size_t group);

  size_t block_bytes_ = 0;
  Output cold_, hot_;
  std::unique_ptr<SegmentFiles> dense_;
  EncodedBlock block_;  // reused
  std::vector<std::string> names_;  // of the groups
  std::map<std::string, uint64_t> row_bytes_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_SEGMENT_SAVE_H_

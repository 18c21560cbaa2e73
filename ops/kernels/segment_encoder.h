// Rows to blocks, blocks to segments: one thread of the writing end of a save.

#ifndef ADAPTCP_OPS_KERNELS_SEGMENT_ENCODER_H_
#define ADAPTCP_OPS_KERNELS_SEGMENT_ENCODER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/format/row_block.h"
#include "ops/format/segment_files.h"
#include "ops/io/local/save_pipeline.h"
#include "ops/io/local/segment_transfer.h"
#include "ops/kernels/group.h"
#include "ops/kernels/save_options.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/tensor.h"

namespace adaptcp {

// What the encoders of one save have in common. Thread-safe.
class SegmentPlan {
 public:
  // request: {directory, run, generation, sequence, ps, kind: base|delta,
  // quantization: {group: [[method, bits] per table]}}; groups that are not there
  // are written as they are. `transfer` has to outlive the plan.
  static Status Create(const Json& request, const SaveOptions& options,
                       const std::vector<std::unique_ptr<Group>>& groups,
                       SegmentTransfer* transfer,
                       std::unique_ptr<SegmentPlan>* plan);

  SegmentKind cold_kind() const {
    return base_ ? SegmentKind::kBase : SegmentKind::kIncrement;
  }
  // The files of one encoder, of one kind: <directory>/<kind>-ps<i>-<k>.seg, the
  // encoders taking the numbers as they need them.
  std::unique_ptr<SegmentFiles> Files(SegmentKind kind);
  // By group, for one encoder and kind.
  std::vector<std::unique_ptr<RowBlockBuilder>> Builders() const;

  const std::vector<GroupSpec>& groups() const { return header_.groups; }
  size_t block_bytes() const { return block_bytes_; }
  SegmentTransfer* transfer() const { return transfer_; }

 private:
  SegmentPlan() = default;

  SegmentHeader header_;  // but for its kind
  std::string directory_;
  uint64_t segment_bytes_ = 0;
  size_t block_bytes_ = 0;
  bool base_ = false;
  std::vector<std::vector<Quantization>> quantization_;
  SegmentTransfer* transfer_ = nullptr;
  std::map<SegmentKind, std::atomic<int>> next_;
};

// One thread at a time; blocks as the store does. Rows are quantised here.
class SegmentEncoder {
 public:
  explicit SegmentEncoder(SegmentPlan* plan) : plan_(plan) {}

  Status Add(const CapturedBatch& batch);
  // `slices`: [{name, shape, offset}] in the order of `tensors`.
  Status AddDense(const Json& slices,
                  const std::vector<tensorflow::Tensor>& tensors);
  // To be called now and then by an encoder that has nothing to do: others may
  // wait for the room that its open files take.
  Status MakeRoom();
  // Finishes all files; appends to *objects: [{path, kind, bytes, crc32c, rows,
  // tombstones, dense}]. They are durable when the transfer says so.
  Status Finish(Json* objects);

  // Of the blocks of rows so far: {group: bytes}.
  const std::map<std::string, uint64_t>& row_bytes() const {
    return row_bytes_;
  }

 private:
  struct Output {
    std::unique_ptr<SegmentFiles> files;  // null: nothing of the kind yet
    std::vector<std::unique_ptr<RowBlockBuilder>> builders;  // by group
  };

  void Open(SegmentKind kind);
  Status Flush(Output* output, size_t group);
  Status FlushFullest();
  Status Append(Output* output);
  Status SealAll();

  SegmentPlan* const plan_;
  std::map<SegmentKind, Output> outputs_;
  EncodedBlock block_;  // reused
  std::map<std::string, uint64_t> row_bytes_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_SEGMENT_ENCODER_H_

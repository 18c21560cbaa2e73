// 'D' records: a slice of a dense tensor. Large tensors are cut into several,
// so that no reader or writer needs more memory than a block.

#ifndef ADAPTCP_OPS_FORMAT_DENSE_BLOCK_H_
#define ADAPTCP_OPS_FORMAT_DENSE_BLOCK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/format/block.h"
#include "ops/util/status.h"

namespace adaptcp {

// Which part of which tensor. offset + slice_shape <= shape in each dimension.
struct DenseSlice {
  std::string name;
  DType dtype = DType::kInvalid;
  std::vector<uint64_t> shape;  // of the whole tensor; {} for a scalar
  std::vector<uint64_t> offset;
  std::vector<uint64_t> slice_shape;

  // The slice that is the whole tensor.
  static DenseSlice Whole(std::string name, DType dtype,
                          std::vector<uint64_t> shape);
  uint64_t elements() const;  // of the slice; 1 for a scalar

  bool operator==(const DenseSlice& other) const;
};

// Cuts `slice` along its first dimensions into parts of at most max_bytes each
// (at least one element each), which are contiguous in it, in order.
// max_bytes >= 1; strings count 16 bytes an element.
std::vector<DenseSlice> SplitSlice(const DenseSlice& slice,
                                   uint64_t max_bytes);

// `data`: the slice's elements, row-major, `bytes` long. Any thread.
// InvalidArgument if the slice doesn't fit its tensor or the data the slice.
Status EncodeDenseBlock(const DenseSlice& slice, const void* data,
                        uint64_t bytes, EncodedBlock* block);
// For DType::kString; `data` has slice.elements() elements.
Status EncodeStringDenseBlock(const DenseSlice& slice,
                              const std::vector<std::string_view>& data,
                              EncodedBlock* block);

// Points into the record it was parsed from.
struct DenseBlockView {
  DenseSlice slice;
  std::string_view data;                  // not for strings; 8-byte aligned
  std::vector<std::string_view> strings;  // strings only

  // As RowBlockView::Parse.
  static Status Parse(std::string_view record, DenseBlockView* view);
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_DENSE_BLOCK_H_

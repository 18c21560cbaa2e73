// Rows on their way from a segment into the tables of a group.

#ifndef ADAPTCP_OPS_KERNELS_RESTORED_ROWS_H_
#define ADAPTCP_OPS_KERNELS_RESTORED_ROWS_H_

#include <cstdint>
#include <vector>

#include "ops/format/row_block_view.h"
#include "ops/format/segment_header.h"
#include "tensorflow/core/framework/tensor.h"

namespace adaptcp {

// What a restore applies: rows of one group, in the layout of the ops.
struct RestoredRows {
  tensorflow::Tensor keys;                  // [n]
  std::vector<float> p;                     // [n]
  std::vector<uint8_t> present;             // [tables * n], table by table
  std::vector<tensorflow::Tensor> values;   // per table [n, dim]
};

// Turns parsed blocks of a group into the tensors that RestoreRows and the
// PieceRows op use.
void BlocksToRows(const GroupSpec& spec,
                  const std::vector<const RowBlockView*>& blocks,
                  RestoredRows* rows);

// Copies the keys of a block into `keys`, from its element `row` on.
void CopyKeys(DType dtype, const RowBlockView& block, int64_t row,
              tensorflow::Tensor* keys);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_RESTORED_ROWS_H_

// Rows of one group between their capture and their encoding.

#ifndef ADAPTCP_OPS_KERNELS_CAPTURED_ROWS_H_
#define ADAPTCP_OPS_KERNELS_CAPTURED_ROWS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/format/row_block.h"
#include "ops/io/local/save_pipeline.h"
#include "ops/tracker/key_hash.h"
#include "tensorflow/core/framework/tensor.h"

namespace adaptcp {

// The row of a table as RowBlockBuilder wants it. Strings need a detour through
// views, which `views` holds.
inline const void* ValuePointer(const tensorflow::Tensor& values,
                                std::vector<std::string_view>* views) {
  if (values.dtype() != tensorflow::DT_STRING) return values.data();
  const auto flat = values.flat<tensorflow::tstring>();
  views->reserve(flat.size());
  for (int64_t i = 0; i < flat.size(); ++i) {
    views->emplace_back(flat(i).data(), flat(i).size());
  }
  return views->data();
}

template <typename K>
class CapturedRows final : public CapturedBatch {
 public:
  uint32_t group_index() const override { return index; }
  size_t rows() const override { return cold.size() + hot.size(); }

  size_t string_bytes() const override {
    size_t bytes = 0;
    for (const K& key : keys) bytes += KeyHeapBytes(key);
    for (const tensorflow::Tensor& table : values) {
      if (table.dtype() != tensorflow::DT_STRING) continue;
      const auto flat = table.flat<tensorflow::tstring>();
      for (int64_t i = 0; i < flat.size(); ++i) bytes += flat(i).size();
    }
    return bytes;
  }

  Status AppendTo(RowBlockBuilder* cold_rows,
                  RowBlockBuilder* hot_rows) const override {
    RowBatch batch;
    batch.keys = keys.data();
    batch.p = p.data();
    std::vector<std::vector<std::string_view>> views(values.size());
    for (size_t t = 0; t < values.size(); ++t) {
      batch.present.push_back(present[t].data());
      batch.values.push_back(ValuePointer(values[t], &views[t]));
    }
    ADAPTCP_RETURN_IF_ERROR(
        cold_rows->Append(batch, cold.data(), cold.size()));
    return hot_rows->Append(batch, hot.data(), hot.size());
  }

  uint32_t index = 0;
  std::vector<K> keys;
  std::vector<float> p;
  std::vector<std::vector<uint8_t>> present;  // by table
  std::vector<tensorflow::Tensor> values;             // by table, [n, dim]
  std::vector<uint32_t> cold, hot;            // rows that were claimed
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_CAPTURED_ROWS_H_

#include "ops/kernels/restored_rows.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace adaptcp {

namespace tf = tensorflow;

namespace {

// The values of table t, to rows from `row` on, those of absent rows being zeros.
void CopyValues(const RowBlockView& block, size_t t, const TableSpec& spec,
                const uint8_t* present, int64_t row, tf::Tensor* values) {
  const int64_t n = block.rows(), dim = spec.dim;
  if (spec.dtype == DType::kString) {
    auto flat = values->flat<tf::tstring>();
    size_t next = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t d = 0; present[i] && d < dim; ++d) {
        const std::string_view value = block.string_values(t)[next++];
        flat((row + i) * dim + d).assign(value.data(), value.size());
      }
    }
    return;
  }
  const size_t bytes = dim * DTypeSize(spec.dtype);
  char* const to = static_cast<char*>(values->data()) + row * bytes;
  block.ReadValues(t, to);
  // They stand at the front; from the last on, each goes where it belongs.
  size_t left = block.present_rows(t);
  for (int64_t i = n - 1; i >= 0 && left <= static_cast<size_t>(i); --i) {
    if (present[i]) {
      std::memcpy(to + i * bytes, to + --left * bytes, bytes);
    } else {
      std::memset(to + i * bytes, 0, bytes);
    }
  }
}

}  // namespace

void CopyKeys(DType dtype, const RowBlockView& block, int64_t row,
              tf::Tensor* keys) {
  const int64_t n = block.rows();
  switch (dtype) {
    case DType::kInt64:
      std::copy_n(block.int64_keys(), n, keys->flat<int64_t>().data() + row);
      return;
    case DType::kInt32:
      std::copy_n(block.int32_keys(), n, keys->flat<int32_t>().data() + row);
      return;
    default: {
      auto flat = keys->flat<tf::tstring>();
      for (const std::string_view key : block.string_keys()) {
        flat(row++).assign(key.data(), key.size());
      }
    }
  }
}

void BlocksToRows(const GroupSpec& spec,
                  const std::vector<const RowBlockView*>& blocks,
                  RestoredRows* rows) {
  int64_t n = 0;
  for (const RowBlockView* block : blocks) n += block->rows();
  rows->keys = tf::Tensor(
      static_cast<tf::DataType>(static_cast<int>(spec.key_dtype)), {n});
  rows->p.resize(n);
  rows->present.resize(spec.tables.size() * n);
  for (const TableSpec& table : spec.tables) {
    rows->values.emplace_back(
        static_cast<tf::DataType>(static_cast<int>(table.dtype)),
        tf::TensorShape({n, static_cast<int64_t>(table.dim)}));
  }
  int64_t row = 0;
  for (const RowBlockView* block : blocks) {
    CopyKeys(spec.key_dtype, *block, row, &rows->keys);
    std::copy_n(block->p(), block->rows(), rows->p.begin() + row);
    for (size_t t = 0; t < spec.tables.size(); ++t) {
      uint8_t* const present = rows->present.data() + t * n + row;
      for (size_t i = 0; i < block->rows(); ++i) {
        present[i] = block->present(t, i);
      }
      CopyValues(*block, t, spec.tables[t], present, row, &rows->values[t]);
    }
    row += block->rows();
  }
}

}  // namespace adaptcp

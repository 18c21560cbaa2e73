#include "ops/kernels/restored_rows.h"

#include <cstring>
#include <string_view>
#include <utility>

namespace adaptcp {

namespace tf = tensorflow;

Status BlockToRows(const GroupSpec& spec, const RowBlockView& block,
                   RestoredRows* rows) {
  const int64_t n = block.rows();
  const auto key_dtype =
      static_cast<tf::DataType>(static_cast<int>(spec.key_dtype));
  rows->keys = tf::Tensor(key_dtype, {n});
  switch (spec.key_dtype) {
    case DType::kInt64:
      std::memcpy(rows->keys.data(), block.int64_keys(), n * sizeof(int64_t));
      break;
    case DType::kInt32:
      std::memcpy(rows->keys.data(), block.int32_keys(), n * sizeof(int32_t));
      break;
    default: {
      auto flat = rows->keys.flat<tf::tstring>();
      for (int64_t i = 0; i < n; ++i) {
        const std::string_view key = block.string_keys()[i];
        flat(i).assign(key.data(), key.size());
      }
    }
  }
  rows->p.assign(block.p(), block.p() + n);
  rows->present.resize(spec.tables.size() * n);
  for (size_t t = 0; t < spec.tables.size(); ++t) {
    const int64_t dim = spec.tables[t].dim;
    const auto dtype =
        static_cast<tf::DataType>(static_cast<int>(spec.tables[t].dtype));
    tf::Tensor values(dtype, {n, dim});
    uint8_t* present = rows->present.data() + t * n;
    for (int64_t i = 0; i < n; ++i) present[i] = block.present(t, i);
    if (dtype == tf::DT_STRING) {
      auto flat = values.flat<tf::tstring>();
      size_t next = 0;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t d = 0; present[i] && d < dim; ++d) {
          const std::string_view value = block.string_values(t)[next++];
          flat(i * dim + d).assign(value.data(), value.size());
        }
      }
    } else {
      const size_t bytes = dim * DTypeSize(spec.tables[t].dtype);
      char* const to = static_cast<char*>(values.data());
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
    rows->values.push_back(std::move(values));
  }
  return Status::Ok();
}

}  // namespace adaptcp

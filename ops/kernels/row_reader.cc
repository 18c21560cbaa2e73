#include "ops/kernels/row_reader.h"

#include <cstring>

#include "ops/kernels/tf_util.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

// The default row made of marker A (which = 0) or B (1).
tf::Tensor Marker(tf::DataType dtype, const tf::TensorShape& row, int which) {
  tf::Tensor marker(dtype, row);
  if (dtype == tf::DT_STRING) {
    marker.flat<tf::tstring>().setConstant(which == 0 ? "\x01 absent a"
                                                      : "\x01 absent b");
  } else {
    // A bool may hold nothing but 0 and 1.
    const int byte = dtype == tf::DT_BOOL ? which : which == 0 ? 0x5a : 0xa5;
    std::memset(marker.data(), byte, marker.TotalBytes());
  }
  return marker;
}

// Calls found(i) for each row i of values [n, dim] that is the marker.
template <typename F>
void ForEachMarker(const tf::Tensor& values, const tf::Tensor& marker,
                   const F& found) {
  const int64_t n = values.dim_size(0);
  const int64_t dim = marker.NumElements();
  if (values.dtype() == tf::DT_STRING) {
    const auto rows = values.flat<tf::tstring>();
    const auto want = marker.flat<tf::tstring>();
    for (int64_t i = 0; i < n; ++i) {
      int64_t d = 0;
      while (d < dim && rows(i * dim + d) == want(d)) ++d;
      if (d == dim) found(i);
    }
    return;
  }
  const size_t bytes = marker.TotalBytes();
  const char* row = static_cast<const char*>(values.data());
  const char* const want = static_cast<const char*>(marker.data());
  for (int64_t i = 0; i < n; ++i, row += bytes) {
    // The first byte tells nearly all.
    if (bytes == 0 || (*row == *want && std::memcmp(row, want, bytes) == 0)) {
      found(i);
    }
  }
}

Status Find(tf::OpKernelContext* ctx, tf::lookup::LookupInterface* table,
            const tf::Tensor& keys, const tf::Tensor& marker,
            tf::Tensor* values) {
  tf::TensorShape shape({keys.NumElements()});
  shape.AppendShape(table->value_shape());
  *values = tf::Tensor(table->value_dtype(), shape);
  return FromTensorFlow(table->Find(ctx, keys, values, marker));
}

}  // namespace

Status ReadRows(tf::OpKernelContext* ctx, tf::lookup::LookupInterface* table,
                const tf::Tensor& keys, tf::Tensor* values,
                std::vector<uint8_t>* present) {
  const int64_t n = keys.NumElements();
  const tf::Tensor a = Marker(table->value_dtype(), table->value_shape(), 0);
  ADAPTCP_RETURN_IF_ERROR(Find(ctx, table, keys, a, values));
  present->assign(n, 1);
  std::vector<uint32_t> doubtful;
  ForEachMarker(*values, a, [&](int64_t i) { doubtful.push_back(i); });
  if (doubtful.empty()) return Status::Ok();
  const tf::Tensor b = Marker(table->value_dtype(), table->value_shape(), 1);
  tf::Tensor again;
  ADAPTCP_RETURN_IF_ERROR(
      Find(ctx, table, GatherKeys(keys, doubtful), b, &again));
  ForEachMarker(again, b, [&](int64_t j) { (*present)[doubtful[j]] = 0; });
  return Status::Ok();
}

tf::Tensor GatherKeys(const tf::Tensor& keys,
                      const std::vector<uint32_t>& idx) {
  tf::Tensor out(keys.dtype(), {static_cast<int64_t>(idx.size())});
  const auto gather = [&](auto zero) {
    using T = decltype(zero);
    const auto from = keys.flat<T>();
    auto to = out.flat<T>();
    for (size_t j = 0; j < idx.size(); ++j) to(j) = from(idx[j]);
  };
  switch (keys.dtype()) {
    case tf::DT_INT64: gather(int64_t{0}); break;
    case tf::DT_INT32: gather(int32_t{0}); break;
    default: gather(tf::tstring()); break;
  }
  return out;
}

}  // namespace adaptcp

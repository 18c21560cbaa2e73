// Reads parts of dense tensors out of segments, each joined from the slices there.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/kernels/async_op.h"
#include "ops/kernels/request_op.h"
#include "ops/kernels/segment_source.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

// A part of a tensor of the checkpoint: what one output is to hold.
struct Wanted {
  std::vector<uint64_t> offset;
  std::vector<uint64_t> shape;
  tf::Tensor* tensor = nullptr;
  std::vector<bool> there;  // by element
  uint64_t missing = 0;
};

bool IsWhole(const std::vector<Wanted>& outputs) {
  return std::all_of(outputs.begin(), outputs.end(), [](const Wanted& wanted) {
    return wanted.missing == 0;
  });
}

// Copies what a slice has of output i.
Status Place(tf::OpKernelContext* ctx, int i, const DenseBlockView& block,
             Wanted* wanted) {
  const DenseSlice& slice = block.slice;
  if (static_cast<tf::DataType>(static_cast<int>(slice.dtype)) !=
      ctx->expected_output_dtype(i)) {
    return Status::DataLoss("dense tensor " + slice.name + " is of type " +
                            DTypeName(slice.dtype) + ", expected " +
                            tf::DataTypeString(ctx->expected_output_dtype(i)));
  }
  const size_t dims = slice.shape.size();
  if (dims != wanted->shape.size()) {
    return Status::DataLoss("dense tensor " + slice.name + " has " +
                            std::to_string(dims) + " dimensions, expected " +
                            std::to_string(wanted->shape.size()));
  }
  // Both as [from, to) in the whole tensor.
  std::vector<uint64_t> from(dims), to(dims);
  for (size_t d = 0; d < dims; ++d) {
    from[d] = std::max(slice.offset[d], wanted->offset[d]);
    to[d] = std::min(slice.offset[d] + slice.slice_shape[d],
                     wanted->offset[d] + wanted->shape[d]);
    if (from[d] >= to[d]) return Status::Ok();
  }
  // Rows along the last dimension are contiguous in both.
  const uint64_t row = dims == 0 ? 1 : to[dims - 1] - from[dims - 1];
  std::vector<uint64_t> at = from;
  for (;;) {
    uint64_t source = 0, target = 0;
    for (size_t d = 0; d < dims; ++d) {
      source = source * slice.slice_shape[d] + at[d] - slice.offset[d];
      target = target * wanted->shape[d] + at[d] - wanted->offset[d];
    }
    for (uint64_t e = 0; e < row; ++e) {
      if (wanted->there[target + e]) {
        return Status::DataLoss("slices of dense tensor " + slice.name +
                                " overlap");
      }
      wanted->there[target + e] = true;
    }
    wanted->missing -= row;
    if (slice.dtype == DType::kString) {
      for (uint64_t e = 0; e < row; ++e) {
        const std::string_view text = block.strings[source + e];
        wanted->tensor->flat<tf::tstring>()(target + e)
            .assign(text.data(), text.size());
      }
    } else {
      const size_t size = DTypeSize(slice.dtype);
      std::memcpy(static_cast<char*>(wanted->tensor->data()) + target * size,
                  block.data.data() + source * size, row * size);
    }
    size_t d = dims > 0 ? dims - 1 : 0;
    while (d > 0 && ++at[d - 1] == to[d - 1]) {
      at[d - 1] = from[d - 1];
      --d;
    }
    if (d == 0) return Status::Ok();
  }
}

// request: {session, restore, ps, objects: [...], specs, limits, slices: [{name,
// offset, shape}]}: those parts of the checkpoint's tensors, in that order. The
// objects that this ps has written are read first, and the others only if
// something is not in them.
class ReadDenseOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    (void)request.at("specs");
    const Json slices = request.value("slices", Json::array());
    if (static_cast<int>(slices.size()) != ctx->num_outputs()) {
      return Status::InvalidArgument(
          "asked for " + std::to_string(ctx->num_outputs()) + " tensors by " +
          std::to_string(slices.size()) + " slices");
    }
    std::multimap<std::string, int> index;
    std::vector<Wanted> outputs(slices.size());
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      Wanted& wanted = outputs[i];
      slices[i].at("offset").get_to(wanted.offset);
      slices[i].at("shape").get_to(wanted.shape);
      if (wanted.offset.size() != wanted.shape.size()) {
        return Status::InvalidArgument("a slice has " +
                                       std::to_string(wanted.offset.size()) +
                                       " offsets and " +
                                       std::to_string(wanted.shape.size()) +
                                       " dimensions");
      }
      tf::TensorShape shape;
      for (const uint64_t size : wanted.shape) {
        ADAPTCP_RETURN_IF_ERROR(FromTensorFlow(
            shape.AddDimWithStatus(static_cast<int64_t>(size))));
      }
      ADAPTCP_RETURN_IF_ERROR(
          FromTensorFlow(ctx->allocate_output(i, shape, &wanted.tensor)));
      wanted.missing = shape.num_elements();
      wanted.there.resize(wanted.missing);
      index.emplace(slices[i].at("name").get<std::string>(), i);
    }
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    const uint32_t ps = request.value("ps", uint32_t{0});
    for (const bool own : {true, false}) {
      Json level = {{"objects", Json::array()}};
      for (const Json& object : request.value("objects", Json::array())) {
        if ((object.value("ps", uint32_t{0}) == ps) == own) {
          level["objects"].push_back(object);
        }
      }
      if (level["objects"].empty() || (!own && IsWhole(outputs))) continue;
      const auto readers = StartReaders(request, Json::array({level}), {});
      ADAPTCP_RETURN_IF_ERROR(session->StartReading(
          request.value("restore", uint64_t{0}), readers));
      ADAPTCP_RETURN_IF_ERROR(Read(ctx, readers.get(), index, &outputs));
    }
    for (const auto& [name, i] : index) {
      if (outputs[i].missing != 0) {
        return Status::DataLoss("dense tensor " + name +
                                " is not whole in the checkpoint");
      }
    }
    return Status::Ok();
  }

  void Cancelled(const Json& request) override { CancelRestore(request); }

 private:
  static Status Read(tf::OpKernelContext* ctx, ObjectReaders* readers,
                     const std::multimap<std::string, int>& index,
                     std::vector<Wanted>* outputs) {
    for (;;) {
      ObjectReaders::Piece piece;
      ADAPTCP_RETURN_IF_ERROR(readers->Next(0, &piece));
      if (piece.object() == nullptr) return Status::Ok();
      const auto& object = static_cast<const SegmentObject&>(*piece.object());
      for (const auto& block : object.segment().blocks()) {
        if (block->type != RecordType::kDense) continue;
        const auto found = index.equal_range(block->dense.slice.name);
        for (auto it = found.first; it != found.second; ++it) {
          ADAPTCP_RETURN_IF_ERROR(
              Place(ctx, it->second, block->dense, &(*outputs)[it->second]));
        }
      }
    }
  }
};

ADAPTCP_OP("ReadDense", ReadDenseOp);

}  // namespace
}  // namespace adaptcp

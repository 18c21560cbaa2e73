// Reads dense tensors out of segments, joined from their slices.

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

// request: {session, restore, objects: [...], specs, limits, names: [...]}: the
// tensors, whole, in that order. A file's own word is not taken for how much
// memory to allocate: `specs` has the shapes of the manifest, see OpenedSegment.
class ReadDenseOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::map<std::string, int> index;
    for (const Json& name : request.value("names", Json::array())) {
      index.emplace(name.get<std::string>(), static_cast<int>(index.size()));
    }
    (void)request.at("specs");
    if (static_cast<int>(index.size()) != ctx->num_outputs()) {
      return Status::InvalidArgument(
          "asked for " + std::to_string(ctx->num_outputs()) +
          " tensors by " + std::to_string(index.size()) + " names");
    }
    std::vector<Output> outputs(index.size());
    // The request is a level, too.
    const auto readers = StartReaders(request, Json::array({request}), {});
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    ADAPTCP_RETURN_IF_ERROR(
        session->StartReading(request.value("restore", uint64_t{0}), readers));
    for (;;) {
      ObjectReaders::Piece piece;
      ADAPTCP_RETURN_IF_ERROR(readers->Next(0, &piece));
      if (piece.object() == nullptr) break;
      const auto& object = static_cast<const SegmentObject&>(*piece.object());
      for (const auto& block : object.segment().blocks()) {
        if (block->type != RecordType::kDense) continue;
        const auto found = index.find(block->dense.slice.name);
        if (found == index.end()) continue;
        ADAPTCP_RETURN_IF_ERROR(Place(ctx, found->second, block->dense,
                                      &outputs[found->second]));
      }
    }
    for (const auto& [name, i] : index) {
      if (outputs[i].tensor == nullptr || outputs[i].missing != 0) {
        return Status::DataLoss("dense tensor " + name +
                                " is not whole in the checkpoint");
      }
    }
    return Status::Ok();
  }

 private:
  struct Output {
    tf::Tensor* tensor = nullptr;
    std::vector<bool> there;  // by element
    uint64_t missing = 0;
  };

  // Copies a slice into its place in output i, allocated at its first slice.
  static Status Place(tf::OpKernelContext* ctx, int i,
                      const DenseBlockView& block, Output* whole) {
    const DenseSlice& slice = block.slice;
    const auto dtype = static_cast<tf::DataType>(static_cast<int>(slice.dtype));
    tf::TensorShape shape;
    for (const uint64_t size : slice.shape) {
      ADAPTCP_RETURN_IF_ERROR(FromTensorFlow(
          shape.AddDimWithStatus(static_cast<int64_t>(size))));
    }
    if (dtype != ctx->expected_output_dtype(i)) {
      return Status::DataLoss(
          "dense tensor " + slice.name + " is of type " +
          DTypeName(slice.dtype) + ", expected " +
          tf::DataTypeString(ctx->expected_output_dtype(i)));
    }
    if (whole->tensor == nullptr) {
      ADAPTCP_RETURN_IF_ERROR(
          FromTensorFlow(ctx->allocate_output(i, shape, &whole->tensor)));
      whole->missing = whole->tensor->NumElements();
      whole->there.resize(whole->missing);
    }
    tf::Tensor* const output = whole->tensor;
    // Rows along the last dimension are contiguous in both.
    const size_t dims = slice.shape.size();
    const uint64_t row = dims == 0 ? 1 : slice.slice_shape[dims - 1];
    if (slice.elements() == 0) return Status::Ok();
    std::vector<uint64_t> at(dims, 0);
    for (uint64_t done = 0; done < slice.elements(); done += row) {
      uint64_t to = 0;
      for (size_t d = 0; d < dims; ++d) {
        to = to * slice.shape[d] + slice.offset[d] + at[d];
      }
      for (uint64_t e = 0; e < row; ++e) {
        if (whole->there[to + e]) {
          return Status::DataLoss("slices of dense tensor " + slice.name +
                                  " overlap");
        }
        whole->there[to + e] = true;
      }
      whole->missing -= row;
      if (slice.dtype == DType::kString) {
        for (uint64_t e = 0; e < row; ++e) {
          const std::string_view text = block.strings[done + e];
          output->flat<tf::tstring>()(to + e).assign(text.data(), text.size());
        }
      } else {
        const size_t size = DTypeSize(slice.dtype);
        std::memcpy(static_cast<char*>(output->data()) + to * size,
                    block.data.data() + done * size, row * size);
      }
      for (size_t d = dims > 0 ? dims - 1 : 0; d-- > 0;) {
        if (++at[d] < slice.slice_shape[d]) break;
        at[d] = 0;
      }
    }
    return Status::Ok();
  }
};

ADAPTCP_OP("ReadDense", ReadDenseOp);

}  // namespace
}  // namespace adaptcp

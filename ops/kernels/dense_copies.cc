// Copies dense variables where they are: all of a server in one call, because
// training stands still for it.

#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor_util.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

// The value of input i, not to be written to. `use` is called under the lock, and
// told whether it must copy: else whoever writes while the value is held gives the
// variable another buffer, as TensorFlow's own reads rely on.
template <typename F>
tf::Status WithValue(tf::OpKernelContext* ctx, int i, F&& use) {
  tf::core::RefCountPtr<tf::Var> variable;
  TF_RETURN_IF_ERROR(
      tf::LookupResource(ctx, tf::HandleFromInput(ctx, i), &variable));
  tf::tf_shared_lock lock(*variable->mu());
  if (!variable->is_initialized) {
    return tf::errors::FailedPrecondition("variable ",
                                          tf::HandleFromInput(ctx, i).name(),
                                          " has no value");
  }
  return use(*variable->tensor(), variable->copy_on_read_mode.load());
}

template <typename T>
double Number(const tf::Tensor& value) {
  return static_cast<double>(value.scalar<T>()());
}

tf::Status ToNumber(const tf::Tensor& value, double* number) {
  if (value.dims() == 0) {
    switch (value.dtype()) {
      case tf::DT_INT64: *number = Number<int64_t>(value); return {};
      case tf::DT_INT32: *number = Number<int32_t>(value); return {};
      case tf::DT_FLOAT: *number = Number<float>(value); return {};
      case tf::DT_DOUBLE: *number = Number<double>(value); return {};
      case tf::DT_HALF: *number = Number<Eigen::half>(value); return {};
      case tf::DT_BFLOAT16: *number = Number<tf::bfloat16>(value); return {};
      default: break;
    }
  }
  return tf::errors::InvalidArgument(
      "Received: a variable of type ", tf::DataTypeString(value.dtype()),
      value.shape().DebugString(), ". Expected: a number");
}

class CopyVariablesOp final : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;

  void Compute(tf::OpKernelContext* ctx) override {
    tf::OpOutputList copies;
    OP_REQUIRES_OK(ctx, ctx->output_list("copies", &copies));
    for (int i = 0; i < copies.size(); ++i) {
      OP_REQUIRES_OK(ctx, WithValue(ctx, i, [&](const tf::Tensor& value,
                                            bool copies_on_read) {
        if (value.dtype() != copies.expected_output_dtype(i)) {
          return tf::Status(tf::errors::InvalidArgument(
              "Received: a variable of type ", DataTypeString(value.dtype()),
              ". Expected: ",
              DataTypeString(copies.expected_output_dtype(i))));
        }
        copies.set(i, copies_on_read ? tf::tensor::DeepCopy(value) : value);
        return tf::Status();
      }));
    }
    const int numbers = ctx->num_inputs() - copies.size();
    tf::Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("numbers", {numbers}, &out));
    for (int i = 0; i < numbers; ++i) {
      OP_REQUIRES_OK(
          ctx, WithValue(ctx, copies.size() + i, [&](const tf::Tensor& value,
                                                     bool) {
            return ToNumber(value, &out->vec<double>()(i));
          }));
    }
  }
};

REGISTER_KERNEL_BUILDER(
    Name("Adaptcp>CopyVariables").Device(tf::DEVICE_CPU), CopyVariablesOp);

}  // namespace
}  // namespace adaptcp

#include "ops/kernels/tf_util.h"

#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/threadpool.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

Status ParseJson(const std::string& text, Json* out) {
  *out = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (out->is_discarded() || !out->is_object()) {
    return Status::InvalidArgument("expected a JSON object, received: " +
                                   text.substr(0, 200));
  }
  return Status::Ok();
}

tf::OpKernelContext::Params* WithDevice(tf::OpKernelContext::Params* params,
                                        tf::DeviceBase* device) {
  params->device = device;
  return params;
}

}  // namespace

Status ToFileType(tf::DataType dtype, DType* out) {
  // Files use TensorFlow's numbers.
  *out = static_cast<DType>(static_cast<int>(dtype));
  if (static_cast<int>(dtype) < 256 && IsKnownDType(*out)) return Status::Ok();
  return Status::InvalidArgument("a checkpoint cannot hold values of type " +
                                 tf::DataTypeString(dtype));
}

Status ParseRequest(tf::OpKernelContext* ctx, const char* name, Json* request) {
  const tf::Tensor* input = nullptr;
  if (tf::Status s = ctx->input(name, &input); !s.ok()) return FromTensorFlow(s);
  if (!tf::TensorShapeUtils::IsScalar(input->shape())) {
    return Status::InvalidArgument(std::string(name) + " must be a scalar");
  }
  return ParseJson(std::string(input->scalar<tf::tstring>()()), request);
}

Status ScalarText(tf::OpKernelContext* ctx, int index, std::string* text) {
  const tf::Tensor& input = ctx->input(index);
  if (!tf::TensorShapeUtils::IsScalar(input.shape())) {
    return Status::InvalidArgument("input " + std::to_string(index) +
                                   " must be a scalar, received: " +
                                   input.shape().DebugString());
  }
  *text = input.scalar<tf::tstring>()();
  return Status::Ok();
}

tf::Status SetReply(tf::OpKernelContext* ctx, int index,
                    const std::string& text) {
  tf::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(
      ctx->allocate_output(index, tf::TensorShape({}), &output));
  output->scalar<tf::tstring>()() = text;
  return tf::OkStatus();
}

TableContext::TableContext()
    : device_(tf::Env::Default()),
      context_(WithDevice(&params_, &device_), /*num_outputs=*/0) {
  threads_.num_threads = 1;  // Shard() then runs in the calling thread
  threads_.workers = nullptr;
  device_.set_tensorflow_cpu_worker_threads(&threads_);
}

TableContext::~TableContext() = default;

}  // namespace adaptcp

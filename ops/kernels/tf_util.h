// Small bridges between TensorFlow and the TF-free code.

#ifndef ADAPTCP_OPS_KERNELS_TF_UTIL_H_
#define ADAPTCP_OPS_KERNELS_TF_UTIL_H_

#include <string>

#include <nlohmann/json.hpp>

#include "ops/format/enums.h"
#include "ops/io/tf_status.h"
#include "ops/util/status.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

namespace adaptcp {

using Json = nlohmann::json;

// The element type as files name it; InvalidArgument if files cannot hold it.
Status ToFileType(tensorflow::DataType dtype, DType* out);

// Parses the scalar string input `name` as a JSON object.
Status ParseRequest(tensorflow::OpKernelContext* ctx, const char* name,
                    Json* request);

// Requests come from another process, which may be of another version: one that
// is not as expected must fail its op, not end the parameter server.
//
// Calls f, which returns a Status; InvalidArgument if a JSON access in it throws.
template <typename F>
Status CatchingJson(F&& f) {
  try {
    return f();
  } catch (const Json::exception& error) {
    return Status::InvalidArgument(
        std::string("the request is not as expected: ") + error.what());
  }
}

// The scalar string input `index`.
Status ScalarText(tensorflow::OpKernelContext* ctx, int index,
                  std::string* text);

// Allocates scalar string output `index`.
tensorflow::Status SetReply(tensorflow::OpKernelContext* ctx, int index,
                            const std::string& text);

// A context good enough for TFRA's table methods (Find, Insert, ImportValues),
// which ask it for nothing but the worker threads: it has one, so the calling
// thread does the work. For threads that no op of the graph runs on.
class TableContext {
 public:
  TableContext();
  ~TableContext();
  TableContext(const TableContext&) = delete;
  TableContext& operator=(const TableContext&) = delete;
  tensorflow::OpKernelContext* get() { return &context_; }

 private:
  tensorflow::DeviceBase device_;
  tensorflow::DeviceBase::CpuWorkerThreads threads_;
  tensorflow::OpKernelContext::Params params_;
  tensorflow::OpKernelContext context_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_TF_UTIL_H_

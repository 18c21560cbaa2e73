// Requests come as JSON from another process, which may be of another version:
// one that is not as expected must fail its op, not end the parameter server.

#ifndef ADAPTCP_OPS_KERNELS_CHECKED_OP_H_
#define ADAPTCP_OPS_KERNELS_CHECKED_OP_H_

#include <string>

#include "ops/kernels/tf_util.h"
#include "ops/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {

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

// A synchronous op, with its JSON accesses caught. AsyncRequestOp does it alone.
template <typename Op>
class CheckedOp : public Op {
 public:
  using Op::Op;
  void Compute(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, ToTensorFlow(CatchingJson([&] {
                     Op::Compute(ctx);
                     return FromTensorFlow(ctx->status());
                   })));
  }
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_CHECKED_OP_H_

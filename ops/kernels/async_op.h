// An op that does long work on a thread of its own, so that it neither blocks
// the op pool nor is blocked by it.

#ifndef ADAPTCP_OPS_KERNELS_ASYNC_OP_H_
#define ADAPTCP_OPS_KERNELS_ASYNC_OP_H_

#include <system_error>
#include <thread>

#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {

class AsyncRequestOp : public tensorflow::AsyncOpKernel {
 public:
  using tensorflow::AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tensorflow::OpKernelContext* ctx,
                    DoneCallback done) override {
    Json request;
    OP_REQUIRES_OK_ASYNC(ctx, ToTensorFlow(ParseRequest(ctx, "request", &request)),
                         done);
    tensorflow::CancellationManager* cancellation =
        ctx->cancellation_manager();
    tensorflow::CancellationToken token = 0;
    bool registered = false;
    if (cancellation != nullptr) {
      token = cancellation->get_cancellation_token();
      registered = cancellation->RegisterCallback(
          token, [this, request] {
            (void)CatchingJson([&] {
              Cancelled(request);
              return Status::Ok();
            });
          });
      OP_REQUIRES_ASYNC(ctx, registered,
                        tensorflow::errors::Cancelled("cancelled"), done);
    }
    const auto end = [ctx, done, cancellation, token,
                      registered](const Status& status) {
      if (registered) cancellation->DeregisterCallback(token);
      if (!status.ok()) ctx->SetStatus(ToTensorFlow(status));
      done();
    };
    try {
      // Detached: it ends with done(), before which nothing it uses goes away.
      std::thread([this, ctx, request, end] {
        end(CatchingJson([&] { return Run(ctx, request); }));
      }).detach();
    } catch (const std::system_error&) {
      end(Status::ResourceExhausted("the system has no thread left"));
    }
  }

 protected:
  // On its own thread; may block.
  virtual Status Run(tensorflow::OpKernelContext* ctx, const Json& request) = 0;
  // Any thread, while Run runs: makes it end soon.
  virtual void Cancelled(const Json& request) { (void)request; }
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_ASYNC_OP_H_

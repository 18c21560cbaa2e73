// What the ops a coordinator calls have in common: a JSON request, a session.

#ifndef ADAPTCP_OPS_KERNELS_REQUEST_OP_H_
#define ADAPTCP_OPS_KERNELS_REQUEST_OP_H_

#include <memory>
#include <string>

#include "ops/kernels/session.h"
#include "ops/kernels/stock_kernel.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/op_kernel.h"

#define ADAPTCP_OP_OK(ctx, expr) OP_REQUIRES_OK(ctx, ToTensorFlow(expr))
#define ADAPTCP_OP(name, kernel)                                    \
  REGISTER_KERNEL_BUILDER(                                          \
      Name("Adaptcp>" name).Device(tensorflow::DEVICE_CPU), kernel)

namespace adaptcp {

// The session a request names.
inline Status FindSession(const Json& request,
                          std::shared_ptr<Session>* session) {
  return Registry::Get().FindSession(request.value("session", ""), session);
}

// What an op is about that a restore sends to one table: {session, restore} of
// its request, and the table whose handle is its second input.
struct TableOfRestore {
  std::shared_ptr<Session> session;
  uint64_t restore = 0;
  Group::Tables::value_type table;
};
inline Status FindTableOfRestore(tensorflow::OpKernelContext* ctx,
                                 const Json& request, TableOfRestore* of) {
  ADAPTCP_RETURN_IF_ERROR(FindSession(request, &of->session));
  of->restore = request.value("restore", uint64_t{0});
  return FromTensorFlow(
      FindTable(ctx, tensorflow::HandleFromInput(ctx, 1), &of->table));
}

// Ends what reads for the restore of a request, if there is one still.
inline void CancelRestore(const Json& request) {
  std::shared_ptr<Session> session;
  if (!FindSession(request, &session).ok()) return;
  session->StopReading(request.value("restore", uint64_t{0}),
                       Status::Cancelled("the restore was cancelled"));
}

// The level that rows of a restore come from: {restore, head} of a request and
// {sequence, differential} of one of its levels, which may be the request too.
inline RestoreLevel LevelOf(const Json& request, const Json& level) {
  RestoreLevel parsed;
  parsed.head = request.value("head", Seq{0});
  parsed.written = level.value("sequence", Seq{0});
  parsed.from_differential = level.value("differential", false);
  parsed.restore = request.value("restore", uint64_t{0});
  return parsed;
}

// A synchronous op with a request. AsyncRequestOp is the other one.
class RequestOp : public tensorflow::OpKernel {
 public:
  using tensorflow::OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* ctx) override {
    ADAPTCP_OP_OK(ctx, CatchingJson([&]() -> Status {
                    Json request;
                    ADAPTCP_RETURN_IF_ERROR(
                        ParseRequest(ctx, "request", &request));
                    return Run(ctx, request);
                  }));
  }

 protected:
  virtual Status Run(tensorflow::OpKernelContext* ctx, const Json& request) = 0;
};

// An op whose only input is the name of a session.
class SessionOp : public tensorflow::OpKernel {
 public:
  using tensorflow::OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* ctx) override {
    std::string name;
    ADAPTCP_OP_OK(ctx, ScalarText(ctx, 0, &name));
    std::shared_ptr<Session> session;
    ADAPTCP_OP_OK(ctx, Registry::Get().FindSession(name, &session));
    ADAPTCP_OP_OK(ctx, Run(ctx, session.get()));
  }

 protected:
  virtual Status Run(tensorflow::OpKernelContext* ctx, Session* session) = 0;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_REQUEST_OP_H_

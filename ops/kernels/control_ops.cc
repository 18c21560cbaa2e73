// The ops a coordinator calls on every parameter server: attach, cut, save,
// resolve, statistics. Requests and replies are JSON; the classes behind them
// say what they hold.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/io/local/buffer_directory.h"
#include "ops/io/store.h"
#include "ops/kernels/async_op.h"
#include "ops/kernels/request_op.h"
#include "ops/kernels/stock_kernel.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

// As tfadaptcp.__version__.
constexpr char kVersion[] = "0.1.0";

class InfoOp : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* ctx) override {
    const Json info = {
        {"versions",
         {{"tfadaptcp", kVersion},
          {"tensorflow", ADAPTCP_TF_VERSION},
          {"tensorflow-recommenders-addons", ADAPTCP_TFRA_VERSION}}},
        {"incarnation", Incarnation()},
        {"generations", Registry::Get().generations()}};
    OP_REQUIRES_OK(ctx, SetReply(ctx, 0, info.dump()));
  }
};

class AttachGroupOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    tf::OpInputList handles;
    ADAPTCP_RETURN_IF_ERROR(
        FromTensorFlow(ctx->input_list("table_handles", &handles)));
    Group::Tables tables(handles.size());
    for (int i = 0; i < handles.size(); ++i) {
      if (!tf::TensorShapeUtils::IsScalar(handles[i].shape())) {
        return Status::InvalidArgument("a table handle must be a scalar");
      }
      ADAPTCP_RETURN_IF_ERROR(FromTensorFlow(FindTable(
          ctx, handles[i].scalar<tf::ResourceHandle>()(), &tables[i])));
    }
    Json reply;
    ADAPTCP_RETURN_IF_ERROR(
        Registry::Get().Attach(request, std::move(tables), &reply));
    return FromTensorFlow(SetReply(ctx, 0, reply.dump()));
  }
};

// request: {session, restore}: the one that began last.
class SeedTableOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    TableOfRestore of;
    ADAPTCP_RETURN_IF_ERROR(FindTableOfRestore(ctx, request, &of));
    Status status;
    ADAPTCP_RETURN_IF_ERROR(
        Registry::Get().gate().RunExclusive(kGateTimeout, [&] {
          Group* group = nullptr;
          status = of.session->CheckTable(of.restore, "a listing",
                                          of.table.get(), &group);
          if (status.ok()) status = FromTensorFlow(of.table->ExportValues(ctx));
          if (status.ok()) group->Seed(*ctx->mutable_output(0));
        }));
    return status;
  }
};

class DetachOp : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* ctx) override {
    std::string session;
    ADAPTCP_OP_OK(ctx, ScalarText(ctx, 0, &session));
    ADAPTCP_OP_OK(ctx, Registry::Get().Detach(session));
  }
};

// The session of a coordinator that writes; refused if a newer one does.
Status FindWriter(const Json& request, std::shared_ptr<Session>* session) {
  ADAPTCP_RETURN_IF_ERROR(Registry::Get().CheckGeneration(
      request.value("root", ""), request.value("generation", uint64_t{0})));
  return FindSession(request, session);
}

class CutOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindWriter(request, &session));
    Json reply, predicted;
    // Before the gate is closed: training need not wait for it.
    if (request.value("predict", false)) predicted = session->Predict(request);
    Status status;
    ADAPTCP_RETURN_IF_ERROR(Registry::Get().gate().RunExclusive(
        kGateTimeout, [&] { status = session->Cut(request, &reply); }));
    if (!predicted.is_null()) reply["predicted"] = predicted;
    ADAPTCP_RETURN_IF_ERROR(status);
    reply["incarnation"] = Incarnation();
    // How long the save may take is the coordinator's to say.
    reply["bytes"] = session->CutBytes();
    return FromTensorFlow(SetReply(ctx, 0, reply.dump()));
  }
};

class SaveOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    tf::OpInputList inputs;
    if (tf::Status s = ctx->input_list("dense", &inputs); !s.ok()) {
      return FromTensorFlow(s);
    }
    const std::vector<tf::Tensor> dense(inputs.begin(), inputs.end());
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindWriter(request, &session));
    Json reply;
    ADAPTCP_RETURN_IF_ERROR(session->Save(request, dense, &reply));
    return FromTensorFlow(SetReply(ctx, 0, reply.dump()));
  }

  // The coordinator has stopped waiting: nobody will commit this.
  void Cancelled(const Json& request) override {
    std::shared_ptr<Session> session;
    if (!FindSession(request, &session).ok()) return;
    if (const auto pipeline = session->pipeline()) {
      pipeline->Abort(Status::Cancelled("the save was cancelled"));
    }
  }
};

// request: {buffer_dir}. Tries a buffer directory, and removes what dead processes
// have left there. reply: {path, free_bytes, removed}.
class ProbeBufferOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<BufferDirectory> buffer;
    ADAPTCP_RETURN_IF_ERROR(
        BufferDirectory::Open(request.value("buffer_dir", ""), &buffer));
    const std::string path = buffer->NewName();
    std::unique_ptr<ByteSink> sink;
    ADAPTCP_RETURN_IF_ERROR(NewSink(path, &sink));
    ADAPTCP_RETURN_IF_ERROR(sink->Append(path));
    ADAPTCP_RETURN_IF_ERROR(sink->SyncAndClose());
    ADAPTCP_RETURN_IF_ERROR(DeleteObject(path));
    uint64_t free = 0;
    ADAPTCP_RETURN_IF_ERROR(buffer->FreeBytes(&free));
    return FromTensorFlow(SetReply(ctx, 0,
                                   Json{{"path", buffer->path()},
                                        {"free_bytes", free},
                                        {"removed", buffer->removed()}}
                                       .dump()));
  }
};

class WaitCapturedOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext*, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    session->WaitCaptured(request.value("sequence", Seq{0}));
    return Status::Ok();
  }
};

class ScanBaseOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindWriter(request, &session));
    Json reply;
    TableContext context;
    ADAPTCP_RETURN_IF_ERROR(
        session->Scan(context.get(), request, &reply));
    return FromTensorFlow(SetReply(ctx, 0, reply.dump()));
  }
  void Cancelled(const Json& request) override {
    std::shared_ptr<Session> session;
    if (FindSession(request, &session).ok()) session->VoidScans();
  }
};

class VoidScansOp : public SessionOp {
 public:
  using SessionOp::SessionOp;

 protected:
  Status Run(tf::OpKernelContext*, Session* session) override {
    session->VoidScans();
    return Status::Ok();
  }
};

class ResolveOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext*, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    return session->Resolve(request.value("sequence", Seq{0}),
                            request.value("committed", false),
                            request.value("scanned_base", Seq{0}));
  }
};

class StatsOp : public SessionOp {
 public:
  using SessionOp::SessionOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, Session* session) override {
    return FromTensorFlow(SetReply(ctx, 0, session->Stats().dump()));
  }
};

class HistogramsOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    return FromTensorFlow(
        SetReply(ctx, 0, session->Histograms(request).dump()));
  }
};

ADAPTCP_OP("Info", InfoOp);
ADAPTCP_OP("AttachGroup", AttachGroupOp);
ADAPTCP_OP("SeedTable", SeedTableOp);
ADAPTCP_OP("Detach", DetachOp);
ADAPTCP_OP("Cut", CutOp);
ADAPTCP_OP("Save", SaveOp);
ADAPTCP_OP("ProbeBuffer", ProbeBufferOp);
ADAPTCP_OP("WaitCaptured", WaitCapturedOp);
ADAPTCP_OP("ScanBase", ScanBaseOp);
ADAPTCP_OP("VoidScans", VoidScansOp);
ADAPTCP_OP("Resolve", ResolveOp);
ADAPTCP_OP("Stats", StatsOp);
ADAPTCP_OP("Histograms", HistogramsOp);

}  // namespace
}  // namespace adaptcp

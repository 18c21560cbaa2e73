// Clear, Import and LoadFromFileSystem: ops that change a table as a whole. As
// those of tracked_table_ops.cc they have TFRA's signatures and run its kernels.
// On a tracked table they do so under the closed gate, and a checkpoint that is
// pending gets all it still needs before.

#include <array>
#include <memory>
#include <string>

#include "ops/kernels/session.h"
#include "ops/kernels/stock_kernel.h"
#include "ops/kernels/table_growth.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

class ReplacingTableOp : public tf::OpKernel {
 public:
  explicit ReplacingTableOp(tf::OpKernelConstruction* ctx) : tf::OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, MakeStockKernel(ctx, def(), &stock_));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    tf::core::RefCountPtr<tf::lookup::LookupInterface> table;
    OP_REQUIRES_OK(ctx, FindTable(ctx, &table));
    Registry& registry = Registry::Get();
    for (bool replaced = false; !replaced;) {
      if (registry.BeginReplacing(table.get())) {
        stock_->Compute(ctx);
        registry.EndReplacing(table.get());
        return;
      }
      // Not if the manager has gone before the gate was closed: then again,
      // with the gate open.
      OP_REQUIRES_OK(
          ctx, ToTensorFlow(registry.gate().RunExclusive(kGateTimeout, [&] {
            const Registry::Entry* entry = registry.Find(table.get());
            if (entry == nullptr) return;
            replaced = true;
            ReplaceTracked(ctx, table.get(), *entry);
          })));
    }
  }

 protected:
  // All keys that may be in the table after the op, which may have failed
  // half-way, and perhaps more.
  virtual tf::Status NewKeys(tf::OpKernelContext* ctx, tf::Tensor* keys) = 0;

 private:
  void ReplaceTracked(tf::OpKernelContext* ctx,
                      tf::lookup::LookupInterface* table,
                      const Registry::Entry& entry) {
    entry.group->CountWrite();
    entry.group->BeforeReplace(ctx, entry.session->pipeline().get());
    stock_->Compute(ctx);
    const tf::Tensor no_keys(table->key_dtype(), {0});
    tf::Tensor keys = no_keys;
    tf::Status listed = NewKeys(ctx, &keys);
    if (!listed.ok()) {
      // No checkpoint would ever have rows that the tracker does not know of.
      listed.Update(ToTensorFlow(EmptyTable(ctx, table)));
      keys = no_keys;
    }
    entry.group->AfterReplace(keys.dtype() == table->key_dtype() ? keys
                                                                 : no_keys);
    OP_REQUIRES_OK(ctx, listed);
  }

  std::unique_ptr<tf::OpKernel> stock_;
};

class ClearOp final : public ReplacingTableOp {
 public:
  using ReplacingTableOp::ReplacingTableOp;

 protected:
  tf::Status NewKeys(tf::OpKernelContext*, tf::Tensor*) override {
    return tf::OkStatus();
  }
};

class ImportOp final : public ReplacingTableOp {
 public:
  using ReplacingTableOp::ReplacingTableOp;

 protected:
  tf::Status NewKeys(tf::OpKernelContext* ctx, tf::Tensor* keys) override {
    // With keys of another type TFRA's kernel has refused.
    *keys = ctx->input(1);
    return tf::OkStatus();
  }
};

class LoadOp final : public ReplacingTableOp {
 public:
  explicit LoadOp(tf::OpKernelConstruction* ctx) : ReplacingTableOp(ctx) {
    tf::NodeDef node;
    node.set_name(name() + "/export");
    node.set_op(std::string(kStockPrefix) + "Export");
    node.add_input("table_handle");
    (*node.mutable_attr())["Tkeys"] = def().attr().at("key_dtype");
    (*node.mutable_attr())["Tvalues"] = def().attr().at("value_dtype");
    OP_REQUIRES_OK(ctx, MakeKernel(ctx, node, &export_));
  }

 protected:
  // The files may hold anything: asks the table.
  tf::Status NewKeys(tf::OpKernelContext* ctx, tf::Tensor* keys) override {
    tf::OpKernelContext::Params params = *ctx->params();
    params.op_kernel = export_.get();
    params.inputs = params.inputs.subspan(0, 1);
    const std::array<tf::AllocatorAttributes, 2> attributes;
    params.output_attr_array = attributes.data();
    params.forward_from_array = nullptr;
    tf::OpKernelContext exporting(&params, /*num_outputs=*/2);
    export_->Compute(&exporting);
    TF_RETURN_IF_ERROR(exporting.status());
    *keys = *exporting.mutable_output(0);
    return tf::OkStatus();
  }

 private:
  std::unique_ptr<tf::OpKernel> export_;
};

#define ADAPTCP_TABLE_OP(suffix, kernel)                                   \
  REGISTER_KERNEL_BUILDER(                                                 \
      Name("Adaptcp>CuckooHashTable" suffix).Device(tf::DEVICE_CPU), kernel)

ADAPTCP_TABLE_OP("Clear", ClearOp);
ADAPTCP_TABLE_OP("Import", ImportOp);
ADAPTCP_TABLE_OP("LoadFromFileSystem", LoadOp);

#undef ADAPTCP_TABLE_OP

}  // namespace
}  // namespace adaptcp

// The ops that every TFRA CPU table issues once tfadaptcp is imported. Each has
// the signature of a TFRA op and runs TFRA's own kernel for it, inside the gate;
// those that write first capture and mark. While no manager tracks the table,
// that is all they do.

#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "ops/kernels/session.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/types.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

enum class Effect {
  kRead,      // changes nothing
  kWriteRows, // changes the rows of its keys
  kReplace,   // changes everything
};

template <Effect effect>
class TrackedTableOp final : public tf::OpKernel {
 public:
  explicit TrackedTableOp(tf::OpKernelConstruction* ctx) : tf::OpKernel(ctx) {
    tf::NodeDef stock = def();
    const std::string suffix = stock.op().substr(std::string("Adaptcp>").size());
    stock.set_op("TFRA>" + suffix);
    tf::Status status;
    stock_ = tf::CreateOpKernel(
        ctx->device_type(), static_cast<tf::DeviceBase*>(ctx->device()),
        ctx->device()->GetAllocator(tf::AllocatorAttributes()), stock,
        ctx->graph_def_version(), &status);
    OP_REQUIRES_OK(ctx, status);
  }

  void Compute(tf::OpKernelContext* ctx) override {
    Registry& registry = Registry::Get();
    if constexpr (effect == Effect::kRead) {
      stock_->Compute(ctx);
      return;
    } else {
      tf::core::RefCountPtr<tf::lookup::LookupInterface> table;
      const tf::ResourceHandle& handle = tf::HandleFromInput(ctx, 0);
      tf::lookup::LookupInterface* raw = nullptr;
      OP_REQUIRES_OK(
          ctx,
          (ctx->resource_manager()->Lookup<tf::lookup::LookupInterface, false>(
              handle.container(), handle.name(), &raw)));
      table.reset(raw);
      const GateScope inside(&registry.gate());
      if (const Registry::Entry* entry = registry.Find(raw)) {
        if constexpr (effect == Effect::kWriteRows) {
          const tf::Tensor& keys = ctx->input(1);
          // With other keys TFRA's kernel refuses, and nothing is written.
          if (keys.dtype() == table->key_dtype()) {
            const std::shared_ptr<SavePipeline> pipeline =
                entry->session->pipeline();
            entry->group->BeforeWrite(ctx, keys, pipeline.get());
          }
        } else {
          OP_REQUIRES(ctx, false,
                      tf::errors::Unimplemented(
                          type_string(), " on a table of ",
                          entry->group->spec().name,
                          ", which a checkpoint manager tracks: clearing, "
                          "importing or loading it would go unnoticed. Remove "
                          "rows by their keys instead, or restore a "
                          "checkpoint."));
        }
      }
      stock_->Compute(ctx);
    }
  }

 private:
  std::unique_ptr<tf::OpKernel> stock_;
};

#define ADAPTCP_TABLE_OP(suffix, effect)                                \
  REGISTER_KERNEL_BUILDER(                                              \
      Name("Adaptcp>CuckooHashTable" suffix).Device(tf::DEVICE_CPU),    \
      TrackedTableOp<effect>)

ADAPTCP_TABLE_OP("Find", Effect::kRead);
ADAPTCP_TABLE_OP("FindWithExists", Effect::kRead);
ADAPTCP_TABLE_OP("Insert", Effect::kWriteRows);
ADAPTCP_TABLE_OP("Accum", Effect::kWriteRows);
ADAPTCP_TABLE_OP("Remove", Effect::kWriteRows);
ADAPTCP_TABLE_OP("Clear", Effect::kReplace);
ADAPTCP_TABLE_OP("Import", Effect::kReplace);
ADAPTCP_TABLE_OP("LoadFromFileSystem", Effect::kReplace);

#undef ADAPTCP_TABLE_OP

}  // namespace
}  // namespace adaptcp

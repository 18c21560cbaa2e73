// The ops that every TFRA CPU table issues once tfadaptcp is imported. Each has
// the signature of a TFRA op and runs TFRA's own kernel for it, inside the gate;
// those that write first capture and mark. While no manager tracks the table,
// that is all they do. Those that change tables as wholes are in
// replacing_table_ops.cc.

#include <memory>

#include "ops/kernels/session.h"
#include "ops/kernels/stock_kernel.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

enum class Effect {
  kRead,        // changes nothing
  kWriteRows,   // changes the rows of its keys, or makes them
  kRemoveRows,  // removes the rows of its keys, if they are there
};

template <Effect effect>
class TrackedTableOp final : public tf::OpKernel {
 public:
  explicit TrackedTableOp(tf::OpKernelConstruction* ctx) : tf::OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, MakeStockKernel(ctx, def(), &stock_));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    Registry& registry = Registry::Get();
    if constexpr (effect == Effect::kRead) {
      if (registry.watching_lookups().load(std::memory_order_relaxed) != 0) {
        BeforeLookup(ctx);
      }
      stock_->Compute(ctx);
      return;
    } else {
      tf::core::RefCountPtr<tf::lookup::LookupInterface> table;
      OP_REQUIRES_OK(ctx, FindTable(ctx, &table));
      const GateScope inside(&registry.gate());
      if (const Registry::Entry* entry = registry.Find(table.get())) {
        const tf::Tensor& keys = ctx->input(1);
        // With other keys TFRA's kernel refuses, and nothing is written.
        if (keys.dtype() == table->key_dtype()) {
          entry->session->CountUse();
          if (keys.NumElements() != 0) entry->group->CountWrite();
          const std::shared_ptr<SavePipeline> pipeline =
              entry->session->pipeline();
          if constexpr (effect == Effect::kRemoveRows) {
            entry->group->BeforeWrite(ctx, entry->group->KeysWithEntries(keys),
                                      pipeline.get());
          } else {
            entry->group->BeforeWrite(ctx, keys, pipeline.get());
          }
        }
      }
      stock_->Compute(ctx);
    }
  }

 private:
  // What is looked up in a parameter now is written soon, the slots too: the
  // time between is best spent on capturing it. A slot is looked up too late,
  // and says nothing that the lookup in its parameter has not said.
  static void BeforeLookup(tf::OpKernelContext* ctx) {
    tf::core::RefCountPtr<tf::lookup::LookupInterface> table;
    if (!FindTable(ctx, &table).ok()) return;  // TFRA's kernel says why
    Registry& registry = Registry::Get();
    const GateScope inside(&registry.gate());
    const Registry::Entry* entry = registry.Find(table.get());
    if (entry == nullptr || !entry->is_parameter ||
        ctx->input(1).dtype() != table->key_dtype()) {
      return;
    }
    entry->session->CountUse();
    if (entry->session->wants_hurry()) entry->group->Hurry(ctx->input(1));
    entry->group->RecordAccesses(ctx->input(1));
  }

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
ADAPTCP_TABLE_OP("Remove", Effect::kRemoveRows);

#undef ADAPTCP_TABLE_OP

}  // namespace
}  // namespace adaptcp

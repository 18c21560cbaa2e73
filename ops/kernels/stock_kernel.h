// TFRA's own kernels and tables, for ops of ours that stand in for TFRA's.

#ifndef ADAPTCP_OPS_KERNELS_STOCK_KERNEL_H_
#define ADAPTCP_OPS_KERNELS_STOCK_KERNEL_H_

#include <memory>
#include <string>

#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace adaptcp {

constexpr char kTrackedPrefix[] = "Adaptcp>CuckooHashTable";
constexpr char kStockPrefix[] = "TFRA>CuckooHashTable";

inline tensorflow::Status MakeKernel(
    tensorflow::OpKernelConstruction* ctx, const tensorflow::NodeDef& node,
    std::unique_ptr<tensorflow::OpKernel>* kernel) {
  tensorflow::Status status;
  *kernel = tensorflow::CreateOpKernel(
      ctx->device_type(),
      static_cast<tensorflow::DeviceBase*>(ctx->device()),
      ctx->device()->GetAllocator(tensorflow::AllocatorAttributes()), node,
      ctx->graph_def_version(), &status);
  return status;
}

// The kernel that `def`, the node of a tracked op, would have had.
inline tensorflow::Status MakeStockKernel(
    tensorflow::OpKernelConstruction* ctx, const tensorflow::NodeDef& def,
    std::unique_ptr<tensorflow::OpKernel>* kernel) {
  tensorflow::NodeDef stock = def;
  stock.set_op(kStockPrefix +
               stock.op().substr(std::string(kTrackedPrefix).size()));
  return MakeKernel(ctx, stock, kernel);
}

inline tensorflow::Status FindTable(
    tensorflow::OpKernelContext* ctx, const tensorflow::ResourceHandle& handle,
    tensorflow::core::RefCountPtr<tensorflow::lookup::LookupInterface>* table) {
  tensorflow::lookup::LookupInterface* raw = nullptr;
  TF_RETURN_IF_ERROR(
      (ctx->resource_manager()
           ->Lookup<tensorflow::lookup::LookupInterface, false>(
               handle.container(), handle.name(), &raw)));
  table->reset(raw);
  return tensorflow::OkStatus();
}

// The table of input 0.
inline tensorflow::Status FindTable(
    tensorflow::OpKernelContext* ctx,
    tensorflow::core::RefCountPtr<tensorflow::lookup::LookupInterface>* table) {
  return FindTable(ctx, tensorflow::HandleFromInput(ctx, 0), table);
}

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_STOCK_KERNEL_H_

// Ops that read segments into tensors: those that a graph routes to the shards
// its rows belong to now (OpenSegment, SegmentRows, RestoreRows), and those that
// are read without any model (SegmentTable).

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/kernels/async_op.h"
#include "ops/kernels/request_op.h"
#include "ops/kernels/segment_source.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

// Segments that are being routed, by the name the coordinator gave them.
class OpenSegments {
 public:
  static OpenSegments& Get() {
    static OpenSegments* const open = new OpenSegments();
    return *open;
  }
  void Put(const std::string& name, std::shared_ptr<OpenedSegment> segment) {
    std::lock_guard<std::mutex> lock(mu_);
    segments_[name] = std::move(segment);
  }
  void Erase(const std::string& name) {
    std::lock_guard<std::mutex> lock(mu_);
    segments_.erase(name);
  }
  Status Find(const std::string& name,
              std::shared_ptr<OpenedSegment>* segment) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto it = segments_.find(name);
    if (it == segments_.end()) {
      return Status::NotFound("no segment " + name + " is open here");
    }
    *segment = it->second;
    return Status::Ok();
  }

 private:
  std::mutex mu_;
  std::map<std::string, std::shared_ptr<OpenedSegment>> segments_;
};

// request: {name, object, specs}. reply: {blocks: {group: n}, dense: {tensor:
// elements}}.
class OpenSegmentOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::unique_ptr<OpenedSegment> segment;
    ADAPTCP_RETURN_IF_ERROR(OpenedSegment::Open(request, &segment));
    std::map<std::string, uint64_t> blocks, dense;
    for (const GroupSpec& group : segment->header().groups) {
      blocks[group.name] = segment->BlocksOf(group.name).size();
    }
    for (const auto& block : segment->blocks()) {
      if (block->type != RecordType::kDense) continue;
      dense[block->dense.slice.name] += block->dense.slice.elements();
    }
    const Json reply = {{"blocks", blocks}, {"dense", dense}};
    OpenSegments::Get().Put(request.value("name", ""), std::move(segment));
    return FromTensorFlow(SetReply(ctx, 0, reply.dump()));
  }
};

class CloseSegmentOp : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* ctx) override {
    std::string name;
    ADAPTCP_OP_OK(ctx, ScalarText(ctx, 0, &name));
    OpenSegments::Get().Erase(name);
  }
};

class SegmentRowsOp : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* ctx) override {
    std::string name, group;
    ADAPTCP_OP_OK(ctx, ScalarText(ctx, 0, &name));
    ADAPTCP_OP_OK(ctx, ScalarText(ctx, 1, &group));
    OP_REQUIRES(ctx, tf::TensorShapeUtils::IsScalar(ctx->input(2).shape()),
                tf::errors::InvalidArgument("the block must be a scalar"));
    const int64_t index = ctx->input(2).scalar<int64_t>()();
    std::shared_ptr<OpenedSegment> segment;
    ADAPTCP_OP_OK(ctx, OpenSegments::Get().Find(name, &segment));
    const auto blocks = segment->BlocksOf(group);
    OP_REQUIRES(ctx, index >= 0 && index < static_cast<int64_t>(blocks.size()),
                tf::errors::OutOfRange("segment ", name, " has ", blocks.size(),
                                       " blocks of ", group, ", not ", index));
    const RowBlockView& block = *blocks[index];
    const GroupSpec& spec = segment->header().groups[block.group_index()];
    RestoredRows rows;
    ADAPTCP_OP_OK(ctx, BlockToRows(spec, block, &rows));
    const int64_t n = block.rows(), tables = spec.tables.size();
    OP_REQUIRES(ctx, tables == ctx->num_outputs() - 3,
                tf::errors::InvalidArgument("group ", group, " has ", tables,
                                            " tables"));
    bool fits = rows.keys.dtype() == ctx->expected_output_dtype(0);
    for (int64_t t = 0; t < tables; ++t) {
      fits = fits &&
             rows.values[t].dtype() == ctx->expected_output_dtype(3 + t);
    }
    OP_REQUIRES(ctx, fits,
                tf::errors::InvalidArgument("segment ", name, " holds ", group,
                                            " in other types than asked for"));
    tf::Tensor p(tf::DT_FLOAT, {n}), present(tf::DT_BOOL, {n, tables});
    std::memcpy(p.data(), rows.p.data(), n * sizeof(float));
    auto matrix = present.matrix<bool>();
    for (int64_t t = 0; t < tables; ++t) {
      for (int64_t i = 0; i < n; ++i) matrix(i, t) = rows.present[t * n + i];
    }
    ctx->set_output(0, rows.keys);
    ctx->set_output(1, p);
    ctx->set_output(2, present);
    for (int64_t t = 0; t < tables; ++t) ctx->set_output(3 + t, rows.values[t]);
  }
};

// request: {session, restore, group, shard, head, sequence, differential}.
class RestoreRowsOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    Group* group = session->FindGroup(request.value("group", ""),
                                      request.value("shard", uint32_t{0}));
    if (group == nullptr) {
      return Status::NotFound("no such group shard here: " + request.dump());
    }
    RestoredRows rows;
    rows.keys = ctx->input(1);
    const int64_t n = rows.keys.NumElements();
    const int64_t tables = group->tables().size();
    const auto p = ctx->input(2).flat<float>();
    bool fit = p.size() == n && ctx->num_inputs() == 4 + tables &&
               ctx->input(3).shape() == tf::TensorShape({n, tables});
    for (int64_t t = 0; fit && t < tables; ++t) {
      const auto& table = group->tables()[t];
      tf::TensorShape shape({n});
      shape.AppendShape(table->value_shape());
      fit = rows.keys.dtype() == table->key_dtype() &&
            ctx->input(4 + t).dtype() == table->value_dtype() &&
            ctx->input(4 + t).shape() == shape;
    }
    if (!fit) {
      return Status::InvalidArgument("rows of " + group->spec().name +
                                     " do not fit one another");
    }
    rows.p.assign(p.data(), p.data() + n);
    const auto matrix = ctx->input(3).matrix<bool>();
    rows.present.resize(n * tables);
    for (int64_t t = 0; t < tables; ++t) {
      for (int64_t i = 0; i < n; ++i) rows.present[t * n + i] = matrix(i, t);
      rows.values.push_back(ctx->input(4 + t));
    }
    RestoreLevel level;
    level.head = request.value("head", Seq{0});
    level.written = request.value("sequence", Seq{0});
    level.from_differential = request.value("differential", false);
    level.restore = request.value("restore", uint64_t{0});
    return session->RestoreRows(ctx, group, rows, level);
  }
};

// request: {object, specs, group, table}: the rows of one table in one segment.
class SegmentTableOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::unique_ptr<OpenedSegment> segment;
    ADAPTCP_RETURN_IF_ERROR(OpenedSegment::Open(request, &segment));
    const auto blocks = segment->BlocksOf(request.value("group", ""));
    const auto table = request.value("table", size_t{0});
    int64_t rows = 0, live = 0, dim = 0;
    for (const RowBlockView* block : blocks) {
      const GroupSpec& spec = segment->header().groups[block->group_index()];
      if (table >= spec.tables.size() ||
          TypeOf(spec.key_dtype) != ctx->expected_output_dtype(0) ||
          TypeOf(spec.tables[table].dtype) != ctx->expected_output_dtype(2)) {
        return Status::InvalidArgument("a segment holds group " + spec.name +
                                       " in another form than asked for");
      }
      dim = spec.tables[table].dim;
      rows += block->rows();
      live += block->present_rows(table);
    }
    tf::Tensor *keys = nullptr, *present = nullptr, *values = nullptr;
    // Memory is bounded by the file: absent rows have no values, quantised ones
    // at least a sixteenth of their bytes (of float64 half that).
    tf::Status status = ctx->allocate_output(0, {rows}, &keys);
    if (status.ok()) status = ctx->allocate_output(1, {rows}, &present);
    if (status.ok()) {
      status = ctx->allocate_output(2, {live, live > 0 ? dim : 0}, &values);
    }
    ADAPTCP_RETURN_IF_ERROR(FromTensorFlow(status));
    int64_t row = 0, value = 0;
    for (const RowBlockView* block : blocks) {
      const GroupSpec& spec = segment->header().groups[block->group_index()];
      const int64_t n = block->rows();
      switch (spec.key_dtype) {
        case DType::kInt64:
          std::copy_n(block->int64_keys(), n, keys->flat<int64_t>().data() + row);
          break;
        case DType::kInt32:
          std::copy_n(block->int32_keys(), n, keys->flat<int32_t>().data() + row);
          break;
        default:
          Assign(block->string_keys(), row, keys);
      }
      for (int64_t i = 0; i < n; ++i) {
        present->flat<bool>()(row + i) = block->present(table, i);
      }
      row += n;
      const int64_t elements = block->present_rows(table) * dim;
      if (spec.tables[table].dtype == DType::kString) {
        Assign(block->string_values(table), value, values);
      } else if (elements > 0) {
        const size_t size = DTypeSize(spec.tables[table].dtype);
        block->ReadValues(table,
                          static_cast<char*>(values->data()) + value * size);
      }
      value += elements;
    }
    return Status::Ok();
  }

 private:
  static tf::DataType TypeOf(DType dtype) {
    return static_cast<tf::DataType>(static_cast<int>(dtype));
  }
  static void Assign(const std::vector<std::string_view>& from, int64_t at,
                     tf::Tensor* to) {
    auto flat = to->flat<tf::tstring>();
    for (const std::string_view text : from) {
      flat(at++).assign(text.data(), text.size());
    }
  }
};

ADAPTCP_OP("OpenSegment", OpenSegmentOp);
ADAPTCP_OP("CloseSegment", CloseSegmentOp);
ADAPTCP_OP("SegmentRows", SegmentRowsOp);
ADAPTCP_OP("RestoreRows", RestoreRowsOp);
ADAPTCP_OP("SegmentTable", SegmentTableOp);

}  // namespace
}  // namespace adaptcp

// Ops of a restore. Two ways lead to Group::RestoreRows: RestoreSegments, on the
// parameter server whose shards wrote the segments; and OpenSegment, SegmentRows
// and RestoreRows, between which a graph routes rows to other shards.

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/async_op.h"
#include "ops/kernels/checked_op.h"
#include "ops/kernels/segment_source.h"
#include "ops/kernels/session.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

#define ADAPTCP_OP_OK(ctx, expr) OP_REQUIRES_OK(ctx, ToTensorFlow(expr))

Status FindSession(const Json& request, std::shared_ptr<Session>* session) {
  return Registry::Get().FindSession(request.value("session", ""), session);
}

// A key of four bytes and an indicator.
constexpr uint64_t kMinRowBytes = 8;

class RestoreBeginOp : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* ctx) override {
    Json request;
    ADAPTCP_OP_OK(ctx, ParseRequest(ctx, "request", &request));
    std::shared_ptr<Session> session;
    ADAPTCP_OP_OK(ctx, FindSession(request, &session));
    Status status;
    ADAPTCP_OP_OK(
        ctx, Registry::Get().gate().RunExclusive(GateTimeout(request), [&] {
          TableContext context;
          for (const auto& group : session->groups()) {
            if (!status.ok()) return;
            status = group->RestoreBegin(
                context.get(), request.value("next_sequence", Seq{0}),
                request.value("base_sequence", Seq{0}));
          }
        }));
    ADAPTCP_OP_OK(ctx, status);
  }
};

// request: {session, head, levels: [{sequence, differential, objects: [...]}]}.
class RestoreSegmentsOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    std::vector<std::pair<RestoreLevel, Json>> objects;
    std::map<std::string, uint64_t> expected;  // rows of the largest level
    for (const Json& level : request.value("levels", Json::array())) {
      RestoreLevel parsed;
      parsed.head = request.value("head", Seq{0});
      parsed.written = level.value("sequence", Seq{0});
      parsed.from_differential = level.value("differential", false);
      std::map<std::string, uint64_t> rows;
      for (const Json& object : level.value("objects", Json::array())) {
        objects.emplace_back(parsed, object);
        // No more than fit in the file, whatever the manifest says.
        const uint64_t most = object.value("bytes", uint64_t{0}) / kMinRowBytes;
        for (const auto& [group, count] :
             object.value("rows", std::map<std::string, uint64_t>())) {
          rows[group] += std::min(count, most);
        }
      }
      for (const auto& [group, count] : rows) {
        expected[group] = std::max(expected[group], count);
      }
    }
    for (const auto& group : session->groups()) {
      const auto shards = std::count_if(
          session->groups().begin(), session->groups().end(),
          [&](const auto& other) {
            return other->spec().name == group->spec().name;
          });
      group->ExpectRows(expected[group->spec().name] / shards);
    }
    uint64_t bytes = 0;
    // The next object is read and verified while this one is applied.
    using Opened = std::pair<Status, std::unique_ptr<OpenedSegment>>;
    const auto open = [](const Json& object) -> Opened {
      std::unique_ptr<OpenedSegment> segment;
      Status status = OpenedSegment::Open(object, &segment);
      return {std::move(status), std::move(segment)};
    };
    std::future<Opened> next;
    for (size_t i = 0; i < objects.size(); ++i) {
      Opened opened = next.valid() ? next.get() : open(objects[i].second);
      ADAPTCP_RETURN_IF_ERROR(opened.first);
      if (i + 1 < objects.size()) {
        next = std::async(std::launch::async, open, objects[i + 1].second);
      }
      ADAPTCP_RETURN_IF_ERROR(
          Apply(ctx, *session, *opened.second, objects[i].first));
      bytes += objects[i].second.value("bytes", uint64_t{0});
    }
    return FromTensorFlow(SetReply(ctx, 0, Json{{"bytes", bytes}}.dump()));
  }

 private:
  // The context of the op: its threads help TFRA to insert.
  static Status Apply(tf::OpKernelContext* ctx, const Session& session,
                      const OpenedSegment& segment, const RestoreLevel& level) {
    for (const auto& block : segment.blocks()) {
      if (block->type != RecordType::kRows) continue;
      const GroupSpec& spec =
          segment.header().groups[block->rows.group_index()];
      Group* group = session.FindGroup(spec.name, spec.shard);
      if (group == nullptr || !(group->spec() == spec)) {
        return Status::InvalidArgument(
            "a segment holds shard " + std::to_string(spec.shard) + " of " +
            std::to_string(spec.num_shards) + " of group " + spec.name +
            ", which this process does not have in that form");
      }
      ADAPTCP_RETURN_IF_ERROR(
          group->RestoreBlock(ctx, block->rows, level));
    }
    return Status::Ok();
  }
};

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

// request: {name, object}. reply: {blocks: {group: n}}.
class OpenSegmentOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::unique_ptr<OpenedSegment> segment;
    ADAPTCP_RETURN_IF_ERROR(
        OpenedSegment::Open(request.value("object", Json::object()), &segment));
    std::map<std::string, uint64_t> blocks;
    for (const GroupSpec& group : segment->header().groups) {
      blocks[group.name] = segment->BlocksOf(group.name).size();
    }
    OpenSegments::Get().Put(request.value("name", ""), std::move(segment));
    return FromTensorFlow(SetReply(ctx, 0, Json{{"blocks", blocks}}.dump()));
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

// request: {session, group, shard, head, sequence, differential}.
class RestoreRowsOp : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* ctx) override {
    Json request;
    ADAPTCP_OP_OK(ctx, ParseRequest(ctx, "request", &request));
    std::shared_ptr<Session> session;
    ADAPTCP_OP_OK(ctx, FindSession(request, &session));
    Group* group = session->FindGroup(request.value("group", ""),
                                      request.value("shard", uint32_t{0}));
    OP_REQUIRES(ctx, group != nullptr,
                tf::errors::NotFound("no such group shard here: ",
                                     request.dump()));
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
    OP_REQUIRES(ctx, fit,
                tf::errors::InvalidArgument("rows of ", group->spec().name,
                                            " do not fit one another"));
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
    ADAPTCP_OP_OK(ctx, group->RestoreRows(ctx, rows, level));
  }
};

class RestoreEndOp : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* ctx) override {
    std::string name;
    ADAPTCP_OP_OK(ctx, ScalarText(ctx, 0, &name));
    std::shared_ptr<Session> session;
    ADAPTCP_OP_OK(ctx, Registry::Get().FindSession(name, &session));
    std::map<std::string, uint64_t> sizes;
    std::map<std::string, uint64_t> received;
    for (const auto& group : session->groups()) {
      group->RestoreEnd();
      received[group->spec().name] += group->received();
      for (size_t t = 0; t < group->tables().size(); ++t) {
        sizes[group->spec().tables[t].name] += group->tables()[t]->size();
      }
    }
    OP_REQUIRES_OK(ctx, SetReply(ctx, 0, Json{{"sizes", sizes}, {"received", received}}.dump()));
  }
};

// request: {objects: [...], names: [...]}: the tensors, whole, in that order.
class ReadDenseOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::map<std::string, int> index;
    for (const Json& name : request.value("names", Json::array())) {
      index.emplace(name.get<std::string>(), static_cast<int>(index.size()));
    }
    if (static_cast<int>(index.size()) != ctx->num_outputs()) {
      return Status::InvalidArgument(
          "asked for " + std::to_string(ctx->num_outputs()) +
          " tensors by " + std::to_string(index.size()) + " names");
    }
    std::vector<tf::Tensor*> outputs(index.size(), nullptr);
    std::vector<int64_t> missing(index.size(), 0);
    for (const Json& object : request.value("objects", Json::array())) {
      std::unique_ptr<OpenedSegment> segment;
      ADAPTCP_RETURN_IF_ERROR(OpenedSegment::Open(object, &segment));
      for (const auto& block : segment->blocks()) {
        if (block->type != RecordType::kDense) continue;
        const auto found = index.find(block->dense.slice.name);
        if (found == index.end()) continue;
        ADAPTCP_RETURN_IF_ERROR(Place(ctx, found->second, block->dense,
                                      &outputs, &missing));
      }
    }
    for (const auto& [name, i] : index) {
      if (outputs[i] == nullptr || missing[i] != 0) {
        return Status::DataLoss("dense tensor " + name +
                                " is not whole in the checkpoint");
      }
    }
    return Status::Ok();
  }

 private:
  // Copies a slice into its place in output i, allocated at its first slice.
  static Status Place(tf::OpKernelContext* ctx, int i,
                      const DenseBlockView& block,
                      std::vector<tf::Tensor*>* outputs,
                      std::vector<int64_t>* missing) {
    const DenseSlice& slice = block.slice;
    const auto dtype = static_cast<tf::DataType>(static_cast<int>(slice.dtype));
    tf::TensorShape shape;
    for (const uint64_t size : slice.shape) shape.AddDim(size);
    if (dtype != ctx->expected_output_dtype(i)) {
      return Status::InvalidArgument(
          "dense tensor " + slice.name + " is of type " +
          DTypeName(slice.dtype) + ", expected " +
          tf::DataTypeString(ctx->expected_output_dtype(i)));
    }
    tf::Tensor*& output = (*outputs)[i];
    if (output == nullptr) {
      ADAPTCP_RETURN_IF_ERROR(FromTensorFlow(ctx->allocate_output(i, shape, &output)));
      (*missing)[i] = output->NumElements();
    }
    if (output->shape() != shape) {
      return Status::DataLoss("slices of dense tensor " + slice.name +
                              " disagree on its shape");
    }
    (*missing)[i] -= slice.elements();
    // Rows along the last dimension are contiguous in both.
    const size_t dims = slice.shape.size();
    const uint64_t row = dims == 0 ? 1 : slice.slice_shape[dims - 1];
    if (slice.elements() == 0) return Status::Ok();
    std::vector<uint64_t> at(dims, 0);
    for (uint64_t done = 0; done < slice.elements(); done += row) {
      uint64_t to = 0;
      for (size_t d = 0; d < dims; ++d) {
        to = to * slice.shape[d] + slice.offset[d] + at[d];
      }
      if (slice.dtype == DType::kString) {
        for (uint64_t e = 0; e < row; ++e) {
          const std::string_view text = block.strings[done + e];
          output->flat<tf::tstring>()(to + e).assign(text.data(), text.size());
        }
      } else {
        const size_t size = DTypeSize(slice.dtype);
        std::memcpy(static_cast<char*>(output->data()) + to * size,
                    block.data.data() + done * size, row * size);
      }
      for (size_t d = dims > 0 ? dims - 1 : 0; d-- > 0;) {
        if (++at[d] < slice.slice_shape[d]) break;
        at[d] = 0;
      }
    }
    return Status::Ok();
  }
};

#define ADAPTCP_OP(name, kernel) \
  REGISTER_KERNEL_BUILDER(Name("Adaptcp>" name).Device(tf::DEVICE_CPU), kernel)

ADAPTCP_OP("RestoreBegin", CheckedOp<RestoreBeginOp>);
ADAPTCP_OP("RestoreSegments", RestoreSegmentsOp);
ADAPTCP_OP("OpenSegment", OpenSegmentOp);
ADAPTCP_OP("CloseSegment", CloseSegmentOp);
ADAPTCP_OP("SegmentRows", SegmentRowsOp);
ADAPTCP_OP("RestoreRows", CheckedOp<RestoreRowsOp>);
ADAPTCP_OP("RestoreEnd", RestoreEndOp);
ADAPTCP_OP("ReadDense", ReadDenseOp);

}  // namespace
}  // namespace adaptcp

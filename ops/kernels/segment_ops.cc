// Ops that read segments into tensors: those that a graph routes to the shards
// its rows belong to now (OpenStream, NextPiece, PieceRows, RestoreRows), and
// those that are read without any model (VerifySegment, SegmentTable).

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/kernels/async_op.h"
#include "ops/kernels/request_op.h"
#include "ops/kernels/restored_rows.h"
#include "ops/kernels/row_stream.h"
#include "ops/kernels/segment_source.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

Status FindStream(const Json& request, std::shared_ptr<RowStream>* stream) {
  std::shared_ptr<Session> session;
  ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
  return session->FindStream(request.value("restore", uint64_t{0}), stream);
}

// Pieces of this size are worth the turn of a graph's loop.
constexpr size_t kPieceBytes = 4 << 20;

// request: {session, restore, specs, limits, groups: [...], levels:
// [{objects}]}: what this process reads for others, from now on, as a stream of
// rows of those groups. For specs see OpenedSegment, for limits StartReaders.
class OpenStreamOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext*, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    ReadRequest read;
    read.groups = request.value("groups", std::vector<std::string>());
    read.by_rows = true;
    read.piece_bytes = kPieceBytes;
    const auto readers = StartReaders(
        request, request.value("levels", Json::array()), std::move(read));
    return session->StartReading(request.value("restore", uint64_t{0}), readers,
                                 std::make_shared<RowStream>(readers));
  }
};

// request: {session, restore, level}.
class NextPieceOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<RowStream> stream;
    ADAPTCP_RETURN_IF_ERROR(FindStream(request, &stream));
    tf::Tensor *group = nullptr, *piece = nullptr;
    tf::Status status = ctx->allocate_output(0, {}, &group);
    if (status.ok()) status = ctx->allocate_output(1, {}, &piece);
    ADAPTCP_RETURN_IF_ERROR(FromTensorFlow(status));
    return stream->Next(request.value("level", size_t{0}),
                        group->scalar<int32_t>().data(),
                        piece->scalar<int64_t>().data());
  }

  void Cancelled(const Json& request) override {
    CancelRestore(request);
  }
};

// request: as NextPiece's.
class PieceRowsOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    if (!tf::TensorShapeUtils::IsScalar(ctx->input(1).shape())) {
      return Status::InvalidArgument("the piece must be a scalar");
    }
    std::shared_ptr<RowStream> stream;
    ADAPTCP_RETURN_IF_ERROR(FindStream(request, &stream));
    ObjectReaders::Piece piece;
    ADAPTCP_RETURN_IF_ERROR(
        stream->Take(ctx->input(1).scalar<int64_t>()(), &piece));
    const auto& object = static_cast<const SegmentObject&>(*piece.object());
    const auto& blocks = object.rows(piece.index()).blocks;
    const GroupSpec& spec = object.spec(*blocks[0]);
    RestoredRows rows;
    BlocksToRows(spec, blocks, &rows);
    const int64_t n = rows.keys.NumElements(), tables = spec.tables.size();
    bool fits = tables == ctx->num_outputs() - 3 &&
                rows.keys.dtype() == ctx->expected_output_dtype(0);
    for (int64_t t = 0; fits && t < tables; ++t) {
      fits = rows.values[t].dtype() == ctx->expected_output_dtype(3 + t);
    }
    if (!fits) {
      return Status::InvalidArgument(object.name() + " holds " + spec.name +
                                     " in other types than asked for");
    }
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
    return Status::Ok();
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
    rows.present.resize(fit ? n * tables : 0);
    for (int64_t t = 0; fit && t < tables; ++t) {
      const auto matrix = ctx->input(3).matrix<bool>();
      bool any = false;
      for (int64_t i = 0; i < n; ++i) {
        any = any || matrix(i, t);
        rows.present[t * n + i] = matrix(i, t);
      }
      const auto& table = group->tables()[t];
      const tf::TensorShape& received = ctx->input(4 + t).shape();
      tf::TensorShape none({0}), all({n});
      none.AppendShape(table->value_shape());
      all.AppendShape(table->value_shape());
      fit = rows.keys.dtype() == table->key_dtype() &&
            ctx->input(4 + t).dtype() == table->value_dtype() &&
            (received == all || (!any && received == none));
      rows.values.push_back(ctx->input(4 + t));
    }
    if (!fit) {
      return Status::InvalidArgument("rows of " + group->spec().name +
                                     " do not fit one another");
    }
    rows.p.assign(p.data(), p.data() + n);
    return session->RestoreRows(ctx, group, rows, LevelOf(request, request));
  }
};

// request: {object, specs, limits}. reply: {dense: {tensor: elements}}.
class VerifySegmentOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<SegmentObject> object;
    ADAPTCP_RETURN_IF_ERROR(ReadSegment(request, &object));
    std::map<std::string, uint64_t> dense;
    for (const auto& block : object->segment().blocks()) {
      if (block->type != RecordType::kDense) continue;
      dense[block->dense.slice.name] += block->dense.slice.elements();
    }
    return FromTensorFlow(SetReply(ctx, 0, Json{{"dense", dense}}.dump()));
  }
};

// request: {object, specs, limits, group, table}: the rows of one table in one
// segment.
class SegmentTableOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<SegmentObject> object;
    ADAPTCP_RETURN_IF_ERROR(ReadSegment(request, &object));
    const OpenedSegment* const segment = &object->segment();
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
      CopyKeys(spec.key_dtype, *block, row, keys);
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

ADAPTCP_OP("OpenStream", OpenStreamOp);
ADAPTCP_OP("NextPiece", NextPieceOp);
ADAPTCP_OP("PieceRows", PieceRowsOp);
ADAPTCP_OP("RestoreRows", RestoreRowsOp);
ADAPTCP_OP("VerifySegment", VerifySegmentOp);
ADAPTCP_OP("SegmentTable", SegmentTableOp);

}  // namespace
}  // namespace adaptcp

// Ops of a restore in place: parameter servers whose shards wrote the segments
// read what they wrote. segment_ops.cc has those of the other way, on which a
// graph routes rows to other shards.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ops/kernels/async_op.h"
#include "ops/kernels/request_op.h"
#include "ops/kernels/segment_source.h"
#include "ops/kernels/stock_kernel.h"
#include "ops/kernels/table_growth.h"
#include "ops/kernels/tf_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {
namespace {

namespace tf = tensorflow;

// A key of four bytes and an indicator.
constexpr uint64_t kMinRowBytes = 8;
// Threads that apply rows; no more than there are cores.
constexpr int kMostAppliers = 16;

// request: {session, restore, next_sequence, base_sequence, tables: {group:
// [whether to empty table t]}}; without "tables", everything is emptied.
class RestoreBeginOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext*, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    // All that may throw comes before anything is changed.
    const Seq next = request.value("next_sequence", Seq{0});
    const Seq base = request.value("base_sequence", Seq{0});
    const uint64_t number = request.value("restore", uint64_t{0});
    std::vector<std::pair<Group*, std::vector<bool>>> chosen;
    for (const auto& group : session->groups()) {
      std::vector<bool> empty(group->tables().size(), true);
      if (const auto tables = request.find("tables"); tables != request.end()) {
        const auto found = tables->find(group->spec().name);
        if (found == tables->end()) continue;
        empty = found->get<std::vector<bool>>();
      }
      if (empty.size() != group->tables().size()) {
        return Status::InvalidArgument(
            "group " + group->spec().name + ": Received: " +
            std::to_string(empty.size()) + " tables. Expected: " +
            std::to_string(group->tables().size()));
      }
      chosen.emplace_back(group.get(), std::move(empty));
    }
    Status status;
    ADAPTCP_RETURN_IF_ERROR(
        Registry::Get().gate().RunExclusive(kGateTimeout, [&] {
          TableContext context;
          status = session->BeginRestore(number);
          for (const auto& [group, empty] : chosen) {
            if (!status.ok()) return;
            status =
                group->RestoreBegin(context.get(), number, next, base, empty);
          }
        }));
    return status;
  }
};

// request: {session, restore, rows}.
class GrowTableOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    TableOfRestore of;
    ADAPTCP_RETURN_IF_ERROR(FindTableOfRestore(ctx, request, &of));
    const uint64_t rows = request.value("rows", uint64_t{0});
    tf::lookup::LookupInterface* const table = of.table.get();
    uint64_t slots = 0;
    {
      const GateScope inside(&Registry::Get().gate());
      Group* group = nullptr;
      ADAPTCP_RETURN_IF_ERROR(
          of.session->CheckTable(of.restore, "growth", table, &group));
      ADAPTCP_RETURN_IF_ERROR(GrowTable(ctx, table, rows, &slots));
    }
    ctx->set_output(0, tf::Tensor(table->key_dtype(), {0}));
    ctx->set_output(1, tf::Tensor(table->value_dtype(), {0}));
    tf::Tensor reply(tf::DT_INT64, {});
    reply.scalar<int64_t>()() = static_cast<int64_t>(slots);
    ctx->set_output(2, reply);
    return Status::Ok();
  }
};

// Where the rows of a group of the checkpoint go: for each table of a group of
// the model the table of the checkpoint that is restored into it, -1: none.
struct Destination {
  std::string group;
  std::vector<int64_t> take;
};

// request: {session, restore, head, specs, limits, groups: {group in the
// checkpoint: {group, take}}, levels: [{sequence, differential, objects:
// [...]}]}; for specs see OpenedSegment, for limits StartReaders. Rows of groups
// that are not among "groups" are left out.
class RestoreSegmentsOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext*, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    ReadRequest read;
    read.by_rows = true;
    Work work;
    work.session = session.get();
    const Json groups = request.value("groups", Json::object());
    for (const auto& [name, item] : groups.items()) {
      read.groups.push_back(name);
      work.destinations.push_back({item.value("group", ""),
                                   item.value("take", std::vector<int64_t>())});
    }
    const Json levels = request.value("levels", Json::array());
    for (const Json& level : levels) {
      work.levels.push_back(LevelOf(request, level));
    }
    Expect(levels, *session, groups);
    work.readers = StartReaders(request, levels, std::move(read));
    const uint64_t number = request.value("restore", uint64_t{0});
    ADAPTCP_RETURN_IF_ERROR(session->StartReading(number, work.readers));
    std::vector<std::thread> threads;
    const int appliers = std::clamp<int>(std::thread::hardware_concurrency(), 1,
                                         kMostAppliers);
    try {
      for (int i = 1; i < appliers; ++i) {
        threads.emplace_back([&] { Apply(work); });
      }
    } catch (const std::system_error&) {
      // It takes longer without.
    }
    Apply(work);
    for (std::thread& thread : threads) thread.join();
    return work.readers->status();
  }

  void Cancelled(const Json& request) override {
    CancelRestore(request);
  }

 private:
  struct Work {
    Session* session = nullptr;
    std::shared_ptr<ObjectReaders> readers;
    std::vector<RestoreLevel> levels;
    std::vector<Destination> destinations;  // by group of the ReadRequest
  };

  // Makes room for the rows of the largest level of each group.
  static void Expect(const Json& levels, const Session& session,
                     const Json& groups) {
    std::map<std::string, uint64_t> expected;
    for (const Json& level : levels) {
      std::map<std::string, uint64_t> rows;
      for (const Json& object : level.value("objects", Json::array())) {
        // No more than fit in the file, whatever the manifest says.
        const uint64_t most = object.value("bytes", uint64_t{0}) / kMinRowBytes;
        for (const auto& [group, count] :
             object.value("rows", std::map<std::string, uint64_t>())) {
          const auto to = groups.find(group);
          if (to == groups.end()) continue;
          rows[to->value("group", "")] += std::min(count, most);
        }
      }
      for (const auto& [group, count] : rows) {
        expected[group] = std::max(expected[group], count);
      }
    }
    for (const auto& group : session.groups()) {
      if (expected.count(group->spec().name) == 0) continue;
      const auto shards = std::count_if(
          session.groups().begin(), session.groups().end(),
          [&](const auto& other) {
            return other->spec().name == group->spec().name;
          });
      group->ExpectRows(expected[group->spec().name] / shards);
    }
  }

  // One of several threads, each of which applies blocks on its own: TFRA is
  // told of no other thread to help.
  static void Apply(const Work& work) {
    TableContext context;
    for (size_t level = 0; level < work.levels.size(); ++level) {
      for (;;) {
        ObjectReaders::Piece piece;
        if (!work.readers->Next(level, &piece).ok()) return;
        if (piece.object() == nullptr) break;
        const Status status =
            ApplyPiece(context.get(), work, piece, work.levels[level]);
        if (!status.ok()) {
          work.readers->Stop(status);
          return;
        }
      }
    }
  }

  static Status ApplyPiece(tf::OpKernelContext* ctx, const Work& work,
                           const ObjectReaders::Piece& piece,
                           const RestoreLevel& level) {
    const auto& object = static_cast<const SegmentObject&>(*piece.object());
    const SegmentObject::Rows& from = object.rows(piece.index());
    const Destination& to = work.destinations[from.group];
    for (const RowBlockView* block : from.blocks) {
      const GroupSpec& spec = object.spec(*block);
      Group* group = work.session->FindGroup(to.group, spec.shard);
      if (group == nullptr || !Fits(spec, to.take, group->spec())) {
        return Status::InvalidArgument(
            "a segment holds shard " + std::to_string(spec.shard) + " of " +
            std::to_string(spec.num_shards) + " of group " + spec.name +
            ", which this process does not have in that form");
      }
      RestoredRows rows;
      BlocksToRows(spec, {block}, &rows);
      Arrange(to.take, &rows);
      ADAPTCP_RETURN_IF_ERROR(
          work.session->RestoreRows(ctx, group, rows, level));
    }
    return Status::Ok();
  }

  static bool Fits(const GroupSpec& from, const std::vector<int64_t>& take,
                   const GroupSpec& to) {
    bool fits = from.num_shards == to.num_shards &&
                from.key_dtype == to.key_dtype &&
                take.size() == to.tables.size();
    for (size_t t = 0; fits && t < take.size(); ++t) {
      if (take[t] < 0) continue;
      fits = take[t] < static_cast<int64_t>(from.tables.size()) &&
             from.tables[take[t]].dtype == to.tables[t].dtype &&
             from.tables[take[t]].dim == to.tables[t].dim;
    }
    return fits;
  }

  // Puts the columns where their tables are in the model.
  static void Arrange(const std::vector<int64_t>& take, RestoredRows* rows) {
    const size_t n = rows->keys.NumElements();
    std::vector<uint8_t> present(take.size() * n, 0);
    std::vector<tf::Tensor> values(take.size());
    for (size_t t = 0; t < take.size(); ++t) {
      if (take[t] < 0) continue;
      std::copy_n(rows->present.begin() + take[t] * n, n,
                  present.begin() + t * n);
      values[t] = rows->values[take[t]];
    }
    rows->present = std::move(present);
    rows->values = std::move(values);
  }
};

// request: {session, restore}.
class RestoreEndOp : public RequestOp {
 public:
  using RequestOp::RequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    const GateScope inside(&Registry::Get().gate());
    // The entries of tombstones that it drops may be those of a later one.
    const uint64_t number = request.value("restore", uint64_t{0});
    ADAPTCP_RETURN_IF_ERROR(session->CheckRestore(number, "the end"));
    std::map<std::string, uint64_t> sizes, inserted, received;
    for (const auto& group : session->groups()) {
      ADAPTCP_RETURN_IF_ERROR(group->RestoreEnd(number));
      received[group->spec().name] += group->received();
      for (size_t t = 0; t < group->tables().size(); ++t) {
        const std::string& table = group->spec().tables[t].name;
        sizes[table] += group->tables()[t]->size();
        inserted[table] += group->inserted(t);
      }
    }
    return FromTensorFlow(SetReply(
        ctx, 0,
        Json{{"sizes", sizes}, {"inserted", inserted}, {"received", received}}
            .dump()));
  }
};

class RestoreProgressOp : public SessionOp {
 public:
  using SessionOp::SessionOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, Session* session) override {
    return FromTensorFlow(SetReply(ctx, 0, session->RestoreProgress().dump()));
  }
};

ADAPTCP_OP("RestoreBegin", RestoreBeginOp);
ADAPTCP_OP("GrowTable", GrowTableOp);
ADAPTCP_OP("RestoreSegments", RestoreSegmentsOp);
ADAPTCP_OP("RestoreEnd", RestoreEndOp);
ADAPTCP_OP("RestoreProgress", RestoreProgressOp);

}  // namespace
}  // namespace adaptcp

// Ops of a restore in place: parameter servers whose shards wrote the segments
// read what they wrote. segment_ops.cc has those of the other way, on which a
// graph routes rows to other shards.

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <string>
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

// A key of four bytes and an indicator.
constexpr uint64_t kMinRowBytes = 8;

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
        Registry::Get().gate().RunExclusive(GateTimeout(request), [&] {
          TableContext context;
          status = session->BeginRestore(number);
          for (const auto& [group, empty] : chosen) {
            if (!status.ok()) return;
            status = group->RestoreBegin(context.get(), next, base, empty);
          }
        }));
    return status;
  }
};

// Where the rows of a group of the checkpoint go: for each table of a group of
// the model the table of the checkpoint that is restored into it, -1: none.
struct Destination {
  std::string group;
  std::vector<int64_t> take;
};

// request: {session, restore, head, specs, groups: {group in the checkpoint:
// {group, take}}, levels: [{sequence, differential, objects: [...]}]}; for specs
// see OpenedSegment. Rows of groups that are not among "groups" are left out.
class RestoreSegmentsOp : public AsyncRequestOp {
 public:
  using AsyncRequestOp::AsyncRequestOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, const Json& request) override {
    std::shared_ptr<Session> session;
    ADAPTCP_RETURN_IF_ERROR(FindSession(request, &session));
    std::map<std::string, Destination> destinations;
    const Json groups = request.value("groups", Json::object());
    for (const auto& [name, item] : groups.items()) {
      destinations[name] = {item.value("group", ""),
                            item.value("take", std::vector<int64_t>())};
    }
    const Json specs = request.value("specs", Json());
    std::vector<std::pair<RestoreLevel, Json>> objects;
    std::map<std::string, uint64_t> expected;  // rows of the largest level
    for (const Json& level : request.value("levels", Json::array())) {
      RestoreLevel parsed;
      parsed.head = request.value("head", Seq{0});
      parsed.written = level.value("sequence", Seq{0});
      parsed.from_differential = level.value("differential", false);
      parsed.restore = request.value("restore", uint64_t{0});
      std::map<std::string, uint64_t> rows;
      for (const Json& object : level.value("objects", Json::array())) {
        objects.emplace_back(parsed, object);
        // No more than fit in the file, whatever the manifest says.
        const uint64_t most = object.value("bytes", uint64_t{0}) / kMinRowBytes;
        for (const auto& [group, count] :
             object.value("rows", std::map<std::string, uint64_t>())) {
          const auto to = destinations.find(group);
          if (to == destinations.end()) continue;
          rows[to->second.group] += std::min(count, most);
        }
      }
      for (const auto& [group, count] : rows) {
        expected[group] = std::max(expected[group], count);
      }
    }
    for (const auto& group : session->groups()) {
      if (expected.count(group->spec().name) == 0) continue;
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
    const auto open = [&specs](const Json& object) -> Opened {
      std::unique_ptr<OpenedSegment> segment;
      Status status = OpenedSegment::Open(object, specs, &segment);
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
          Apply(ctx, *session, *opened.second, destinations, objects[i].first));
      bytes += objects[i].second.value("bytes", uint64_t{0});
    }
    return FromTensorFlow(SetReply(ctx, 0, Json{{"bytes", bytes}}.dump()));
  }

 private:
  // The context of the op: its threads help TFRA to insert.
  static Status Apply(tf::OpKernelContext* ctx, const Session& session,
                      const OpenedSegment& segment,
                      const std::map<std::string, Destination>& destinations,
                      const RestoreLevel& level) {
    for (const auto& block : segment.blocks()) {
      if (block->type != RecordType::kRows) continue;
      const GroupSpec& spec =
          segment.header().groups[block->rows.group_index()];
      const auto to = destinations.find(spec.name);
      if (to == destinations.end()) continue;
      Group* group = session.FindGroup(to->second.group, spec.shard);
      if (group == nullptr || !Fits(spec, to->second.take, group->spec())) {
        return Status::InvalidArgument(
            "a segment holds shard " + std::to_string(spec.shard) + " of " +
            std::to_string(spec.num_shards) + " of group " + spec.name +
            ", which this process does not have in that form");
      }
      RestoredRows rows;
      ADAPTCP_RETURN_IF_ERROR(BlockToRows(spec, block->rows, &rows));
      Arrange(to->second.take, &rows);
      ADAPTCP_RETURN_IF_ERROR(session.RestoreRows(ctx, group, rows, level));
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

class RestoreEndOp : public SessionOp {
 public:
  using SessionOp::SessionOp;

 protected:
  Status Run(tf::OpKernelContext* ctx, Session* session) override {
    std::map<std::string, uint64_t> sizes;
    std::map<std::string, uint64_t> received;
    for (const auto& group : session->groups()) {
      group->RestoreEnd();
      received[group->spec().name] += group->received();
      for (size_t t = 0; t < group->tables().size(); ++t) {
        sizes[group->spec().tables[t].name] += group->tables()[t]->size();
      }
    }
    return FromTensorFlow(SetReply(
        ctx, 0, Json{{"sizes", sizes}, {"received", received}}.dump()));
  }
};

ADAPTCP_OP("RestoreBegin", RestoreBeginOp);
ADAPTCP_OP("RestoreSegments", RestoreSegmentsOp);
ADAPTCP_OP("RestoreEnd", RestoreEndOp);

}  // namespace
}  // namespace adaptcp

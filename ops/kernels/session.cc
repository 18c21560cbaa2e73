#include "ops/kernels/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <utility>

#include "ops/kernels/save_options.h"
#include "ops/kernels/save_writer.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

Status ParseGroup(const Json& request, GroupSpec* spec) {
  spec->name = request.value("group", "");
  spec->shard = request.value("shard", uint32_t{0});
  spec->num_shards = request.value("num_shards", uint32_t{1});
  ADAPTCP_RETURN_IF_ERROR(
      ParseDType(request.value("key_dtype", ""), &spec->key_dtype));
  for (const Json& table : request.value("tables", Json::array())) {
    TableSpec parsed;
    parsed.name = table.value("name", "");
    parsed.dim = table.value("dim", uint32_t{0});
    ADAPTCP_RETURN_IF_ERROR(
        ParseDType(table.value("dtype", ""), &parsed.dtype));
    spec->tables.push_back(std::move(parsed));
  }
  return Status::Ok();
}

Status ParseTracker(const Json& request, TrackerOptions* options) {
  options->decay = request.value("decay", 0.9);
  const std::string estimator = request.value("estimator", "updates");
  if (estimator != "updates" && estimator != "accesses") {
    return Status::InvalidArgument("estimator: Received: " + estimator +
                                   " Expected: updates or accesses");
  }
  if (estimator == "accesses") options->estimator = Estimator::kAccesses;
  return Status::Ok();
}

}  // namespace

const std::string& Incarnation() {
  static const std::string name = [] {
    std::random_device random;
    char text[40];
    std::snprintf(text, sizeof(text), "%d-%08x%08x", static_cast<int>(getpid()),
                  random(), random());
    return std::string(text);
  }();
  return name;
}

// ---------------------------------------------------------------- Session

Session::~Session() {
  SetHurry(false);
  if (records_accesses_) --Registry::Get().watching_lookups();
}

Status Session::AddGroup(GroupSpec spec, Group::Tables tables,
                         const TrackerOptions& options, Group** group) {
  if (FindGroup(spec.name, spec.shard) != nullptr) {
    return Status::InvalidArgument("group " + spec.name + ", shard " +
                                   std::to_string(spec.shard) +
                                   ", is attached twice");
  }
  std::unique_ptr<Group> made;
  ADAPTCP_RETURN_IF_ERROR(Group::Make(std::move(spec), groups_.size(),
                                      std::move(tables), options, &made));
  if (options.estimator == Estimator::kAccesses && !records_accesses_) {
    records_accesses_ = true;
    ++Registry::Get().watching_lookups();
  }
  *group = made.get();
  groups_.push_back(std::move(made));
  return Status::Ok();
}

Group* Session::FindGroup(const std::string& name, uint32_t shard) const {
  for (const auto& group : groups_) {
    if (group->spec().name == name && group->spec().shard == shard) {
      return group.get();
    }
  }
  return nullptr;
}

Status Session::Cut(const Json& request, Json* reply) {
  // All that may throw comes before anything is changed.
  const uint64_t wide = request.value("sequence", uint64_t{0});
  if (wide > kMaxSequence) {
    return Status::InvalidArgument(
        "bad checkpoint sequence. Received: " + std::to_string(wide) +
        " Expected: 1 to " + std::to_string(kMaxSequence));
  }
  const Seq sequence = static_cast<Seq>(wide);
  const Seq last_committed = request.value("last_committed", Seq{0});
  const Seq last_scanned = request.value("last_scanned_base", Seq{0});
  const bool hurry = request.value("lookup_capture", false);
  const CutKind kind = request.value("kind", "") == "base" ? CutKind::kBase
                                                           : CutKind::kDelta;
  const auto thresholds =
      request.value("thresholds", std::map<std::string, double>());
  SaveOptions options;
  ParseCaptureOptions(request, &options);
  const auto pipeline = std::make_shared<SavePipeline>(
      options.capture_memory_bytes, options.update_wait);
  Seq pending = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (saving_ != 0) {
      return Status::FailedPrecondition(
          "checkpoint " + std::to_string(saving_) +
          (saving_ == pending_ ? " is still being saved"
                               : " was given up, and its save has not ended"));
    }
    pending = pending_;
  }
  if (pending != 0) {
    const bool committed = pending == last_committed;
    ADAPTCP_RETURN_IF_ERROR(
        Resolve(pending, committed, committed ? last_scanned : 0));
  }
  for (const auto& group : groups_) {
    if (kind == CutKind::kDelta && group->NeedsBase()) {
      (*reply)["replaced"].push_back(group->spec().name);
    }
  }
  if (reply->contains("replaced")) return Status::Ok();
  (*reply)["tables"] = Json::object();
  for (const auto& group : groups_) {
    const auto found = thresholds.find(group->spec().name);
    const double threshold = found == thresholds.end() ? 2.0 : found->second;
    const Status status = group->Cut({sequence, kind, threshold});
    if (!status.ok()) {
      // Undo the groups that were cut: nothing is pending.
      (void)ResolveGroups(sequence, false, 0);
      return status;
    }
    for (size_t t = 0; t < group->tables().size(); ++t) {
      Json& size = (*reply)["tables"][group->spec().tables[t].name];
      size = (size.is_null() ? uint64_t{0} : size.get<uint64_t>()) +
             group->tables()[t]->size();
    }
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    pending_ = sequence;
    pipeline_ = pipeline;
    SetHurry(hurry);
  }
  return Status::Ok();
}

void Session::SetHurry(bool wanted) {
  if (wants_hurry_.exchange(wanted) != wanted) {
    Registry::Get().watching_lookups() += wanted ? 1 : -1;
  }
}

void Session::StopHurrying(Seq sequence) {
  std::lock_guard<std::mutex> lock(mu_);
  if (pending_ == sequence) SetHurry(false);
}

std::shared_ptr<SavePipeline> Session::pipeline() const {
  std::lock_guard<std::mutex> lock(mu_);
  return pipeline_;
}

void Session::GiveUpSave(const Status& why) const {
  if (const auto pending = pipeline()) pending->Abort(why);
}

Status Session::ResolveGroups(Seq sequence, bool committed, Seq scanned_base) {
  Status first;
  for (const auto& group : groups_) {
    const Status status = group->Resolve(sequence, committed, scanned_base);
    if (first.ok()) first = status;
  }
  return first;
}

Status Session::Resolve(Seq sequence, bool committed, Seq scanned_base) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (pending_ != sequence || sequence == 0) return Status::Ok();
    if (saving_ != 0 && committed) {
      return Status::FailedPrecondition(
          "checkpoint " + std::to_string(sequence) +
          " cannot be committed: it is still being saved");
    }
    if (!committed) {
      // No capture may begin once rows are back on the unsaved lists, and no
      // write may find no pipeline before the save has failed.
      pipeline_->Abort(Status::Cancelled(
          "checkpoint " + std::to_string(sequence) + " was given up"));
    }
    pipeline_.reset();
    pending_ = 0;
    SetHurry(false);
  }
  const Status status = ResolveGroups(sequence, committed, scanned_base);
  // Until it has ended no other one can be saved.
  std::unique_lock<std::mutex> lock(mu_);
  saved_.wait_for(lock, 4 * kWriterGrace, [&] { return saving_ == 0; });
  return status;
}

// ---------------------------------------------------------------- Registry

Registry& Registry::Get() {
  // Never destroyed: ops may still run while the process exits.
  static Registry* const registry = new Registry();
  return *registry;
}

const Registry::Entry* Registry::Find(
    const tf::lookup::LookupInterface* table) const {
  const auto it = tables_.find(table);
  return it == tables_.end() ? nullptr : &it->second;
}

bool Registry::BeginReplacing(const tf::lookup::LookupInterface* table) {
  const GateScope inside(&gate_);
  if (Find(table) != nullptr) return false;
  std::lock_guard<std::mutex> lock(mu_);
  replaced_.insert(table);
  return true;
}

void Registry::EndReplacing(const tf::lookup::LookupInterface* table) {
  std::lock_guard<std::mutex> lock(mu_);
  replaced_.erase(replaced_.find(table));
  replaced_fewer_.notify_all();
}

Status Registry::Attach(const Json& request, Group::Tables tables,
                        Json* reply) {
  const std::string name = request.value("session", "");
  if (name.empty()) return Status::InvalidArgument("attach names no session");
  std::shared_ptr<Session> session;
  {
    std::lock_guard<std::mutex> lock(mu_);
    std::shared_ptr<Session>& slot = sessions_[name];
    if (slot == nullptr) slot = std::make_shared<Session>(name);
    session = slot;
  }
  if (tables.empty()) return Status::Ok();
  GroupSpec spec;
  ADAPTCP_RETURN_IF_ERROR(ParseGroup(request, &spec));
  TrackerOptions options;
  ADAPTCP_RETURN_IF_ERROR(ParseTracker(request, &options));
  std::vector<const tf::lookup::LookupInterface*> addresses;
  for (const auto& table : tables) addresses.push_back(table.get());
  const auto none_is_replaced = [&] {
    return std::none_of(
        addresses.begin(), addresses.end(),
        [&](const auto* address) { return replaced_.count(address) > 0; });
  };
  {
    std::unique_lock<std::mutex> lock(mu_);
    (void)replaced_fewer_.wait_for(lock, kGateTimeout, none_is_replaced);
  }
  Status status;
  std::vector<std::shared_ptr<Session>> superseded;
  ADAPTCP_RETURN_IF_ERROR(gate_.RunExclusive(kGateTimeout, [&] {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!none_is_replaced()) {
        status = Status::FailedPrecondition(
            "a table of group " + spec.name +
            " can't be tracked: it is being imported, loaded or cleared");
        return;
      }
    }
    Group* group = nullptr;
    status = session->AddGroup(spec, std::move(tables), options, &group);
    if (!status.ok()) return;
    (*reply)["sizes"] = Json::array();
    for (const auto& table : group->tables()) {
      (*reply)["sizes"].push_back(table->size());
    }
    for (const auto* address : addresses) {
      Entry& entry = tables_[address];
      if (entry.session != nullptr && entry.session != session) {
        // Before anybody writes past it: its rows would be of after its cut.
        entry.session->GiveUpSave(Status::Cancelled(
            "session " + name + " has taken over the tables of session " +
            entry.session->name()));
        superseded.push_back(entry.session);
      }
      entry = {session, group, address == addresses[0]};
    }
  }));
  for (const auto& old : superseded) {
    ADAPTCP_RETURN_IF_ERROR(Detach(old->name()));
  }
  return status;
}

Status Registry::Detach(const std::string& name) {
  std::shared_ptr<Session> session;
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto it = sessions_.find(name);
    if (it != sessions_.end()) {
      session = it->second;
      sessions_.erase(it);
    }
  }
  const auto is_its = [&](const auto& table) {
    return table.second.session->name() == name;
  };
  if (session != nullptr) {
    session->VoidScans();
    const Status ended = Status::Cancelled("session " + name + " has ended");
    session->StopReading(0, ended);
    session->GiveUpSave(ended);
  } else {
    // Perhaps the gate did not close in time for the one before.
    const GateScope inside(&gate_);
    if (std::none_of(tables_.begin(), tables_.end(), is_its)) {
      return Status::Ok();
    }
  }
  // The last reference may be an entry's. To destroy a session takes long, and
  // is left until the gate is open.
  std::vector<std::shared_ptr<Session>> ended;
  return gate_.RunExclusive(kGateTimeout, [&] {
    for (auto it = tables_.begin(); it != tables_.end();) {
      if (!is_its(*it)) {
        ++it;
        continue;
      }
      ended.push_back(std::move(it->second.session));
      it = tables_.erase(it);
    }
  });
}

Status Registry::FindSession(const std::string& name,
                             std::shared_ptr<Session>* session) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto it = sessions_.find(name);
  if (it == sessions_.end()) {
    return Status::FailedPrecondition(
        "this process (" + Incarnation() + ") has no session " + name +
        ": it was restarted, or a newer manager took its tables over");
  }
  *session = it->second;
  return Status::Ok();
}

std::map<std::string, uint64_t> Registry::generations() const {
  std::lock_guard<std::mutex> lock(mu_);
  return generations_;
}

Status Registry::CheckGeneration(const std::string& directory,
                                 uint64_t generation) {
  std::lock_guard<std::mutex> lock(mu_);
  uint64_t& newest = generations_[directory];
  if (generation < newest) {
    return Status::FailedPrecondition(
        "generation " + std::to_string(generation) + " of " + directory +
        " is superseded: generation " + std::to_string(newest) +
        " has written through this process");
  }
  newest = generation;
  return Status::Ok();
}

}  // namespace adaptcp

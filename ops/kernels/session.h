// What one CheckpointManager has on one parameter server: its groups and its
// pending checkpoint; and the registry through which table ops find them.

#ifndef ADAPTCP_OPS_KERNELS_SESSION_H_
#define ADAPTCP_OPS_KERNELS_SESSION_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/io/local/object_readers.h"
#include "ops/io/local/save_pipeline.h"
#include "ops/io/local/transfer_limits.h"
#include "ops/kernels/group.h"
#include "ops/tracker/gate.h"
#include "ops/util/pace.h"
#include "tensorflow/core/framework/tensor.h"

namespace adaptcp {

class RowStream;
class SaveWriter;
struct SaveOptions;

// Thread-safe. At most one checkpoint is pending.
class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(std::string name) : name_(std::move(name)) {}
  ~Session();

  const std::string& name() const { return name_; }

  // Gate closed. Fails if the group shard is there already.
  Status AddGroup(GroupSpec spec, Group::Tables tables,
                  const TrackerOptions& options, Group** group);
  Group* FindGroup(const std::string& name, uint32_t shard) const;
  const std::vector<std::unique_ptr<Group>>& groups() const { return groups_; }

  // Gate closed. Resolves a checkpoint left pending (committed iff it is
  // `last_committed`, going by `last_scanned_base`), then takes the cut of
  // request.sequence. Takes none, and replies {replaced: [groups]}, if it is a
  // delta and tables have been cleared, imported or loaded since the base: the
  // next checkpoint has to be a base.
  Status Cut(const Json& request, Json* reply);

  // Of the rows that the pending cut may have to save, as they are in tables.
  uint64_t CutBytes() const;

  // Blocks until the pending cut is durable in segments, or failed. What the
  // store hangs then is left behind. request: see ParseSaveOptions and
  // SegmentPlan; after request.rest_ms, if given, no thread rests any more.
  Status Save(const Json& request, const std::vector<tensorflow::Tensor>& dense,
              Json* reply);

  // Writes to its tables so far, and lookups where any are watched: saves give
  // way to others only while there are some.
  void CountUse() { uses_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t uses() const { return uses_.load(std::memory_order_relaxed); }

  // Blocks until every row of that cut is captured, or its checkpoint has ended.
  void WaitCaptured(Seq sequence) const;

  // Blocks until all rows, read beside training and checkpoints, are durable in
  // segments of a base that starts at the cut request.start. request: as Save's,
  // with `start`.
  Status Scan(tensorflow::OpKernelContext* ctx, const Json& request,
              Json* reply);
  // --- Restores (session_restore.cc).

  // Gate closed: rows of other restores are refused from now on, and what those
  // read is let go. So is the begin of one before it, which comes late: it would
  // empty what has been restored.
  Status BeginRestore(uint64_t number);
  // FailedPrecondition, with what came too late, if another restore has begun.
  Status CheckRestore(uint64_t number, const char* what) const;
  // Inside the gate: the group of a table that a restore may write to.
  // FailedPrecondition, with what came too late, if another restore has begun, or
  // another session has the table.
  Status CheckTable(uint64_t number, const char* what,
                    const tensorflow::lookup::LookupInterface* table,
                    Group** group) const;
  // Keeps what reads objects for a restore, until another begins or the session
  // ends; a stream may be null. FailedPrecondition if another has begun.
  Status StartReading(uint64_t number, std::shared_ptr<ObjectReaders> readers,
                      std::shared_ptr<RowStream> stream = nullptr);
  // Ends what reads for a restore, 0: whichever: nobody waits for it any more.
  void StopReading(uint64_t number, const Status& why);
  // FailedPrecondition if another restore has begun, or it reads no stream.
  Status FindStream(uint64_t number, std::shared_ptr<RowStream>* stream) const;
  // Rows into a group, inside the gate. FailedPrecondition if another restore
  // has begun: an op that nobody waits for any more may come late.
  Status RestoreRows(tensorflow::OpKernelContext* ctx, Group* group,
                     const RestoredRows& rows, const RestoreLevel& level) const;
  // {bytes, rows, peak_bytes, threads}: of the restore that began last.
  Json RestoreProgress() const;

  // Makes running scans fail: nobody wants them any more, or what they have read
  // is void, as the tables are about to be emptied.
  void VoidScans();

  // Idempotent; aborts a running save of that sequence when not committed, and
  // waits, for moments, until it has ended. scanned_base: see
  // GroupTracker::Resolve.
  Status Resolve(Seq sequence, bool committed, Seq scanned_base);

  // Whether lookups should hurry what they read: a save is capturing.
  bool wants_hurry() const { return wants_hurry_.load(); }

  // The pending checkpoint's, or null.
  std::shared_ptr<SavePipeline> pipeline() const;
  // Makes the pending checkpoint fail, if there is one.
  void GiveUpSave(const Status& why) const;

  Json Stats() const;
  // What the rows' p would be at a cut request.sequence taken now: for a policy
  // that decides by it. Of a sample; any thread, no gate.
  Json Histograms(const Json& request) const;
  // The same of the unsaved rows, by what a delta cut of that request makes of
  // them: {group: [hot, cold]}, or, of a base, which rows there are.
  Json Predict(const Json& request) const;

 private:
  uint64_t SampleSize() const;
  // Unavailable if the store hangs too many that came before.
  Status MakeWriter(const Json& request, const SaveOptions& options,
                    const std::shared_ptr<SavePipeline>& pipeline,
                    std::shared_ptr<SaveWriter>* writer);
  // Captures all that the pending cut needs, in as many threads as there is work
  // for.
  void Drain(Seq sequence, SavePipeline* pipeline, Pace* pace,
             int most_threads);
  // Hands all rows over, read beside training.
  Status ScanGroups(tensorflow::OpKernelContext* ctx, Seq start,
                    SavePipeline* pipeline, Pace* pace);
  Status ResolveGroups(Seq sequence, bool committed, Seq scanned_base);
  // Under mu_.
  void SetHurry(bool wanted);
  // All rows of that cut are captured: lookups need not look for any.
  void StopHurrying(Seq sequence);

  const std::string name_;
  std::vector<std::unique_ptr<Group>> groups_;  // grows under the closed gate
  mutable std::mutex mu_;  // guards what follows; held for moments only
  std::shared_ptr<SavePipeline> pipeline_;
  Seq pending_ = 0;  // 0: none
  // Being saved, 0: none. Of one that was given up while it is pending no more.
  Seq saving_ = 0;
  std::condition_variable saved_;  // saving_ became 0
  std::set<std::shared_ptr<SavePipeline>> scans_;  // that are running
  // SaveWriter::life of each; some have ended.
  std::vector<std::weak_ptr<const void>> writers_;
  std::atomic<bool> wants_hurry_{false};
  std::atomic<uint64_t> uses_{0};
  bool records_accesses_ = false;  // written with the gate closed
  // Of all saves and scans, also of those that a store has hung.
  const std::shared_ptr<StagingRoom> room_ = std::make_shared<StagingRoom>();
  const std::shared_ptr<RateLimit> rate_ = std::make_shared<RateLimit>();
  // Written with the gate closed and under mu_.
  std::atomic<uint64_t> restore_{0};
  uint64_t stopped_ = 0;  // the restore that reads nothing any more
  std::vector<std::shared_ptr<ObjectReaders>> reading_;  // for restore_
  std::shared_ptr<RowStream> stream_;
};

// Which group, and through it which tracker, a table belongs to. One for the
// process, with the process's gate.
class Registry {
 public:
  struct Entry {
    std::shared_ptr<Session> session;
    Group* group = nullptr;  // owned by the session
    bool is_parameter = false;  // not a slot
  };

  static Registry& Get();

  Gate& gate() { return gate_; }

  // Sessions that want to know of lookups: to hurry what they read, and to
  // count it. While there is none, lookups cost nothing more than to ask.
  std::atomic<int>& watching_lookups() { return watching_lookups_; }

  // Inside the gate, shared or closed. Null: the table is not tracked.
  const Entry* Find(const tensorflow::lookup::LookupInterface* table) const;

  // An op that changes a table as a whole, and may take minutes: false if the
  // table is tracked; else nobody attaches it until EndReplacing, and the op need
  // not be in the gate for that.
  bool BeginReplacing(const tensorflow::lookup::LookupInterface* table);
  void EndReplacing(const tensorflow::lookup::LookupInterface* table);

  // These close the gate. Attach takes tables over from an older session, which
  // then is superseded: its checkpoints fail. It waits, for as long as for the
  // gate, for ops that replace one of the tables. Detach may be repeated when it
  // has failed.
  Status Attach(const Json& request, Group::Tables tables, Json* reply);
  Status Detach(const std::string& session);

  // FailedPrecondition, naming the session, if there is none.
  Status FindSession(const std::string& name,
                     std::shared_ptr<Session>* session) const;

  // Refuses a coordinator that is behind another one which writes the same
  // directory: FailedPrecondition.
  Status CheckGeneration(const std::string& directory, uint64_t generation);
  // The newest generation that has written through this process, by directory.
  std::map<std::string, uint64_t> generations() const;

 private:
  Gate gate_;
  std::atomic<int> watching_lookups_{0};
  // Written with the gate closed, read inside it: no lock of its own.
  std::unordered_map<const tensorflow::lookup::LookupInterface*, Entry> tables_;
  mutable std::mutex mu_;  // guards what follows
  std::map<std::string, std::shared_ptr<Session>> sessions_;
  std::map<std::string, uint64_t> generations_;
  // Untracked tables, once for each op that replaces them.
  std::multiset<const tensorflow::lookup::LookupInterface*> replaced_;
  std::condition_variable replaced_fewer_;
};

// How long a cut or an attach waits for the ops inside the gate.
constexpr std::chrono::milliseconds kGateTimeout(30000);

// A random name this process keeps for life.
const std::string& Incarnation();

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_SESSION_H_

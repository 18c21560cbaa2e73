#include "ops/kernels/group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "ops/kernels/captured_rows.h"
#include "ops/kernels/row_reader.h"
#include "ops/kernels/table_growth.h"
#include "ops/tracker/key_order.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

// Rows read, claimed and queued in one go by the drain.
constexpr size_t kDrainRows = 4096;
// The same by the scan of a base. It goes stripe by stripe, and what it reads of
// one in several turns it reads from the same places of the table.
constexpr size_t kScanRows = 16384;
// The same by an update, while it waits: enough for several threads.
constexpr size_t kUpdateRows = 16384;
// Keys that lookups may have hurried and the drain has not taken yet.
constexpr size_t kMaxHurried = size_t{1} << 18;

// How a key is held in a tensor.
template <typename K>
struct KeyType {
  using Tensor = K;
};
template <>
struct KeyType<std::string> {
  using Tensor = tf::tstring;
};

// Of a captured row: key, indicator, class, presence.
constexpr size_t kBesideValues = 32;

template <typename K>
class GroupOf final : public Group {
 public:
  GroupOf(GroupSpec spec, uint32_t index, Tables tables,
          const TrackerOptions& options)
      : Group(std::move(spec), index, std::move(tables)),
        tracker_(options),
        row_bytes_(kBesideValues + spec_.row_bytes()) {}

  void BeforeWrite(tf::OpKernelContext* ctx, const tf::Tensor& keys,
                   SavePipeline* pipeline) override {
    std::vector<K> copies;
    const K* k = KeyData(keys, &copies);
    const size_t n = keys.NumElements();
    if (tracker_.pending() && pipeline != nullptr && pipeline->Begin()) {
      std::vector<uint32_t> idx;
      const Seq cut = tracker_.TouchOrCollect(k, n, &idx);
      if (!idx.empty()) {
        const Status status = CaptureForUpdate(ctx, cut, k, idx, pipeline);
        // Before End: the save cannot finish without seeing it.
        if (!status.ok()) pipeline->Abort(status);
        tracker_.TouchCollected(k, n, idx);
      }
      pipeline->End();
    } else {
      tracker_.Touch(k, n);
    }
  }

  tf::Tensor KeysWithEntries(const tf::Tensor& keys) const override {
    std::vector<K> copies;
    std::vector<uint32_t> known;
    tracker_.FindKnown(KeyData(keys, &copies), keys.NumElements(), &known);
    return GatherKeys(keys, known);
  }

  void BeforeReplace(tf::OpKernelContext* ctx,
                     SavePipeline* pipeline) override {
    const Seq cut = tracker_.pending_sequence();
    if (cut == 0 || pipeline == nullptr || !pipeline->Begin()) return;
    const auto deadline =
        std::chrono::steady_clock::now() + pipeline->update_wait();
    IndexCursor cursor;
    std::vector<K> keys;
    Status status;
    while (status.ok() &&
           tracker_.NextUnclaimed(cut, &cursor, kDrainRows, &keys)) {
      if (std::chrono::steady_clock::now() > deadline) {
        status = Status::DeadlineExceeded(
            "a table of " + spec_.name + " was cleared, imported or loaded " +
            "before this checkpoint was captured, which took longer than " +
            std::to_string(pipeline->update_wait().count()) + " ms");
      } else {
        status = Capture(ctx, cut, std::move(keys), pipeline,
                         CaptureSource::kUpdate);
      }
    }
    if (!status.ok()) pipeline->Abort(status);
    pipeline->End();
  }

  void AfterReplace(const tf::Tensor& keys) override {
    tracker_.MarkEverything();
    std::vector<K> copies;
    const K* k = KeyData(keys, &copies);
    tracker_.Touch(k, keys.NumElements());
  }

  bool NeedsBase() const override { return tracker_.NeedsBase(); }

  void Hurry(const tf::Tensor& keys) override {
    if (!tracker_.pending()) return;
    std::vector<K> copies;
    const K* k = KeyData(keys, &copies);
    std::vector<uint32_t> idx;
    const Seq cut = tracker_.CollectUncaptured(k, keys.NumElements(), &idx,
                                               /*wait=*/false);
    if (idx.empty()) return;
    std::lock_guard<std::mutex> lock(hurried_mu_);
    if (hurried_cut_ != cut) hurried_.clear();
    hurried_cut_ = cut;
    const size_t room = kMaxHurried - std::min(kMaxHurried, hurried_.size());
    for (size_t j = 0; j < std::min(room, idx.size()); ++j) {
      hurried_.push_back(k[idx[j]]);
    }
    has_hurried_.store(true, std::memory_order_relaxed);
  }

  void RecordAccesses(const tf::Tensor& keys) override {
    std::vector<K> copies;
    tracker_.RecordAccesses(KeyData(keys, &copies), keys.NumElements());
  }

  Status CaptureHurried(tf::OpKernelContext* ctx, Seq cut,
                        SavePipeline* pipeline) override {
    while (has_hurried_.load(std::memory_order_relaxed)) {
      std::vector<K> keys;
      {
        std::lock_guard<std::mutex> lock(hurried_mu_);
        if (hurried_cut_ != cut) hurried_.clear();
        // The latest first: of them the update is farthest away.
        while (!hurried_.empty() && keys.size() < kDrainRows) {
          keys.push_back(std::move(hurried_.back()));
          hurried_.pop_back();
        }
        has_hurried_.store(!hurried_.empty(), std::memory_order_relaxed);
      }
      // The update may have been faster, or another lookup have named them too.
      std::vector<uint32_t> idx;
      tracker_.CollectUncaptured(keys.data(), keys.size(), &idx);
      std::vector<K> wanted;
      wanted.reserve(idx.size());
      for (const uint32_t i : idx) wanted.push_back(std::move(keys[i]));
      if (wanted.empty()) continue;
      ADAPTCP_RETURN_IF_ERROR(CaptureInBackground(
          ctx, cut, std::move(wanted), pipeline, CaptureSource::kLookup));
    }
    return Status::Ok();
  }

  Status CaptureNext(tf::OpKernelContext* ctx, Seq cut, SavePipeline* pipeline,
                     bool* done) override {
    std::vector<K> keys;
    *done = !tracker_.NextPending(cut, kDrainRows, &keys);
    if (*done) return Status::Ok();
    std::vector<uint32_t> order;
    OrderByBucket(keys, tracker_.RoughRows(), &order);
    Arrange(order, &keys);
    return CaptureInBackground(ctx, cut, std::move(keys), pipeline,
                               CaptureSource::kDrain);
  }

  Status ScanNext(tf::OpKernelContext* ctx, Seq start, ScanCursor* cursor,
                  std::unique_ptr<CapturedBatch>* out) override {
    out->reset();
    auto batch = std::make_unique<CapturedRows<K>>();
    batch->index = index_;
    if (!tracker_.Scan(start, kScanRows, cursor, &batch->keys, &batch->p)) {
      return Status::Ok();
    }
    std::vector<uint32_t> order;
    OrderByBucket(batch->keys, tracker_.RoughRows(), &order);
    Arrange(order, &batch->keys);
    Arrange(order, &batch->p);
    std::vector<uint8_t> absent;
    ADAPTCP_RETURN_IF_ERROR(ReadTables(ctx, batch.get(), &absent));
    // Rows deleted meanwhile: their tombstones are in a level above.
    for (size_t i = 0; i < absent.size(); ++i) {
      if (!absent[i]) batch->cold.push_back(i);
    }
    *out = std::move(batch);
    return Status::Ok();
  }

  Seq current_sequence() const override { return tracker_.current_sequence(); }
  size_t row_bytes() const override { return row_bytes_; }
  uint64_t CutBytes() const override {
    return tracker_.Stats().pending_listed * row_bytes_;
  }
  uint64_t TotalBytes() const override { return keys() * row_bytes_; }
  uint64_t keys() const override { return tracker_.Stats().keys; }

  Status Cut(const CutRequest& request) override {
    return tracker_.Cut(request);
  }
  Status CheckCaptured(Seq cut) const override {
    const uint64_t left = tracker_.CountUncaptured(cut);
    if (left == 0) return Status::Ok();
    return Status::Internal("group " + spec_.name + ", shard " +
                            std::to_string(spec_.shard) + ": " +
                            std::to_string(left) + " rows of checkpoint " +
                            std::to_string(cut) + " were never captured");
  }
  Status Resolve(Seq sequence, bool committed, Seq scanned_base) override {
    return tracker_.Resolve(sequence, committed, scanned_base);
  }

  void Seed(const tf::Tensor& keys) override {
    std::vector<K> copies;
    tracker_.Seed(KeyData(keys, &copies), keys.NumElements());
  }

  Status RestoreBegin(tf::OpKernelContext* ctx, uint64_t number,
                      Seq next_sequence, Seq base_sequence,
                      const std::vector<bool>& empty) override {
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (!empty[t]) continue;
      ADAPTCP_RETURN_IF_ERROR(EmptyTable(ctx, tables_[t].get()));
    }
    received_ = 0;
    for (size_t t = 0; t < tables_.size(); ++t) inserted_[t] = 0;
    restore_ = number;
    writes_before_ = writes_.load();
    return tracker_.Reset(next_sequence, base_sequence);
  }

  void ExpectRows(uint64_t rows) override { tracker_.Reserve(rows); }

  Status RestoreRows(tf::OpKernelContext* ctx, const RestoredRows& rows,
                     const RestoreLevel& level) override {
    std::vector<K> copies;
    const K* k = KeyData(rows.keys, &copies);
    const size_t n = rows.keys.NumElements();
    std::vector<uint8_t> tombstone(n), fresh(n);
    for (size_t i = 0; i < n; ++i) {
      tombstone[i] = 1;
      for (size_t t = 0; t < tables_.size(); ++t) {
        if (rows.present[t * n + i]) tombstone[i] = 0;
      }
    }
    // p speaks of the cut at which its row was written.
    ADAPTCP_RETURN_IF_ERROR(tracker_.RestoreRows(
        k, n, tombstone.data(), rows.p.data(), level.head,
        level.from_differential, fresh.data(), level.head - level.written));
    for (size_t t = 0; t < tables_.size(); ++t) {
      std::vector<uint32_t> take;
      for (size_t i = 0; i < n; ++i) {
        if (fresh[i] && rows.present[t * n + i]) take.push_back(i);
      }
      if (take.empty()) continue;
      inserted_[t] += take.size();
      if (take.size() == n) {
        ADAPTCP_RETURN_IF_ERROR(
            FromTensorFlow(tables_[t]->Insert(ctx, rows.keys, rows.values[t])));
      } else {
        ADAPTCP_RETURN_IF_ERROR(FromTensorFlow(
            tables_[t]->Insert(ctx, GatherKeys(rows.keys, take),
                               GatherRows(rows.values[t], take))));
      }
    }
    received_ += n;
    return Status::Ok();
  }

  Status RestoreEnd(uint64_t number) override {
    tracker_.FinishRestore();
    const uint64_t written = writes_.load() - writes_before_;
    if (restore_ != number || written == 0) return Status::Ok();
    return Status::FailedPrecondition(
        "group " + spec_.name + ", shard " + std::to_string(spec_.shard) +
        ": Received: " + std::to_string(written) +
        " writes to its tables while it was restored. Expected: none, as "
        "nothing trains meanwhile");
  }
  uint64_t received() const override { return received_; }
  uint64_t inserted(size_t t) const override { return inserted_[t]; }

  Json Stats() const override {
    const TrackerStats stats = tracker_.Stats();
    return {{"keys", stats.keys},
            {"unsaved", stats.unsaved_listed},
            {"memory_bytes", stats.memory_bytes},
            {"row_bytes", row_bytes_},
            {"accesses", stats.accesses}};
  }

  PHistogram HistogramOfP(Seq as_of, double threshold,
                          uint64_t enough) const override {
    return tracker_.HistogramOfP(as_of, threshold, enough);
  }

 private:
  // The keys of a tensor; strings are copied into `copies`.
  static const K* KeyData(const tf::Tensor& keys, std::vector<K>* copies) {
    if constexpr (std::is_same_v<K, std::string>) {
      const auto flat = keys.flat<tf::tstring>();
      copies->reserve(flat.size());
      for (int64_t i = 0; i < flat.size(); ++i) copies->emplace_back(flat(i));
      return copies->data();
    } else {
      return keys.flat<K>().data();
    }
  }

  static tf::Tensor GatherRows(const tf::Tensor& values,
                               const std::vector<uint32_t>& idx) {
    const int64_t dim = values.dim_size(1);
    tf::Tensor out(values.dtype(), {static_cast<int64_t>(idx.size()), dim});
    if (values.dtype() == tf::DT_STRING) {
      const auto from = values.flat<tf::tstring>();
      auto to = out.flat<tf::tstring>();
      for (size_t j = 0; j < idx.size(); ++j) {
        for (int64_t d = 0; d < dim; ++d) {
          to(j * dim + d) = from(idx[j] * dim + d);
        }
      }
      return out;
    }
    const size_t bytes = dim * tf::DataTypeSize(values.dtype());
    const char* from = static_cast<const char*>(values.data());
    char* to = static_cast<char*>(out.data());
    for (size_t j = 0; j < idx.size(); ++j) {
      std::memcpy(to + j * bytes, from + idx[j] * bytes, bytes);
    }
    return out;
  }

  // Reads the rows of batch->keys from all tables. absent[i]: no table has it.
  Status ReadTables(tf::OpKernelContext* ctx, CapturedRows<K>* batch,
                    std::vector<uint8_t>* absent) {
    const size_t n = batch->keys.size();
    tf::Tensor keys(tables_[0]->key_dtype(), {static_cast<int64_t>(n)});
    auto flat = keys.flat<typename KeyType<K>::Tensor>();
    for (size_t i = 0; i < n; ++i) flat(i) = batch->keys[i];
    batch->present.resize(tables_.size());
    batch->values.resize(tables_.size());
    absent->assign(n, 1);
    for (size_t t = 0; t < tables_.size(); ++t) {
      ADAPTCP_RETURN_IF_ERROR(ReadRows(ctx, tables_[t].get(), keys,
                                       &batch->values[t], &batch->present[t]));
      for (size_t i = 0; i < n; ++i) (*absent)[i] &= !batch->present[t][i];
    }
    return Status::Ok();
  }

  // k[i] for each i of idx, before they are written. An op may name more rows
  // than there is capture memory for.
  Status CaptureForUpdate(tf::OpKernelContext* ctx, Seq cut, const K* k,
                          const std::vector<uint32_t>& idx,
                          SavePipeline* pipeline) {
    const auto deadline =
        std::chrono::steady_clock::now() + pipeline->update_wait();
    for (size_t from = 0; from < idx.size(); from += kUpdateRows) {
      if (from != 0 && std::chrono::steady_clock::now() > deadline) {
        return Status::DeadlineExceeded(
            "capturing " + std::to_string(idx.size()) + " rows of " +
            spec_.name + " before one op writes them took longer than " +
            std::to_string(pipeline->update_wait().count()) + " ms");
      }
      const size_t to = std::min(idx.size(), from + kUpdateRows);
      std::vector<K> wanted;
      wanted.reserve(to - from);
      for (size_t j = from; j < to; ++j) wanted.push_back(k[idx[j]]);
      ADAPTCP_RETURN_IF_ERROR(Capture(ctx, cut, std::move(wanted), pipeline,
                                      CaptureSource::kUpdate));
    }
    return Status::Ok();
  }

  // By a drain thread.
  Status CaptureInBackground(tf::OpKernelContext* ctx, Seq cut,
                             std::vector<K> keys, SavePipeline* pipeline,
                             CaptureSource source) {
    if (!pipeline->Begin()) return pipeline->status();
    const Status status = Capture(ctx, cut, std::move(keys), pipeline, source);
    if (!status.ok()) pipeline->Abort(status);
    pipeline->End();
    return status;
  }

  // Reads the rows of `keys`, claims those that are still uncaptured, queues
  // what was won. The read comes first: whoever writes a row has published its
  // old value before, so a row that can still be claimed was read unwritten.
  Status Capture(tf::OpKernelContext* ctx, Seq cut, std::vector<K> keys,
                 SavePipeline* pipeline, CaptureSource source) {
    const size_t n = keys.size();
    const size_t reserved = n * row_bytes_;
    ADAPTCP_RETURN_IF_ERROR(pipeline->Reserve(reserved, source));
    auto batch = std::make_unique<CapturedRows<K>>();
    batch->index = index_;
    batch->reserved = reserved;
    batch->keys = std::move(keys);
    std::vector<uint8_t> absent;
    const Status status = ReadTables(ctx, batch.get(), &absent);
    if (!status.ok()) {
      pipeline->Release(reserved);
      return status;
    }
    std::vector<RowClass> classes(n, RowClass::kLost);
    batch->p.resize(n);
    // How long strings are is known only now.
    const size_t more = batch->string_bytes();
    if (more > 0) pipeline->Charge(more);
    batch->reserved += more;
    tracker_.Claim(cut, batch->keys.data(), nullptr, n, absent.data(),
                   classes.data(), batch->p.data());
    for (size_t i = 0; i < n; ++i) {
      if (classes[i] == RowClass::kCold) batch->cold.push_back(i);
      if (classes[i] == RowClass::kHot) batch->hot.push_back(i);
    }
    if (batch->rows() == 0) {
      pipeline->Release(batch->reserved);
    } else {
      pipeline->Push(std::move(batch), source);
    }
    return Status::Ok();
  }

  GroupTracker<K> tracker_;
  const size_t row_bytes_;
  std::atomic<bool> has_hurried_{false};
  std::mutex hurried_mu_;  // a leaf; guards what follows
  std::vector<K> hurried_;
  Seq hurried_cut_ = 0;
  std::atomic<uint64_t> received_{0};
  std::vector<std::atomic<uint64_t>> inserted_ =
      std::vector<std::atomic<uint64_t>>(tables_.size());  // by table
  std::atomic<uint64_t> restore_{0};  // the last of this group
  std::atomic<uint64_t> writes_before_{0};  // it
};

Status CheckTables(const GroupSpec& spec, const Group::Tables& tables) {
  if (tables.size() != spec.tables.size()) {
    return Status::InvalidArgument("group " + spec.name + ": received " +
                                   std::to_string(tables.size()) +
                                   " tables, expected " +
                                   std::to_string(spec.tables.size()));
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableSpec& want = spec.tables[t];
    DType key = DType::kInvalid, value = DType::kInvalid;
    ADAPTCP_RETURN_IF_ERROR(ToFileType(tables[t]->key_dtype(), &key));
    ADAPTCP_RETURN_IF_ERROR(ToFileType(tables[t]->value_dtype(), &value));
    const tf::TensorShape shape = tables[t]->value_shape();
    if (key != spec.key_dtype || value != want.dtype || shape.dims() != 1 ||
        shape.dim_size(0) != want.dim) {
      return Status::InvalidArgument(
          "table " + want.name + " of group " + spec.name + " holds " +
          DTypeName(key) + " -> " + DTypeName(value) + shape.DebugString() +
          ", expected " + DTypeName(spec.key_dtype) + " -> " +
          DTypeName(want.dtype) + "[" + std::to_string(want.dim) + "]");
    }
  }
  return Status::Ok();
}

}  // namespace

Status Group::Make(GroupSpec spec, uint32_t index, Tables tables,
                   const TrackerOptions& options,
                   std::unique_ptr<Group>* group) {
  ADAPTCP_RETURN_IF_ERROR(CheckTables(spec, tables));
  ADAPTCP_RETURN_IF_ERROR(options.Validate());
  switch (spec.key_dtype) {
    case DType::kInt64:
      *group = std::make_unique<GroupOf<int64_t>>(std::move(spec), index,
                                                  std::move(tables), options);
      return Status::Ok();
    case DType::kInt32:
      *group = std::make_unique<GroupOf<int32_t>>(std::move(spec), index,
                                                  std::move(tables), options);
      return Status::Ok();
    case DType::kString:
      *group = std::make_unique<GroupOf<std::string>>(std::move(spec), index,
                                                      std::move(tables), options);
      return Status::Ok();
    default:
      return Status::InvalidArgument("group " + spec.name + ": keys of type " +
                                     DTypeName(spec.key_dtype) +
                                     ", expected int64, int32 or string");
  }
}

}  // namespace adaptcp

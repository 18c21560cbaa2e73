#include "ops/kernels/table_growth.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "ops/kernels/tf_util.h"
#include "ops/tracker/key_hash.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

// Of libcuckoo, as TFRA uses it (cuckoohash_map.hh, table_op_cpu.h).
constexpr uint64_t kSlotsPerBucket = 4;
constexpr uint64_t kTagFactor = 0xc6a4a7935bd1e995;
// With less than a twentieth of its slots in use it throws when it is to double.
constexpr uint64_t kLeastLoad = 16;
// At 0.964 to 0.969 a table doubles by itself: no memory is taken that the rows
// would not have made it take.
constexpr double kMostLoad = 0.97;
constexpr uint64_t kSample = 4096;
constexpr int kSomeFull = 8;
constexpr int kMostBits = 40;
// The gate is entered all the time, and who wants it for himself waits for half a
// minute. What this leaves to do the table does by itself.
constexpr std::chrono::seconds kMostTime(15);

// As TFRA's HybridHash: low bits choose the bucket. int32 comes sign-extended.
uint64_t HashInTable(int64_t key) { return HashKey(key); }
uint64_t HashInTable(int32_t key) {
  return static_cast<uint64_t>(
      static_cast<int64_t>(static_cast<int32_t>(HashKey(key))));
}

// The inverse functions, in their low bits: the finalisers of MurmurHash3 are
// bijections.
int64_t KeyOfHash(uint64_t x, int64_t) {
  x ^= x >> 33;
  x *= 0x9cb4b2f8129337dbULL;
  x ^= x >> 33;
  x *= 0x4f74430c22a54005ULL;
  x ^= x >> 33;
  return static_cast<int64_t>(x);
}
int32_t KeyOfHash(uint64_t hash, int32_t) {
  uint32_t x = static_cast<uint32_t>(hash);
  x ^= x >> 16;
  x *= 0x7ed1b41du;
  x ^= x >> 13 ^ x >> 26;
  x *= 0xa5cb9243u;
  x ^= x >> 16;
  return static_cast<int32_t>(x);
}

uint8_t TagOf(uint64_t hash) {
  hash ^= hash >> 32;
  hash ^= hash >> 16;
  return static_cast<uint8_t>(hash ^ hash >> 8);
}

uint64_t MaskOf(int bits) { return (uint64_t{1} << bits) - 1; }

// The buckets that a key may be in.
std::array<uint64_t, 2> BucketsOf(uint64_t hash, int bits) {
  const uint64_t first = hash & MaskOf(bits);
  const uint64_t other =
      (first ^ (TagOf(hash) + uint64_t{1}) * kTagFactor) & MaskOf(bits);
  return {std::min(first, other), std::max(first, other)};
}

// What can be seen of a table from the order in which it exports its keys.
struct TableShape {
  int bits = 0;    // it has 2^bits buckets; 0: does not look like libcuckoo's
  int full = 0;    // buckets that hold four rows
  int fuller = 0;  // buckets that seem to hold more
};

// Whether keys may stand in this order in 2^bits buckets, from the first on.
template <typename K>
bool Follow(const K* keys, size_t n, TableShape* shape) {
  uint64_t bucket = 0, held = 0;
  shape->full = shape->fuller = 0;
  const auto count = [&] {
    shape->full += held == kSlotsPerBucket;
    shape->fuller += held > kSlotsPerBucket;
  };
  for (size_t i = 0; i < n; ++i) {
    const auto may_be = BucketsOf(HashInTable(keys[i]), shape->bits);
    if (bucket > may_be[1]) return false;
    const uint64_t next = bucket > may_be[0] ? may_be[1] : may_be[0];
    if (next != bucket) {
      count();
      held = 0;
    }
    bucket = next;
    ++held;
  }
  count();
  return true;
}

// `keys`: all of a table that holds some thousands at least, as exported. K is
// int64_t or int32_t, here and below.
template <typename K>
TableShape ShapeOf(const K* keys, size_t n) {
  TableShape found;
  for (int bits = 1; bits <= kMostBits; ++bits) {
    TableShape shape;
    shape.bits = bits;
    if (!Follow(keys, n, &shape)) continue;
    if (found.bits != 0) return TableShape();  // too few keys to say
    found = shape;
  }
  return found;
}

// Nine keys that have both of their buckets in common in a table of 2^bits
// buckets, and find room in one of 2^(bits+1); empty if none were found.
template <typename K>
std::vector<K> CrowdingKeys(int bits) {
  constexpr int kHashBits = 8 * sizeof(K);
  constexpr size_t kStay = 5, kGo = 4;  // in the doubled table
  std::array<std::array<std::vector<K>, 2>, 256> found;
  // All tags have enough of them long before that.
  const uint64_t most = uint64_t{1} << std::clamp(kHashBits - bits, 0, 20);
  for (uint64_t i = 0; i < most; ++i) {
    const K key = KeyOfHash(i << bits, K());
    auto& with_tag = found[TagOf(HashInTable(key))];
    with_tag[i & 1].push_back(key);
    if (with_tag[0].size() < kStay || with_tag[1].size() < kGo) continue;
    std::vector<K> keys(with_tag[0].begin(), with_tag[0].begin() + kStay);
    keys.insert(keys.end(), with_tag[1].begin(), with_tag[1].begin() + kGo);
    return keys;
  }
  return {};
}

template <typename K>
Status InsertKeys(tf::OpKernelContext* ctx, tf::lookup::LookupInterface* table,
                  const std::vector<K>& keys) {
  const auto n = static_cast<int64_t>(keys.size());
  tf::Tensor tensor(table->key_dtype(), {n});
  std::copy(keys.begin(), keys.end(), static_cast<K*>(tensor.data()));
  tf::TensorShape shape({n});
  shape.AppendShape(table->value_shape());
  tf::Tensor values(table->value_dtype(), shape);
  std::memset(values.data(), 0, values.TotalBytes());
  return FromTensorFlow(table->Insert(ctx, tensor, values));
}

// Inserts keys that the table doubles for.
template <typename K>
Status Crowd(tf::lookup::LookupInterface* table, const std::vector<K>& keys) {
  // In this thread, where what is thrown can be caught.
  TableContext alone;
  try {
    return InsertKeys(alone.get(), table, keys);
  } catch (const std::bad_alloc&) {
    throw;  // as if it had grown by itself: what the table is now nobody knows
  } catch (const std::exception& error) {
    return Status::FailedPrecondition(
        std::string("rows were removed from a table that was being grown: ") +
        error.what());
  }
}

// Inserts 0, 1, ... up to `rows`, from *next on.
template <typename K>
Status Fill(tf::OpKernelContext* ctx, tf::lookup::LookupInterface* table,
            uint64_t rows, uint64_t* next) {
  constexpr uint64_t kBatch = 1 << 16;
  while (*next < rows) {
    std::vector<K> keys(std::min(kBatch, rows - *next));
    for (K& key : keys) key = static_cast<K>((*next)++);
    ADAPTCP_RETURN_IF_ERROR(InsertKeys(ctx, table, keys));
  }
  return Status::Ok();
}

// No more than half of the memory, whatever a manifest says.
uint64_t MostSlots(const tf::lookup::LookupInterface& table) {
  const uint64_t row =
      tf::DataTypeSize(table.key_dtype()) +
      table.value_shape().num_elements() * tf::DataTypeSize(table.value_dtype());
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE)) / 2 / row;
}

template <typename K>
Status Grow(tf::OpKernelContext* ctx, tf::lookup::LookupInterface* table,
            uint64_t rows, uint64_t* slots) {
  uint64_t filled = 0;
  TableShape shape;
  // Once more if the table has so many slots that no bucket got full.
  for (uint64_t sample : {kSample, uint64_t{0}}) {
    if (sample == 0) sample = *slots / 8;
    ADAPTCP_RETURN_IF_ERROR(Fill<K>(ctx, table, sample, &filled));
    ADAPTCP_RETURN_IF_ERROR(FromTensorFlow(table->ExportValues(ctx)));
    const tf::Tensor& keys = *ctx->mutable_output(0);
    shape = ShapeOf(static_cast<const K*>(keys.data()), keys.NumElements());
    for (int i : {0, 1}) delete ctx->release_output(i).tensor;
    if (shape.bits == 0) return Status::Ok();
    *slots = kSlotsPerBucket << shape.bits;
    if (*slots * kMostLoad >= rows) return Status::Ok();
    if (shape.full >= kSomeFull) break;
  }
  // Else buckets are of another size.
  if (shape.full < kSomeFull || 8 * shape.fuller > shape.full) {
    return Status::Ok();
  }
  const auto start = std::chrono::steady_clock::now();
  auto began = start;
  while (*slots * kMostLoad < rows && 2 * *slots <= MostSlots(*table)) {
    ADAPTCP_RETURN_IF_ERROR(
        Fill<K>(ctx, table, *slots / kLeastLoad, &filled));
    const std::vector<K> keys = CrowdingKeys<K>(shape.bits++);
    if (keys.empty()) return Status::Ok();
    ADAPTCP_RETURN_IF_ERROR(Crowd(table, keys));
    *slots *= 2;
    // The next time takes twice as long.
    const auto now = std::chrono::steady_clock::now();
    if (now - start + 2 * (now - began) > kMostTime) return Status::Ok();
    began = now;
  }
  return Status::Ok();
}

}  // namespace

Status EmptyTable(tf::OpKernelContext* ctx, tf::lookup::LookupInterface* table) {
  const tf::Tensor no_keys(table->key_dtype(), {0});
  tf::TensorShape shape({0});
  shape.AppendShape(table->value_shape());
  const tf::Tensor no_values(table->value_dtype(), shape);
  // Import is clear, then insert.
  return FromTensorFlow(table->ImportValues(ctx, no_keys, no_values));
}

Status GrowTable(tf::OpKernelContext* ctx, tf::lookup::LookupInterface* table,
                 uint64_t rows, uint64_t* slots) {
  *slots = 0;
  if (table->size() != 0) {
    return Status::FailedPrecondition(
        "Received: a table of " + std::to_string(table->size()) +
        " rows to be grown. Expected: an empty one");
  }
  if (!tf::DataTypeCanUseMemcpy(table->value_dtype())) return Status::Ok();
  Status status;
  if (table->key_dtype() == tf::DT_INT64) {
    status = Grow<int64_t>(ctx, table, rows, slots);
  } else if (table->key_dtype() == tf::DT_INT32) {
    status = Grow<int32_t>(ctx, table, rows, slots);
  } else {
    return status;
  }
  const Status emptied = EmptyTable(ctx, table);
  return status.ok() ? emptied : status;
}

}  // namespace adaptcp

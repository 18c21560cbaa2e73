// For tests and segment_tool only: sinks and sources in memory, and random
// segments with a plain copy of what they hold.

#ifndef ADAPTCP_OPS_FORMAT_SEGMENT_TESTING_H_
#define ADAPTCP_OPS_FORMAT_SEGMENT_TESTING_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/format/byte_io.h"
#include "ops/format/dense_block.h"
#include "ops/format/row_block.h"
#include "ops/format/segment_writer.h"

namespace adaptcp {
namespace testing {

class MemorySink : public ByteSink {
 public:
  MemorySink(std::string name, std::string* file)
      : name_(std::move(name)), file_(file) {}
  Status Append(std::string_view data) override {
    file_->append(data);
    return Status::Ok();
  }
  Status SyncAndClose() override {
    closed = true;
    return Status::Ok();
  }
  const std::string& name() const override { return name_; }

  bool closed = false;

 private:
  const std::string name_;
  std::string* const file_;
};

class MemorySource : public ByteSource {
 public:
  MemorySource(std::string name, std::string file)
      : name_(std::move(name)), file_(std::move(file)) {}
  uint64_t size() const override { return file_.size(); }
  Status ReadAt(uint64_t offset, size_t n, char* out) const override {
    if (offset > file_.size() || n > file_.size() - offset) {
      return Status::DataLoss("read past the end");
    }
    std::memcpy(out, file_.data() + offset, n);
    return Status::Ok();
  }
  const std::string& name() const override { return name_; }

 private:
  const std::string name_;
  const std::string file_;
};

// The rows of one block, one string per element, in the file's bytes.
struct PlainRows {
  std::vector<std::string> keys;
  std::vector<float> p;
  // [table][row]; and per row `dim` elements, empty where absent.
  std::vector<std::vector<bool>> present;
  std::vector<std::vector<std::vector<std::string>>> values;
};

constexpr DType kAllDTypes[] = {
    DType::kFloat32, DType::kFloat64, DType::kInt32,      DType::kUint8,
    DType::kInt16,   DType::kInt8,    DType::kString,     DType::kComplex64,
    DType::kInt64,   DType::kBool,    DType::kBfloat16,   DType::kUint16,
    DType::kComplex128, DType::kHalf, DType::kUint32,     DType::kUint64};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t Below(uint64_t n) { return engine_() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

  std::string Bytes(size_t n) {
    std::string out(n, '\0');
    for (char& c : out) c = static_cast<char>(Below(256));
    return out;
  }

  DType AnyDType() { return kAllDTypes[Below(std::size(kAllDTypes))]; }

  // One element as the file has it; strings of any length, also empty.
  std::string Element(DType dtype) {
    if (dtype == DType::kString) return Bytes(OneIn(3) ? 0 : Below(20));
    if (dtype == DType::kBool) return std::string(1, OneIn(2) ? '\1' : '\0');
    return Bytes(DTypeSize(dtype));
  }

  std::string Key(DType dtype) {
    static const int64_t kSpecial[] = {0, -1, INT64_MIN, INT64_MAX};
    if (dtype != DType::kInt64 || !OneIn(4)) return Element(dtype);
    const int64_t key = kSpecial[Below(4)];
    return std::string(reinterpret_cast<const char*>(&key), sizeof(key));
  }

  GroupSpec Group(const std::string& name) {
    static const DType kKeys[] = {DType::kInt64, DType::kInt32, DType::kString};
    GroupSpec group;
    group.name = name;
    group.key_dtype = kKeys[Below(3)];
    group.num_shards = 1 + static_cast<uint32_t>(Below(4));
    group.shard = static_cast<uint32_t>(Below(group.num_shards));
    const size_t tables = 1 + Below(4);
    for (size_t t = 0; t < tables; ++t) {
      group.tables.push_back({name + "/" + std::to_string(t), AnyDType(),
                              1 + static_cast<uint32_t>(Below(5))});
    }
    return group;
  }

  Quantization AnyQuantization() {
    static const int kBits[] = {2, 3, 4, 8};
    const auto method = static_cast<Method>(Below(6));
    if (method == Method::kNone) return {};
    return {method, method == Method::kBfloat16 ? 16 : kBits[Below(4)]};
  }

  PlainRows Rows(const GroupSpec& group, size_t n) {
    PlainRows rows;
    rows.present.resize(group.tables.size());
    rows.values.resize(group.tables.size());
    for (size_t i = 0; i < n; ++i) {
      rows.keys.push_back(Key(group.key_dtype));
      rows.p.push_back(static_cast<float>(Below(1000)) / 999.0f);
      const bool tombstone = OneIn(4);
      for (size_t t = 0; t < group.tables.size(); ++t) {
        const bool present = !tombstone && !OneIn(3);
        std::vector<std::string> row;
        for (size_t d = 0; present && d < group.tables[t].dim; ++d) {
          row.push_back(Element(group.tables[t].dtype));
        }
        rows.present[t].push_back(present);
        rows.values[t].push_back(std::move(row));
      }
    }
    return rows;
  }

  DenseSlice Slice(const std::string& name) {
    DenseSlice slice;
    slice.name = name;
    slice.dtype = AnyDType();
    const size_t rank = Below(4);
    for (size_t i = 0; i < rank; ++i) {
      slice.shape.push_back(Below(6));
      slice.offset.push_back(Below(slice.shape[i] + 1));
      slice.slice_shape.push_back(
          Below(slice.shape[i] - slice.offset[i] + 1));
    }
    return slice;
  }

 private:
  std::mt19937_64 engine_;
};

// A batch of plain rows, as a caller of RowBlockBuilder::Append would have it.
class BatchOf {
 public:
  BatchOf(const GroupSpec& group, const PlainRows& rows) {
    const size_t n = rows.keys.size();
    batch_.p = rows.p.data();
    if (group.key_dtype == DType::kString) {
      batch_.keys = rows.keys.data();
    } else {
      for (const std::string& key : rows.keys) keys_ += key;
      if (group.key_dtype == DType::kInt64) {
        batch_.keys = reinterpret_cast<const int64_t*>(keys_.data());
      } else {
        batch_.keys = reinterpret_cast<const int32_t*>(keys_.data());
      }
    }
    const size_t tables = group.tables.size();
    present_.resize(tables);
    fixed_.resize(tables);
    strings_.resize(tables);
    for (size_t t = 0; t < tables; ++t) {
      const TableSpec& spec = group.tables[t];
      for (size_t i = 0; i < n; ++i) {
        const bool present = rows.present[t][i];
        present_[t].push_back(present ? 1 : 0);
        for (size_t d = 0; d < spec.dim; ++d) {
          if (spec.dtype == DType::kString) {
            strings_[t].push_back(present ? rows.values[t][i][d]
                                          : std::string_view("garbage"));
          } else {
            fixed_[t] += present ? rows.values[t][i][d]
                                 : std::string(DTypeSize(spec.dtype), '\xee');
          }
        }
      }
      batch_.present.push_back(present_[t].data());
      batch_.values.push_back(spec.dtype == DType::kString
                                  ? static_cast<const void*>(strings_[t].data())
                                  : fixed_[t].data());
    }
  }
  BatchOf(const BatchOf&) = delete;
  BatchOf& operator=(const BatchOf&) = delete;

  const RowBatch& get() const { return batch_; }

 private:
  RowBatch batch_;
  std::string keys_;
  std::vector<std::vector<uint8_t>> present_;
  std::vector<std::string> fixed_;
  std::vector<std::vector<std::string_view>> strings_;
};

// For code that writes what can be written.
inline void Require(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
}

inline EncodedBlock RandomDense(Random* random, const std::string& name) {
  const DenseSlice slice = random->Slice(name);
  std::vector<std::string> elements;
  std::string joined;
  for (uint64_t i = 0; i < slice.elements(); ++i) {
    elements.push_back(random->Element(slice.dtype));
    joined += elements.back();
  }
  EncodedBlock block;
  if (slice.dtype == DType::kString) {
    Require(EncodeStringDenseBlock(slice, {elements.begin(), elements.end()},
                                   &block));
  } else {
    Require(EncodeDenseBlock(slice, joined.data(), joined.size(), &block));
  }
  return block;
}

// A whole file.
inline std::string RandomSegment(uint64_t seed) {
  Random random(seed);
  SegmentHeader header;
  header.run = "0123456789ab";
  header.generation = random.Below(1000);
  header.sequence = 1 + static_cast<uint32_t>(random.Below(1000));
  header.kind = static_cast<SegmentKind>(1 + random.Below(4));
  header.ps = static_cast<int32_t>(random.Below(5)) - 1;
  for (uint64_t g = random.Below(4); g > 0; --g) {
    header.groups.push_back(random.Group("emb" + std::to_string(g)));
  }
  std::string file;
  std::unique_ptr<SegmentWriter> writer;
  Require(SegmentWriter::Create(std::make_unique<MemorySink>("random", &file),
                                header, &writer));
  for (uint64_t b = random.Below(7); b > 0; --b) {
    if (header.groups.empty() || random.OneIn(3)) {
      Require(writer->Append(
          RandomDense(&random, "dense" + std::to_string(random.Below(3)))));
      continue;
    }
    const auto index =
        static_cast<uint32_t>(random.Below(header.groups.size()));
    const GroupSpec& group = header.groups[index];
    const PlainRows rows = random.Rows(group, random.Below(40));
    const BatchOf batch(group, rows);
    std::vector<Quantization> quantization;
    for (size_t t = 0; t < group.tables.size(); ++t) {
      quantization.push_back(random.AnyQuantization());
    }
    RowBlockBuilder builder(group, index, quantization);
    Require(builder.Append(batch.get(), nullptr, rows.keys.size()));
    EncodedBlock block;
    builder.Encode(&block);
    Require(writer->Append(block));
  }
  SegmentInfo info;
  Require(writer->Finish(&info));
  return file;
}

}  // namespace testing
}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_SEGMENT_TESTING_H_

// Mutated files, with broken and with right checksums: the readers neither
// crash nor read past a record, nor allocate more than the file's size allows.
//
// ADAPTCP_FUZZ_INPUTS inputs, 100,000 if not set. Each follows from its number,
// which a failure names: ADAPTCP_FUZZ_ONLY=<number> runs it alone.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "ops/format/crc32c.h"
#include "ops/format/segment_reader.h"
#include "ops/format/segment_testing.h"
#include "ops/format/wire.h"

namespace {

// Bytes that operator new has handed out, and the most there were at a time.
std::atomic<size_t> live{0}, peak{0};

void* Allocate(size_t n) {
  void* p = std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  const size_t now = live += malloc_usable_size(p);
  if (now > peak) peak = now;
  return p;
}

void Free(void* p) {
  if (p == nullptr) return;
  live -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(size_t n) { return Allocate(n); }
void* operator new[](size_t n) { return Allocate(n); }
void operator delete(void* p) noexcept { Free(p); }
void operator delete[](void* p) noexcept { Free(p); }
void operator delete(void* p, size_t) noexcept { Free(p); }
void operator delete[](void* p, size_t) noexcept { Free(p); }

namespace adaptcp {
namespace {

using testing::MemorySource;
using testing::Random;

// Brackets in brackets take the most: a node and its place on a stack, for a byte.
constexpr size_t kBytesPerByte = 100;
constexpr size_t kBytesAnyway = 16384;

uint64_t NumberFrom(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// ------------------------------------------------------------------ mutations

using Records = std::vector<std::string>;

Records Split(const std::string& file) {
  Records records;
  for (size_t at = 0; at < file.size();) {
    const auto length = wire::Get<uint64_t>(file.data() + at);
    records.push_back(file.substr(at + 12, length));
    at += length + 16;
  }
  return records;
}

std::string Join(const Records& records) {
  std::string file;
  for (const std::string& record : records) {
    std::string length;
    wire::Put(uint64_t{record.size()}, &length);
    file += length;
    wire::Put(MaskCrc(Crc32c(length)), &file);
    file += record;
    wire::Put(MaskCrc(Crc32c(record)), &file);
  }
  return file;
}

uint64_t Interesting(Random* random) {
  static const uint64_t kEdges[] = {
      0, 1, 2, 3, 7, 8, 9, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff,
      0x80000000, 0xffffffff, 0x100000000, uint64_t{1} << 40, uint64_t{1} << 62,
      INT64_MAX, uint64_t{1} << 63, UINT64_MAX - 7, UINT64_MAX};
  const uint64_t edge = kEdges[random->Below(std::size(kEdges))];
  return random->OneIn(4) ? edge + random->Below(9) - 4 : edge;
}

// Where a number of a binary block may be: at its front more often than not.
size_t Place(Random* random, size_t size) {
  size_t at = random->Below(random->OneIn(2) ? std::min<size_t>(size, 64) : size);
  return random->OneIn(3) ? at : at / 4 * 4;
}

void MutateBytes(Random* random, std::string* bytes) {
  if (bytes->empty()) {
    *bytes = random->Bytes(1 + random->Below(20));
    return;
  }
  const size_t at = Place(random, bytes->size());
  switch (random->Below(8)) {
    case 0:
      (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << random->Below(8)));
      return;
    case 1:
      (*bytes)[at] = static_cast<char>(random->Below(256));
      return;
    case 2:
    case 3: {
      const uint64_t value = Interesting(random);
      const size_t width =
          std::min<size_t>(size_t{1} << random->Below(4), bytes->size() - at);
      std::memcpy(&(*bytes)[at], &value, width);
      return;
    }
    case 4:
      bytes->resize(at);
      return;
    case 5:
      bytes->insert(at, random->Bytes(1 + random->Below(random->OneIn(8) ? 300 : 9)));
      return;
    case 6:
      bytes->erase(at, 1 + random->Below(16));
      return;
    default: {  // copies a part over another one, or in between
      const size_t from = Place(random, bytes->size());
      const std::string part = bytes->substr(from, 1 + random->Below(40));
      if (random->OneIn(2)) {
        bytes->insert(at, part);
      } else {
        bytes->replace(at, part.size(), part);
      }
    }
  }
}

// Of JSON: numbers, brackets, whole members.
void MutateJson(Random* random, std::string* json) {
  if (json->size() < 3) return MutateBytes(random, json);
  const size_t at = 1 + random->Below(json->size() - 1);
  switch (random->Below(6)) {
    case 0:
    case 1: {
      const size_t digit = json->find_first_of("0123456789", at);
      if (digit == std::string::npos) return;
      const size_t end = json->find_first_not_of("0123456789", digit);
      static const char* const kNumbers[] = {
          "-1", "1e9", "0.5", "null", "\"1\"", "18446744073709551616", "[]",
          "{}", "true", "1e999", "00"};
      json->replace(digit, (end == std::string::npos ? json->size() : end) - digit,
                    random->OneIn(2)
                        ? std::to_string(Interesting(random))
                        : kNumbers[random->Below(std::size(kNumbers))]);
      return;
    }
    case 2: {
      const std::string deep(1 + random->Below(random->OneIn(20) ? 20000 : 50),
                             random->OneIn(2) ? '[' : '{');
      json->insert(at, deep);
      return;
    }
    case 3: {  // doubles a member or element
      const size_t from = json->find_first_of("{[,", at);
      if (from == std::string::npos) return;
      const size_t end = json->find_first_of("}],", from + 1);
      if (end != std::string::npos) {
        json->insert(end, "," + json->substr(from + 1, end - from - 1));
      }
      return;
    }
    case 4: {  // a name that says something else
      const size_t quote = json->find('"', at);
      if (quote == std::string::npos) return;
      static const char* const kWords[] = {"string", "bool", "complex128", "",
                                           "\\ud800", "rows", "base", "\xff"};
      const size_t end = json->find('"', quote + 1);
      if (end == std::string::npos) return;
      json->replace(quote + 1, end - quote - 1,
                    kWords[random->Below(std::size(kWords))]);
      return;
    }
    default:
      MutateBytes(random, json);
  }
}

std::string Mutate(Random* random, const std::string& file) {
  if (random->OneIn(8)) {  // checksums and all
    std::string broken = file;
    for (uint64_t i = 1 + random->Below(3); i > 0; --i) MutateBytes(random, &broken);
    return broken;
  }
  Records records = Split(file);
  for (uint64_t i = 1 + random->Below(random->OneIn(4) ? 4 : 1); i > 0; --i) {
    std::string& record = records[random->Below(records.size())];
    const bool json = !record.empty() && (record[0] == 'H' || record[0] == 'F');
    switch (random->Below(16)) {
      case 0:
        std::swap(record, records[random->Below(records.size())]);
        break;
      case 1: {
        const std::string copy = record;
        records.insert(records.begin() + random->Below(records.size() + 1), copy);
        break;
      }
      case 2:
        if (records.size() > 1) {
          records.erase(records.begin() + random->Below(records.size()));
        }
        break;
      default:
        if (json && !random->OneIn(4)) {
          MutateJson(random, &record);
        } else {
          MutateBytes(random, &record);
        }
    }
  }
  std::string mutated = Join(records);
  if (random->OneIn(16)) mutated.resize(random->Below(mutated.size() + 1));
  return mutated;
}

// -------------------------------------------------------------------- reading

// Looks at every byte that a reader is given.
uint64_t Touch(std::string_view bytes) {
  uint64_t sum = 0;
  for (const char c : bytes) sum = sum * 31 + static_cast<unsigned char>(c);
  return sum;
}

uint64_t Touch(const std::vector<std::string_view>& strings) {
  uint64_t sum = strings.size();
  for (const std::string_view s : strings) sum += Touch(s);
  return sum;
}

uint64_t Touch(const RowBlockView& rows, const GroupSpec& group) {
  uint64_t sum = Touch({reinterpret_cast<const char*>(rows.p()),
                        rows.rows() * sizeof(float)});
  if (group.key_dtype == DType::kString) {
    sum += Touch(rows.string_keys());
  } else {
    const char* keys = group.key_dtype == DType::kInt64
                           ? reinterpret_cast<const char*>(rows.int64_keys())
                           : reinterpret_cast<const char*>(rows.int32_keys());
    sum += Touch({keys, rows.rows() * DTypeSize(group.key_dtype)});
  }
  for (size_t t = 0; t < group.tables.size(); ++t) {
    size_t present = 0;
    for (size_t i = 0; i < rows.rows(); ++i) present += rows.present(t, i);
    EXPECT_EQ(present, rows.present_rows(t));
    if (group.tables[t].dtype == DType::kString) {
      sum += Touch(rows.string_values(t));
      continue;
    }
    std::string values(rows.value_bytes(t), '\0');
    rows.ReadValues(t, values.data());
    sum += Touch(values);
  }
  return sum;
}

// From a copy of the exact size, so that ASan sees a byte read past its end.
uint64_t ReadAlone(const std::string& record, const SegmentHeader& header) {
  const std::vector<char> exact(record.begin(), record.end());
  const std::string_view view(exact.data(), exact.size());
  RowBlockView rows;
  DenseBlockView dense;
  uint64_t sum = 0;
  if (RowBlockView::Parse(view, header.groups, &rows).ok()) {
    sum += Touch(rows, header.groups[rows.group_index()]);
  }
  if (DenseBlockView::Parse(view, &dense).ok()) {
    sum += Touch(dense.data) + Touch(dense.strings);
    uint64_t elements = 1;
    for (size_t d = 0; d < dense.slice.shape.size(); ++d) {
      EXPECT_LE(dense.slice.offset[d] + dense.slice.slice_shape[d],
                dense.slice.shape[d]);
      elements *= dense.slice.slice_shape[d];
    }
    EXPECT_EQ(elements, dense.slice.elements());
  }
  return sum;
}

// OK: the reader took the file for whole.
Status Read(std::unique_ptr<MemorySource> source, uint64_t* sum) {
  std::unique_ptr<SegmentReader> reader;
  ADAPTCP_RETURN_IF_ERROR(SegmentReader::Open(std::move(source), {}, &reader));
  SegmentBlock block;
  for (;;) {
    ADAPTCP_RETURN_IF_ERROR(reader->Next(&block));
    if (block.type == RecordType::kFooter) return Status::Ok();
    if (block.type == RecordType::kRows) {
      *sum += Touch(block.rows, reader->header().groups[block.rows.group_index()]);
    } else {
      *sum += Touch(block.dense.data) + Touch(block.dense.strings);
    }
  }
}

TEST(FuzzTest, ReadersSurviveAnything) {
  std::vector<std::string> corpus;
  std::vector<SegmentHeader> headers;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    corpus.push_back(testing::RandomSegment(seed));
    std::unique_ptr<SegmentReader> reader;
    ASSERT_TRUE(SegmentReader::Open(
                    std::make_unique<MemorySource>("good", corpus.back()), {},
                    &reader)
                    .ok());
    headers.push_back(reader->header());
  }
#if defined(__SANITIZE_ADDRESS__)
  const uint64_t count = NumberFrom("ADAPTCP_FUZZ_INPUTS", 100000);
#else
  const uint64_t count = NumberFrom("ADAPTCP_FUZZ_INPUTS", 10000);
#endif
  const uint64_t only = NumberFrom("ADAPTCP_FUZZ_ONLY", UINT64_MAX);
  uint64_t sum = 0, accepted = 0, past_the_header = 0, most = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (only != UINT64_MAX && i != only) continue;
    Random random(i);
    const size_t which = random.Below(corpus.size());
    const std::string file = Mutate(&random, corpus[which]);
    if (random.OneIn(4)) {
      for (const std::string& record : Split(corpus[which])) {
        std::string mutated = record;
        MutateBytes(&random, &mutated);
        sum += ReadAlone(mutated, headers[which]);
      }
    }
    auto source = std::make_unique<MemorySource>("f", file);
    const size_t before = live;
    peak = before;
    const Status status = Read(std::move(source), &sum);
    const size_t used = peak - before;
    most = std::max<uint64_t>(most, used * 10 / (file.size() + 100));
    ASSERT_LE(used, kBytesPerByte * file.size() + kBytesAnyway)
        << "input " << i << ", " << file.size() << " bytes";
    accepted += status.ok();
    past_the_header += status.message().find("record at byte 0:") ==
                       std::string::npos;
    ASSERT_TRUE(status.ok() || status.code() == Status::Code::kDataLoss ||
                status.code() == Status::Code::kUnimplemented)
        << "input " << i << ": " << status.ToString();
  }
  std::printf("%llu inputs, %llu whole, %llu past the header, at most %.1f "
              "bytes of memory per byte (%llx)\n",
              static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(accepted),
              static_cast<unsigned long long>(past_the_header),
              static_cast<double>(most) / 10,
              static_cast<unsigned long long>(sum));
  if (only != UINT64_MAX) return;
  // Most of them get past the checksums, or nothing would be tested.
  EXPECT_GT(past_the_header, count / 2);
  EXPECT_GT(accepted, count / 100);
}

}  // namespace
}  // namespace adaptcp

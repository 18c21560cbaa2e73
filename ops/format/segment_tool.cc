// Writes and shows segments, for tests of other readers.
//
//   segment_tool write SEED PATH    a random segment
//   segment_tool example PATH       the worked example of docs/format.md
//   segment_tool quantize METHOD BITS DTYPE DIM FROM PATH
//                                   a table of the rows in FROM, keys 0, 1, ...
//   segment_tool dump PATH          the whole file as JSON, bytes in hex
//   segment_tool verify PATH        "<bytes> <crc32c>"
//
// Exit code 1 and a message if the file is damaged.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>

#include "nlohmann/json.hpp"
#include "ops/format/segment_reader.h"
#include "ops/format/segment_testing.h"
#include "ops/format/segment_writer.h"

namespace adaptcp {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void Die(const std::string& message) {
  std::cerr << message << "\n";
  std::exit(1);
}

void Check(const Status& status) {
  if (!status.ok()) Die(status.ToString());
}

std::string Hex(std::string_view bytes) {
  static const char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

Json HexAll(const std::vector<std::string_view>& strings) {
  Json out = Json::array();
  for (const std::string_view s : strings) out.push_back(Hex(s));
  return out;
}

void WriteFile(const std::string& path, const SegmentHeader& header,
               const std::vector<EncodedBlock>& blocks) {
  std::string file;
  std::unique_ptr<SegmentWriter> writer;
  Check(SegmentWriter::Create(
      std::make_unique<testing::MemorySink>(path, &file), header, &writer));
  for (const EncodedBlock& block : blocks) Check(writer->Append(block));
  SegmentInfo info;
  Check(writer->Finish(&info));
  std::ofstream out(path, std::ios::binary);
  out << file;
  if (!out.flush()) Die("can't write " + path);
}

void WriteRandom(uint64_t seed, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  out << testing::RandomSegment(seed);
  if (!out.flush()) Die("can't write " + path);
}

void WriteExample(const std::string& path) {
  SegmentHeader header;
  header.run = "0123456789ab";
  header.generation = 1;
  header.sequence = 2;
  header.kind = SegmentKind::kIncrement;
  header.groups = {{"emb", DType::kInt64, 0, 1,
                    {{"emb", DType::kFloat32, 2}, {"emb/m", DType::kHalf, 1}}}};
  const int64_t keys[] = {7, -1, 9};
  const float p[] = {1.0f, 0.5f, 0.0f};
  const uint8_t in_emb[] = {1, 1, 0};
  const uint8_t in_slot[] = {1, 0, 0};
  const float emb[] = {0.25f, -2.0f, 3.0f, 4.0f, 0.0f, 0.0f};
  const uint16_t slot[] = {0x3c00, 0, 0};  // 1.0
  RowBatch batch;
  batch.keys = keys;
  batch.p = p;
  batch.present = {in_emb, in_slot};
  batch.values = {emb, slot};
  RowBlockBuilder builder(header.groups[0], 0);
  Check(builder.Append(batch, nullptr, 3));
  std::vector<EncodedBlock> blocks(2);
  builder.Encode(&blocks[0]);
  DenseSlice slice = DenseSlice::Whole("bias", DType::kInt32, {4});
  slice.offset = {1};
  slice.slice_shape = {3};
  const int32_t bias[] = {1, 2, -1};
  Check(EncodeDenseBlock(slice, bias, sizeof(bias), &blocks[1]));
  WriteFile(path, header, blocks);
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) Die("can't read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteQuantized(const std::vector<std::string>& args) {
  Quantization quantization;
  Check(ParseQuantization(args[1], std::stoi(args[2]), &quantization));
  TableSpec table = {"t", DType::kInvalid,
                     static_cast<uint32_t>(std::stoul(args[4]))};
  Check(ParseDType(args[3], &table.dtype));
  const std::string values = ReadFile(args[5]);
  const size_t rows = values.size() / (DTypeSize(table.dtype) * table.dim);
  std::vector<int64_t> keys(rows);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<float> p(rows, 0.5f);
  RowBatch batch;
  batch.keys = keys.data();
  batch.p = p.data();
  batch.present = {nullptr};
  batch.values = {values.data()};
  SegmentHeader header;
  header.run = "0123456789ab";
  header.sequence = 1;
  header.groups = {{"t", DType::kInt64, 0, 1, {table}}};
  RowBlockBuilder builder(header.groups[0], 0, {quantization});
  Check(builder.Append(batch, nullptr, rows));
  std::vector<EncodedBlock> blocks(1);
  builder.Encode(&blocks[0]);
  WriteFile(args[6], header, blocks);
}

Json DumpRows(const RowBlockView& rows, const GroupSpec& group) {
  Json keys = Json::array();
  for (size_t i = 0; i < rows.rows(); ++i) {
    switch (group.key_dtype) {
      case DType::kInt64: keys.push_back(rows.int64_keys()[i]); break;
      case DType::kInt32: keys.push_back(rows.int32_keys()[i]); break;
      default: keys.push_back(Hex(rows.string_keys()[i]));
    }
  }
  Json tables = Json::array();
  for (size_t t = 0; t < group.tables.size(); ++t) {
    std::string present;
    for (size_t i = 0; i < rows.rows(); ++i) {
      present += rows.present(t, i) ? '1' : '0';
    }
    const bool strings = group.tables[t].dtype == DType::kString;
    std::string values(rows.value_bytes(t), '\0');
    if (!strings) rows.ReadValues(t, values.data());
    tables.push_back({{"present", present},
                      {"values", strings ? HexAll(rows.string_values(t))
                                         : Json(Hex(values))}});
  }
  const auto* p = reinterpret_cast<const char*>(rows.p());
  return {{"type", "R"},
          {"group", rows.group_index()},
          {"keys", std::move(keys)},
          {"p", Hex({p, rows.rows() * sizeof(float)})},
          {"tombstones", rows.tombstones()},
          {"tables", std::move(tables)}};
}

Json DumpDense(const DenseBlockView& dense) {
  return {{"type", "D"},
          {"name", dense.slice.name},
          {"dtype", DTypeName(dense.slice.dtype)},
          {"shape", dense.slice.shape},
          {"offset", dense.slice.offset},
          {"slice_shape", dense.slice.slice_shape},
          {"values", dense.slice.dtype == DType::kString
                         ? HexAll(dense.strings)
                         : Json(Hex(dense.data))}};
}

std::unique_ptr<SegmentReader> OpenFile(const std::string& path) {
  std::unique_ptr<SegmentReader> reader;
  Check(SegmentReader::Open(
      std::make_unique<testing::MemorySource>(path, ReadFile(path)), {},
      &reader));
  return reader;
}

void Dump(const std::string& path) {
  const std::unique_ptr<SegmentReader> reader = OpenFile(path);
  std::string header;
  Check(EncodeHeader(reader->header(), &header));
  Json blocks = Json::array();
  SegmentBlock block;
  for (;;) {
    Check(reader->Next(&block));
    if (block.type == RecordType::kFooter) break;
    Json json = block.type == RecordType::kRows
                    ? DumpRows(block.rows, reader->header().groups
                                               [block.rows.group_index()])
                    : DumpDense(block.dense);
    json["byte"] = block.offset;
    blocks.push_back(std::move(json));
  }
  std::string footer;
  Check(EncodeFooter(reader->header(), reader->footer(), &footer));
  const Json out = {{"header", Json::parse(header.substr(1))},
                    {"blocks", std::move(blocks)},
                    {"footer", Json::parse(footer.substr(1))}};
  std::cout << out.dump() << "\n";
}

void Verify(const std::string& path) {
  SegmentInfo info;
  Check(VerifySegment(
      std::make_unique<testing::MemorySource>(path, ReadFile(path)), {},
      &info));
  std::cout << info.bytes << " " << info.crc32c << "\n";
}

int Main(const std::vector<std::string>& args) {
  if (args.size() == 3 && args[0] == "write") {
    WriteRandom(std::stoull(args[1]), args[2]);
  } else if (args.size() == 2 && args[0] == "example") {
    WriteExample(args[1]);
  } else if (args.size() == 7 && args[0] == "quantize") {
    WriteQuantized(args);
  } else if (args.size() == 2 && args[0] == "dump") {
    Dump(args[1]);
  } else if (args.size() == 2 && args[0] == "verify") {
    Verify(args[1]);
  } else {
    std::cerr << "segment_tool write SEED PATH | example PATH | quantize METHOD "
                 "BITS DTYPE DIM FROM PATH | dump PATH | verify PATH\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace adaptcp

int main(int argc, char** argv) {
  return adaptcp::Main(std::vector<std::string>(argv + 1, argv + argc));
}

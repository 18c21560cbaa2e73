#include "ops/format/segment_reader.h"

#include <utility>

#include "ops/format/crc32c.h"
#include "ops/format/wire.h"

namespace adaptcp {
namespace {

constexpr uint64_t kHead = 12;  // length, CRC of the length
constexpr uint64_t kTail = 4;   // CRC of the record

std::string Hex(uint32_t value) {
  static const char kDigits[] = "0123456789abcdef";
  std::string out = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) {
    out += kDigits[(value >> shift) & 15];
  }
  return out;
}

Status WrongCrc(const char* what, uint32_t received, uint32_t expected) {
  return Status::DataLoss(std::string("wrong CRC32C of ") + what +
                          ". Received: " + Hex(received) +
                          ". Expected: " + Hex(expected));
}

}  // namespace

SegmentReader::SegmentReader(std::unique_ptr<ByteSource> source)
    : source_(std::move(source)) {}

Status SegmentReader::Open(std::unique_ptr<ByteSource> source,
                           const SegmentExpectation& expected,
                           std::unique_ptr<SegmentReader>* reader) {
  std::unique_ptr<SegmentReader> opened(new SegmentReader(std::move(source)));
  opened->expected_ = expected;
  const uint64_t size = opened->source_->size();
  if (expected.bytes && *expected.bytes != size) {
    return Status::DataLoss(opened->source_->name() +
                            ": wrong file size. Received: " +
                            std::to_string(size) + " bytes. Expected: " +
                            std::to_string(*expected.bytes));
  }
  const Status status = opened->ReadHeader();
  if (!status.ok()) return opened->Fail(status);
  *reader = std::move(opened);
  return Status::Ok();
}

// Puts file and offset in front of the message, and remembers it.
Status SegmentReader::Fail(const Status& status) {
  status_ = Status(status.code(), source_->name() + ": record at byte " +
                                      std::to_string(record_offset_) + ": " +
                                      status.message());
  return status_;
}

Status SegmentReader::ReadRecord(std::string* buffer,
                                 std::string_view* record) {
  record_offset_ = offset_;
  const uint64_t left = source_->size() - offset_;
  if (left == 0) {
    return Status::DataLoss("the file ends without a footer: it is truncated");
  }
  if (left < kHead + kTail) {
    return Status::DataLoss("only " + std::to_string(left) +
                            " bytes left: the file is truncated");
  }
  char head[kHead];
  ADAPTCP_RETURN_IF_ERROR(source_->ReadAt(offset_, kHead, head));
  const auto length = wire::Get<uint64_t>(head);
  const uint32_t length_crc = UnmaskCrc(wire::Get<uint32_t>(head + 8));
  const uint32_t head_crc = Crc32c(std::string_view(head, 8));
  if (head_crc != length_crc) {
    return WrongCrc("a record's length", head_crc, length_crc);
  }
  if (length > left - kHead - kTail) {
    return Status::DataLoss("a record of " + std::to_string(length) +
                            " bytes where " + std::to_string(left) +
                            " are left: the file is truncated");
  }
  if (buffer->size() < length + kTail) buffer->resize(length + kTail);
  ADAPTCP_RETURN_IF_ERROR(
      source_->ReadAt(offset_ + kHead, length + kTail, &(*buffer)[0]));
  const uint32_t stored = UnmaskCrc(wire::Get<uint32_t>(&(*buffer)[length]));
  const uint32_t computed = Crc32c(std::string_view(buffer->data(), length));
  if (computed != stored) return WrongCrc("a record", computed, stored);
  crc_ = ExtendCrc32c(crc_, head, kHead);
  crc_ = ExtendCrc32c(crc_, buffer->data(), length + kTail);
  offset_ += kHead + length + kTail;
  *record = std::string_view(buffer->data(), length);
  return Status::Ok();
}

Status SegmentReader::ReadHeader() {
  std::string buffer;
  std::string_view record;
  ADAPTCP_RETURN_IF_ERROR(ReadRecord(&buffer, &record));
  ADAPTCP_RETURN_IF_ERROR(ParseHeader(record, &header_));
  footer_.groups.resize(header_.groups.size());
  return Status::Ok();
}

Status SegmentReader::Next(SegmentBlock* block) {
  if (!status_.ok()) return status_;
  block->type = RecordType::kFooter;
  block->offset = offset_;
  if (at_end_) return Status::Ok();
  std::string_view record;
  Status status = ReadRecord(&block->buffer, &record);
  if (status.ok()) status = Interpret(record, block);
  return status.ok() ? status : Fail(status);
}

Status SegmentReader::Interpret(std::string_view record, SegmentBlock* block) {
  const char type = record.empty() ? '\0' : record[0];
  if (type == static_cast<char>(RecordType::kRows)) {
    ADAPTCP_RETURN_IF_ERROR(
        RowBlockView::Parse(record, header_.groups, &block->rows));
    block->type = RecordType::kRows;
    GroupCounts& counts = footer_.groups[block->rows.group_index()];
    counts.rows += block->rows.rows();
    counts.tombstones += block->rows.tombstones();
    ++counts.blocks;
    return Status::Ok();
  }
  if (type == static_cast<char>(RecordType::kDense)) {
    ADAPTCP_RETURN_IF_ERROR(DenseBlockView::Parse(record, &block->dense));
    block->type = RecordType::kDense;
    const DenseSlice& slice = block->dense.slice;
    const auto [it, added] =
        dense_index_.emplace(slice.name, footer_.dense.size());
    if (added) {
      footer_.dense.emplace_back();
      footer_.dense.back().name = slice.name;
    }
    DenseCounts& counts = footer_.dense[it->second];
    counts.elements += slice.elements();
    ++counts.blocks;
    return Status::Ok();
  }
  if (type == static_cast<char>(RecordType::kFooter)) return CheckEnd(record);
  if (type == static_cast<char>(RecordType::kHeader)) {
    return Status::DataLoss("a second header");
  }
  return Status::Unimplemented(
      "unknown record type. Received: byte " +
      std::to_string(static_cast<unsigned char>(type)) +
      ". Expected: 'R', 'D' or 'F'; was this file written by a later version?");
}

Status SegmentReader::CheckEnd(std::string_view record) {
  SegmentFooter written;
  ADAPTCP_RETURN_IF_ERROR(ParseFooter(record, header_, &written));
  if (!(written == footer_)) {
    std::string counted;
    if (!EncodeFooter(header_, footer_, &counted).ok()) {
      counted = " a name that is not UTF-8";
    }
    return Status::DataLoss(
        "the footer does not say what the file holds. Received: " +
        std::string(record.substr(1)) + ". Expected: " + counted.substr(1));
  }
  if (offset_ != source_->size()) {
    return Status::DataLoss(std::to_string(source_->size() - offset_) +
                            " bytes after the footer");
  }
  if (expected_.crc32c && crc_ != *expected_.crc32c) {
    return WrongCrc("the whole file", crc_, *expected_.crc32c);
  }
  at_end_ = true;
  return Status::Ok();
}

SegmentInfo SegmentReader::info() const {
  return MakeSegmentInfo(source_->name(), source_->size(), crc_, header_,
                         footer_);
}

Status VerifySegment(std::unique_ptr<ByteSource> source,
                     const SegmentExpectation& expected, SegmentInfo* info) {
  std::unique_ptr<SegmentReader> reader;
  ADAPTCP_RETURN_IF_ERROR(
      SegmentReader::Open(std::move(source), expected, &reader));
  SegmentBlock block;
  do {
    ADAPTCP_RETURN_IF_ERROR(reader->Next(&block));
  } while (block.type != RecordType::kFooter);
  *info = reader->info();
  return Status::Ok();
}

}  // namespace adaptcp

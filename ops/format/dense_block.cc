#include "ops/format/dense_block.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/format/crc32c.h"
#include "ops/format/wire.h"

namespace adaptcp {
namespace {

constexpr size_t kMaxRank = 254;  // TensorFlow's

// False if the product passes 2^64-1.
bool Product(const std::vector<uint64_t>& dims, uint64_t* product) {
  *product = 1;
  for (const uint64_t dim : dims) {
    if (__builtin_mul_overflow(*product, dim, product)) return false;
  }
  return true;
}

std::string DimsToString(const std::vector<uint64_t>& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  }
  return out + "]";
}

// What is wrong with the slice, or "".
std::string SliceError(const DenseSlice& slice) {
  if (slice.name.empty()) return "a dense block without a name";
  const std::string where = "dense block of \"" + slice.name + "\": ";
  if (!IsKnownDType(slice.dtype)) {
    return where + "unknown dtype " +
           std::to_string(static_cast<int>(slice.dtype));
  }
  const size_t rank = slice.shape.size();
  if (rank > kMaxRank) {
    return where + "a rank of " + std::to_string(rank) +
           ". Expected: at most " + std::to_string(kMaxRank);
  }
  uint64_t elements;
  if (slice.offset.size() != rank || slice.slice_shape.size() != rank ||
      !Product(slice.shape, &elements) ||
      !Product(slice.slice_shape, &elements)) {
    return where + "bad shape, or its slice has another rank";
  }
  for (size_t i = 0; i < rank; ++i) {
    if (slice.offset[i] > slice.shape[i] ||
        slice.slice_shape[i] > slice.shape[i] - slice.offset[i]) {
      return where + "the slice at " + DimsToString(slice.offset) +
             " of shape " + DimsToString(slice.slice_shape) +
             " is not within the tensor's shape " + DimsToString(slice.shape);
    }
  }
  return "";
}

void PutDims(const std::vector<uint64_t>& dims, std::string* out) {
  for (const uint64_t dim : dims) wire::Put(dim, out);
}

// Everything but the data, whose length is given.
void PutHead(const DenseSlice& slice, uint64_t bytes, std::string* out) {
  out->clear();
  out->reserve(wire::kDenseBlockHeader + 24 * slice.shape.size() +
               slice.name.size() + bytes + 16);
  wire::Put(static_cast<char>(RecordType::kDense), out);
  wire::Put(kDenseBlockVersion, out);
  wire::Put(static_cast<uint8_t>(slice.dtype), out);
  wire::Put(static_cast<uint8_t>(Codec::kRaw), out);
  wire::Put(static_cast<uint32_t>(slice.shape.size()), out);
  wire::Put(static_cast<uint32_t>(slice.name.size()), out);
  wire::Put(uint32_t{0}, out);
  wire::Put(bytes, out);
  PutDims(slice.shape, out);
  PutDims(slice.offset, out);
  PutDims(slice.slice_shape, out);
  out->append(slice.name);
  out->append(wire::Padding(slice.name.size()), '\0');
}

void FinishBlock(const DenseSlice& slice, uint64_t bytes, EncodedBlock* block) {
  block->record.append(wire::Padding(bytes), '\0');
  block->record_crc = Crc32c(block->record);
  block->type = RecordType::kDense;
  block->group_index = block->rows = block->tombstones = 0;
  block->dense_name = slice.name;
  block->elements = slice.elements();
}

Status CheckSlice(const DenseSlice& slice) {
  const std::string error = SliceError(slice);
  if (!error.empty()) return Status::InvalidArgument(error);
  if (slice.name.size() > std::numeric_limits<uint32_t>::max()) {
    return Status::InvalidArgument("the name of a dense tensor is too long");
  }
  return Status::Ok();
}

std::vector<uint64_t> GetDims(const char* p, size_t rank) {
  std::vector<uint64_t> dims(rank);
  if (rank > 0) std::memcpy(dims.data(), p, rank * sizeof(uint64_t));
  return dims;
}

void Split(const DenseSlice& slice, size_t dim, uint64_t max_elements,
           std::vector<DenseSlice>* out) {
  if (slice.elements() <= max_elements || dim == slice.shape.size()) {
    out->push_back(slice);
    return;
  }
  const uint64_t extent = slice.slice_shape[dim];
  const uint64_t per_index = slice.elements() / extent;
  const uint64_t step = std::max<uint64_t>(1, max_elements / per_index);
  for (uint64_t start = 0; start < extent; start += step) {
    DenseSlice part = slice;
    part.offset[dim] += start;
    part.slice_shape[dim] = std::min(step, extent - start);
    Split(part, dim + 1, max_elements, out);
  }
}

}  // namespace

DenseSlice DenseSlice::Whole(std::string name, DType dtype,
                             std::vector<uint64_t> shape) {
  DenseSlice slice;
  slice.name = std::move(name);
  slice.dtype = dtype;
  slice.offset.assign(shape.size(), 0);
  slice.slice_shape = shape;
  slice.shape = std::move(shape);
  return slice;
}

uint64_t DenseSlice::elements() const {
  uint64_t product = 0;
  return Product(slice_shape, &product) ? product : 0;
}

bool DenseSlice::operator==(const DenseSlice& other) const {
  return name == other.name && dtype == other.dtype && shape == other.shape &&
         offset == other.offset && slice_shape == other.slice_shape;
}

std::vector<DenseSlice> SplitSlice(const DenseSlice& slice,
                                   uint64_t max_bytes) {
  const size_t size = DTypeSize(slice.dtype);
  std::vector<DenseSlice> parts;
  Split(slice, 0, std::max<uint64_t>(1, max_bytes / (size == 0 ? 16 : size)),
        &parts);
  return parts;
}

Status EncodeDenseBlock(const DenseSlice& slice, const void* data,
                        uint64_t bytes, EncodedBlock* block) {
  ADAPTCP_RETURN_IF_ERROR(CheckSlice(slice));
  const size_t size = DTypeSize(slice.dtype);
  uint64_t expected;
  if (size == 0 ||
      __builtin_mul_overflow(slice.elements(), uint64_t{size}, &expected) ||
      bytes != expected) {
    return Status::InvalidArgument(
        "dense block of \"" + slice.name + "\": wrong size. Received: " +
        std::to_string(bytes) + " bytes of " + DTypeName(slice.dtype) +
        ". Expected: " + std::to_string(slice.elements()) +
        " elements of a fixed size");
  }
  PutHead(slice, bytes, &block->record);
  if (bytes > 0) block->record.append(static_cast<const char*>(data), bytes);
  FinishBlock(slice, bytes, block);
  return Status::Ok();
}

Status EncodeStringDenseBlock(const DenseSlice& slice,
                              const std::vector<std::string_view>& data,
                              EncodedBlock* block) {
  ADAPTCP_RETURN_IF_ERROR(CheckSlice(slice));
  if (slice.dtype != DType::kString || data.size() != slice.elements()) {
    return Status::InvalidArgument(
        "dense block of \"" + slice.name + "\": Received: " +
        std::to_string(data.size()) + " strings for a slice of " +
        std::to_string(slice.elements()) + " elements of " +
        DTypeName(slice.dtype));
  }
  uint64_t bytes = 0;
  for (const std::string_view s : data) {
    if (s.size() > std::numeric_limits<uint32_t>::max()) {
      return Status::InvalidArgument("dense block of \"" + slice.name +
                                     "\": a string of 4 GiB or more");
    }
    bytes += sizeof(uint32_t) + s.size();
  }
  PutHead(slice, bytes, &block->record);
  for (const std::string_view s : data) {
    wire::Put(static_cast<uint32_t>(s.size()), &block->record);
  }
  for (const std::string_view s : data) block->record.append(s);
  FinishBlock(slice, bytes, block);
  return Status::Ok();
}

Status DenseBlockView::Parse(std::string_view record, DenseBlockView* view) {
  if (reinterpret_cast<uintptr_t>(record.data()) % 8 != 0) {
    return Status::InvalidArgument("a record must be aligned to 8 bytes");
  }
  wire::Cursor cursor(record);
  std::string_view head;
  if (!cursor.Take(wire::kDenseBlockHeader, &head) ||
      head[0] != static_cast<char>(RecordType::kDense)) {
    return Status::DataLoss("not a dense block");
  }
  const auto version = wire::Get<uint8_t>(head.data() + 1);
  if (version != kDenseBlockVersion) {
    return Status::Unimplemented(
        "unknown dense block version. Received: " + std::to_string(version) +
        ". Expected: " + std::to_string(kDenseBlockVersion));
  }
  const auto rank = wire::Get<uint32_t>(head.data() + 4);
  const auto name_bytes = wire::Get<uint32_t>(head.data() + 8);
  const auto data_bytes = wire::Get<uint64_t>(head.data() + 16);
  std::string_view dims, name;
  if (wire::Get<uint32_t>(head.data() + 12) != 0 || rank > kMaxRank ||
      !cursor.Take(3 * sizeof(uint64_t) * uint64_t{rank}, &dims) ||
      !cursor.TakePadded(name_bytes, &name)) {
    return Status::DataLoss("dense block: bad rank or name length");
  }
  DenseSlice& slice = view->slice;
  slice.name = std::string(name);
  slice.dtype = static_cast<DType>(wire::Get<uint8_t>(head.data() + 2));
  const std::string what = "dense block of \"" + slice.name + "\"";
  if (!IsKnownDType(slice.dtype)) {
    return Status::Unimplemented(what + ": unknown dtype. Received: " +
                                 std::to_string(static_cast<int>(slice.dtype)));
  }
  const Status codec = CheckCodec(wire::Get<uint8_t>(head.data() + 3), false);
  if (!codec.ok()) return Status(codec.code(), what + ": " + codec.message());
  slice.shape = GetDims(dims.data(), rank);
  slice.offset = GetDims(dims.data() + rank * sizeof(uint64_t), rank);
  slice.slice_shape = GetDims(dims.data() + 2 * rank * sizeof(uint64_t), rank);
  const std::string error = SliceError(slice);
  if (!error.empty()) return Status::DataLoss(error);
  if (!cursor.TakePadded(data_bytes, &view->data) || !cursor.empty()) {
    return Status::DataLoss(what + ": " + std::to_string(data_bytes) +
                            " bytes, zero-padded to 8, are not what is left "
                            "of the block");
  }
  view->strings.clear();
  const uint64_t elements = slice.elements();
  if (slice.dtype == DType::kString) {
    return wire::ParseStrings(view->data, elements, what, &view->strings);
  }
  return wire::CheckElements(view->data, elements, slice.dtype, what);
}

}  // namespace adaptcp

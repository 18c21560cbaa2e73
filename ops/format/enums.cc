#include "ops/format/enums.h"

namespace adaptcp {
namespace {

struct DTypeEntry {
  DType dtype;
  const char* name;
  size_t size;
};

constexpr DTypeEntry kDTypes[] = {
    {DType::kFloat32, "float32", 4},     {DType::kFloat64, "float64", 8},
    {DType::kInt32, "int32", 4},         {DType::kUint8, "uint8", 1},
    {DType::kInt16, "int16", 2},         {DType::kInt8, "int8", 1},
    {DType::kString, "string", 0},       {DType::kComplex64, "complex64", 8},
    {DType::kInt64, "int64", 8},         {DType::kBool, "bool", 1},
    {DType::kBfloat16, "bfloat16", 2},   {DType::kUint16, "uint16", 2},
    {DType::kComplex128, "complex128", 16}, {DType::kHalf, "float16", 2},
    {DType::kUint32, "uint32", 4},       {DType::kUint64, "uint64", 8},
};

constexpr SegmentKind kKinds[] = {
    SegmentKind::kBase, SegmentKind::kIncrement, SegmentKind::kDifferential,
    SegmentKind::kDense};

const DTypeEntry* Find(DType dtype) {
  for (const DTypeEntry& entry : kDTypes) {
    if (entry.dtype == dtype) return &entry;
  }
  return nullptr;
}

}  // namespace

const char* DTypeName(DType dtype) {
  const DTypeEntry* entry = Find(dtype);
  return entry == nullptr ? "" : entry->name;
}

const char* SegmentKindName(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kBase: return "base";
    case SegmentKind::kIncrement: return "increment";
    case SegmentKind::kDifferential: return "differential";
    case SegmentKind::kDense: return "dense";
  }
  return "";
}

Status ParseDType(std::string_view name, DType* dtype) {
  std::string known;
  for (const DTypeEntry& entry : kDTypes) {
    if (name == entry.name) {
      *dtype = entry.dtype;
      return Status::Ok();
    }
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  return Status::InvalidArgument("unknown dtype. Received: \"" +
                                 std::string(name) + "\". Expected one of: " +
                                 known);
}

Status ParseSegmentKind(std::string_view name, SegmentKind* kind) {
  for (const SegmentKind candidate : kKinds) {
    if (name == SegmentKindName(candidate)) {
      *kind = candidate;
      return Status::Ok();
    }
  }
  return Status::InvalidArgument(
      "unknown segment kind. Received: \"" + std::string(name) +
      "\". Expected one of: base, increment, differential, dense");
}

size_t DTypeSize(DType dtype) {
  const DTypeEntry* entry = Find(dtype);
  return entry == nullptr ? 0 : entry->size;
}

bool IsKeyDType(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kInt32 ||
         dtype == DType::kString;
}

bool IsKnownDType(DType dtype) { return Find(dtype) != nullptr; }

bool IsFloatDType(DType dtype) {
  return dtype == DType::kHalf || dtype == DType::kBfloat16 ||
         dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

Status CheckCodec(uint8_t codec, bool may_lose) {
  if (codec == static_cast<uint8_t>(Codec::kRaw)) return Status::Ok();
  if (codec > static_cast<uint8_t>(Codec::kBfloat16)) {
    return Status::Unimplemented(
        "unknown codec. Received: " + std::to_string(codec) +
        ". Expected: 0 (raw), 1 (affine), 2 (codebook) or 3 (bfloat16); was "
        "this file written by a later version?");
  }
  if (may_lose) return Status::Ok();
  return Status::DataLoss("a codec for values of floating point alone. "
                          "Received: " +
                          std::to_string(codec) + ". Expected: 0 (raw)");
}

}  // namespace adaptcp

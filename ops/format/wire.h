// Little-endian primitives shared by the encoders and parsers of ops/format.

#ifndef ADAPTCP_OPS_FORMAT_WIRE_H_
#define ADAPTCP_OPS_FORMAT_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ops/format/enums.h"
#include "ops/util/status.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "columns are copied as they lie in memory");

namespace adaptcp {
namespace wire {

// Row blocks: block header, then columns; each column has a header of its own
// and is padded with zeros to a multiple of 8 bytes (docs/format.md).
constexpr size_t kRowBlockHeader = 16;
constexpr size_t kColumnHeader = 16;
constexpr size_t kDenseBlockHeader = 24;

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
T Get(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

inline size_t Padding(uint64_t n) { return (8 - (n & 7)) & 7; }

// The front of a record that has not been read yet. Take and TakePadded
// refuse to go past its end, so a length from the file is harmless until it has
// passed here.
class Cursor {
 public:
  explicit Cursor(std::string_view rest) : rest_(rest) {}

  bool Take(uint64_t n, std::string_view* out) {
    if (n > rest_.size()) return false;
    *out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return true;
  }

  // Takes n bytes and the zeros after them.
  bool TakePadded(uint64_t n, std::string_view* out) {
    std::string_view zeros;
    if (!Take(n, out) || !Take(Padding(n), &zeros)) return false;
    for (const char c : zeros) {
      if (c != 0) return false;
    }
    return true;
  }

  size_t size() const { return rest_.size(); }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// A column of strings: u32 length each, then all their bytes. DataLoss, naming
// `what`, unless `bytes` is exactly `count` strings.
inline Status ParseStrings(std::string_view bytes, uint64_t count,
                           const std::string& what,
                           std::vector<std::string_view>* out) {
  if (count > bytes.size() / sizeof(uint32_t)) {
    return Status::DataLoss(what + ": " + std::to_string(bytes.size()) +
                            " bytes can't hold " + std::to_string(count) +
                            " strings");
  }
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    total += Get<uint32_t>(bytes.data() + i * sizeof(uint32_t));
  }
  const uint64_t available = bytes.size() - count * sizeof(uint32_t);
  if (total != available) {
    return Status::DataLoss(what + ": string lengths add up to " +
                            std::to_string(total) + ". Expected: " +
                            std::to_string(available));
  }
  out->clear();
  out->reserve(count);
  const char* p = bytes.data() + count * sizeof(uint32_t);
  for (uint64_t i = 0; i < count; ++i) {
    const auto n = Get<uint32_t>(bytes.data() + i * sizeof(uint32_t));
    out->emplace_back(p, n);
    p += n;
  }
  return Status::Ok();
}

// DataLoss, naming `what`, unless `bytes` is exactly `count` elements of a type
// that has a fixed size.
inline Status CheckElements(std::string_view bytes, uint64_t count, DType dtype,
                            const std::string& what) {
  const size_t size = DTypeSize(dtype);
  if (bytes.size() % size != 0 || bytes.size() / size != count) {
    return Status::DataLoss(what + ": wrong size. Received: " +
                            std::to_string(bytes.size()) +
                            " bytes. Expected: " + std::to_string(count) +
                            " elements of " + std::to_string(size) + " bytes");
  }
  if (dtype != DType::kBool) return Status::Ok();
  for (const char c : bytes) {
    if (c != 0 && c != 1) {
      return Status::DataLoss(what + ": a bool that is neither 0 nor 1");
    }
  }
  return Status::Ok();
}

}  // namespace wire
}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_WIRE_H_

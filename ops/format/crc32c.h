// CRC32C (Castagnoli), and the mask that TFRecord files store it under.

#ifndef ADAPTCP_OPS_FORMAT_CRC32C_H_
#define ADAPTCP_OPS_FORMAT_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace adaptcp {

// The CRC32C of A+B, given crc == the CRC32C of A and `data` == B. Any thread.
// Uses the SSE4.2 instruction where the processor has it.
uint32_t ExtendCrc32c(uint32_t crc, const char* data, size_t n);

inline uint32_t Crc32c(std::string_view data) {
  return ExtendCrc32c(0, data.data(), data.size());
}

// A CRC stored beside the data it covers is masked: the CRC of a string that
// contains its own CRC is weak. Same constants as TFRecord and LevelDB.
inline uint32_t MaskCrc(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

inline uint32_t UnmaskCrc(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

namespace internal {
// The fallback, visible so that a test can hold it against the fast one.
uint32_t ExtendCrc32cPortable(uint32_t crc, const char* data, size_t n);
}  // namespace internal

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_CRC32C_H_

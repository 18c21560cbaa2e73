#include "ops/format/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define ADAPTCP_CRC32C_SSE42 1
#include <nmmintrin.h>
#endif

namespace adaptcp {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: the CRC of byte b followed by k zero bytes, so that eight bytes
// are taken per step.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
    }
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t crc = tables[k - 1][b];
      tables[k][b] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

#ifdef ADAPTCP_CRC32C_SSE42
// The instruction gives a result every cycle, each three cycles late: three
// lanes of so many bytes are taken at a time.
constexpr size_t kLane = 1024;

__attribute__((target("sse4.2"))) uint64_t Take(uint64_t state,
                                                const char* data) {
  uint64_t word;
  std::memcpy(&word, data, 8);
  return _mm_crc32_u64(state, word);
}

// What a state becomes by kLane zeros, the sum over its bytes: CRCs are linear.
class ZerosOfLane {
 public:
  __attribute__((target("sse4.2"))) ZerosOfLane() {
    for (uint32_t k = 0; k < 4; ++k) {
      for (uint32_t b = 0; b < 256; ++b) {
        uint64_t state = b << (8 * k);
        for (size_t i = 0; i < kLane / 8; ++i) state = _mm_crc32_u64(state, 0);
        after_[k][b] = static_cast<uint32_t>(state);
      }
    }
  }
  uint64_t operator()(uint64_t state) const {
    return after_[0][state & 0xff] ^ after_[1][(state >> 8) & 0xff] ^
           after_[2][(state >> 16) & 0xff] ^ after_[3][(state >> 24) & 0xff];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> after_;
};

__attribute__((target("sse4.2"))) uint32_t ExtendCrc32cSse42(uint32_t crc,
                                                             const char* data,
                                                             size_t n) {
  uint64_t state = crc ^ 0xffffffffu;
  if (n >= 3 * kLane) {
    static const ZerosOfLane after_zeros;
    for (; n >= 3 * kLane; n -= 3 * kLane, data += 3 * kLane) {
      uint64_t second = 0;
      uint64_t third = 0;
      for (size_t i = 0; i < kLane; i += 8) {
        state = Take(state, data + i);
        second = Take(second, data + kLane + i);
        third = Take(third, data + 2 * kLane + i);
      }
      state = after_zeros(after_zeros(state) ^ second) ^ third;
    }
  }
  for (; n >= 8; n -= 8, data += 8) state = Take(state, data);
  uint32_t state32 = static_cast<uint32_t>(state);
  for (; n > 0; --n, ++data) {
    state32 = _mm_crc32_u8(state32, static_cast<uint8_t>(*data));
  }
  return state32 ^ 0xffffffffu;
}
#endif

using ExtendFn = uint32_t (*)(uint32_t, const char*, size_t);

ExtendFn ChooseExtend() {
#ifdef ADAPTCP_CRC32C_SSE42
  if (__builtin_cpu_supports("sse4.2")) return ExtendCrc32cSse42;
#endif
  return internal::ExtendCrc32cPortable;
}

}  // namespace

namespace internal {

uint32_t ExtendCrc32cPortable(uint32_t crc, const char* data, size_t n) {
  const auto* p = reinterpret_cast<const uint8_t*>(data);
  uint32_t state = crc ^ 0xffffffffu;
  for (; n >= 8; n -= 8, p += 8) {
    state ^= static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
             static_cast<uint32_t>(p[2]) << 16 |
             static_cast<uint32_t>(p[3]) << 24;
    state = kTables[7][state & 0xff] ^ kTables[6][(state >> 8) & 0xff] ^
            kTables[5][(state >> 16) & 0xff] ^ kTables[4][state >> 24] ^
            kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^
            kTables[0][p[7]];
  }
  for (; n > 0; --n, ++p) {
    state = (state >> 8) ^ kTables[0][(state ^ *p) & 0xff];
  }
  return state ^ 0xffffffffu;
}

}  // namespace internal

uint32_t ExtendCrc32c(uint32_t crc, const char* data, size_t n) {
  static const ExtendFn extend = ChooseExtend();
  return extend(crc, data, n);
}

}  // namespace adaptcp

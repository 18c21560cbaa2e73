// Conversions between float and the 16-bit floats, bit by bit: the same on every
// processor, whatever its flags say of denormals.

#ifndef ADAPTCP_OPS_FORMAT_FLOAT_BITS_H_
#define ADAPTCP_OPS_FORMAT_FLOAT_BITS_H_

#include <cfenv>
#include <cstdint>
#include <cstring>

namespace adaptcp {

inline uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

inline float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline bool IsFinite(float x) { return (BitsOf(x) & 0x7f800000u) != 0x7f800000u; }

inline float FromBfloat16(uint16_t bits) { return FloatOf(uint32_t{bits} << 16); }

inline bool IsFiniteBfloat16(uint16_t bits) { return (bits & 0x7f80) != 0x7f80; }

// To nearest, ties to even. x is not NaN; too large ones become infinite.
inline uint16_t ToBfloat16(float x) {
  const uint32_t bits = BitsOf(x);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// The greatest bfloat16 that is not above x, the least that is not below it.
inline uint16_t FloorBfloat16(float x) {
  const uint32_t bits = BitsOf(x);
  return static_cast<uint16_t>((bits + ((bits >> 31) != 0 ? 0xffff : 0)) >> 16);
}
inline uint16_t CeilBfloat16(float x) {
  const uint32_t bits = BitsOf(x);
  return static_cast<uint16_t>((bits + ((bits >> 31) != 0 ? 0 : 0xffff)) >> 16);
}

inline float FromHalf(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 31, fraction = half & 0x3ff;
  if (exponent == 31) return FloatOf(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return FloatOf(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return FloatOf(sign | BitsOf(magnitude));
}

// To nearest, ties to even. x is not NaN; too large ones become infinite.
inline uint16_t ToHalf(float x) {
  const uint32_t bits = BitsOf(x);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // 65520 and above
  if (magnitude < 0x38800000u) {
    // Below the normal halves: adding 0.5 leaves multiples of 2^-24.
    const float shifted = FloatOf(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsOf(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// While one lives, this thread computes with denormals and rounds to nearest:
// TensorFlow's threads flush denormals to zero, other readers don't.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&before_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_FLOAT_BITS_H_

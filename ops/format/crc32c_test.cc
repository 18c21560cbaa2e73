#include "ops/format/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace adaptcp {
namespace {

// RFC 3720, B.4.
TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32cTest, PortableAgreesAtAllLengthsAndAlignments) {
  std::string data;
  for (int i = 0; i < 300; ++i) data += static_cast<char>(i * 131 + i / 7);
  for (size_t start = 0; start < 9; ++start) {
    for (size_t n = 0; start + n <= data.size(); ++n) {
      const char* p = data.data() + start;
      ASSERT_EQ(internal::ExtendCrc32cPortable(7, p, n), ExtendCrc32c(7, p, n));
    }
  }
}

TEST(Crc32cTest, PortableAgreesOnLongData) {
  std::string data;
  for (int i = 0; i < 20000; ++i) data += static_cast<char>(i * 131 + i / 7);
  for (const size_t n : {3071, 3072, 3073, 3080, 6143, 6144, 6145, 9216, 9999,
                         19990}) {
    for (size_t start = 0; start < 9; ++start) {
      const char* p = data.data() + start;
      ASSERT_EQ(internal::ExtendCrc32cPortable(7, p, n), ExtendCrc32c(7, p, n))
          << n << " bytes from " << start;
    }
  }
}

TEST(Crc32cTest, ExtendsPieceByPiece) {
  const std::string data = "a record in three pieces";
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    const uint32_t first = Crc32c(data.substr(0, cut));
    EXPECT_EQ(ExtendCrc32c(first, data.data() + cut, data.size() - cut),
              Crc32c(data));
  }
}

TEST(Crc32cTest, MaskIsThatOfTfRecord) {
  EXPECT_EQ(MaskCrc(0), 0xa282ead8u);
  for (const uint32_t crc : {0u, 1u, 0x8a9136aau, 0xffffffffu}) {
    EXPECT_EQ(UnmaskCrc(MaskCrc(crc)), crc);
    EXPECT_NE(MaskCrc(crc), crc);
  }
}

}  // namespace
}  // namespace adaptcp

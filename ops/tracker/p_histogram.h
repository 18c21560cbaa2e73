// How the update probabilities of a tracker's rows are distributed.

#ifndef ADAPTCP_OPS_TRACKER_P_HISTOGRAM_H_
#define ADAPTCP_OPS_TRACKER_P_HISTOGRAM_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace adaptcp {

// Four buckets per factor of two from 2^-20 (1e-6) to 1, the last including 1;
// bucket 0 takes everything below. What is counted is a sample.
struct PHistogram {
  static constexpr int kBuckets = 81;

  struct Counts {
    std::array<uint64_t, kBuckets> rows{};
    std::array<double, kBuckets> sum_of_p{};  // of these rows

    void Add(int bucket, float p) {
      ++rows[bucket];
      sum_of_p[bucket] += p;
    }
  };

  Counts all;              // tracked rows
  Counts unsaved;          // those the next cut would save
  uint64_t hot = 0;        // unsaved rows above the threshold asked for
  uint64_t counted = 0;    // rows of the sample
  uint64_t keys = 0;       // rows that there are

  // How many rows one of the sample stands for.
  double scale() const {
    return counted == 0 ? 1 : static_cast<double>(keys) / counted;
  }

  static int BucketOf(float p) {
    if (!(p >= 0x1p-20f)) return 0;
    if (p >= 1.0f) return kBuckets - 1;
    uint32_t bits;
    std::memcpy(&bits, &p, sizeof(bits));
    // Exponent and the two highest bits of the mantissa.
    return static_cast<int>((bits >> 21) - ((127 - 20) << 2)) + 1;
  }
  // The smallest p of a bucket.
  static double LowerBound(int bucket) {
    if (bucket <= 0) return 0;
    const int step = bucket - 1;
    return std::ldexp(1 + step % 4 / 4.0, step / 4 - 20);
  }
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_P_HISTOGRAM_H_

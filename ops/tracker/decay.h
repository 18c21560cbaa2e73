// The two estimates of how likely a row is to be written, and their decay.

#ifndef ADAPTCP_OPS_TRACKER_DECAY_H_
#define ADAPTCP_OPS_TRACKER_DECAY_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace adaptcp {

enum class Estimator : uint8_t {
  // The estimate is an exponentially weighted mean of the indicator "written in
  // the interval": p itself. It needs nothing of lookups.
  kUpdates = 0,
  // It is the same mean of how often the row was looked up in an interval: f.
  // If lookups come at random, one or more come with p = 1 - exp(-f).
  kAccesses = 1,
};

// An entry keeps its estimate as of its last write, so that only a write has to
// bring it up to date; a lookup later than that adds what will have decayed to
// its due when the estimate is used. Immutable: any thread.
class Decay {
 public:
  // Requires 0 <= factor < 1, and 0 < factor for accesses.
  explicit Decay(double factor, Estimator estimator = Estimator::kUpdates)
      : factor_(factor), estimator_(estimator) {
    for (double power = 1; powers_.size() < kMostPowers; power *= factor) {
      powers_.push_back(static_cast<float>(power));
      if (powers_.back() == 0) break;
    }
  }

  Estimator estimator() const { return estimator_; }

  // The estimate after `intervals` without a write.
  float Idle(float estimate, uint32_t intervals) const {
    return estimate * Power(intervals);
  }
  // After a write, `intervals` after the last one.
  float Written(float estimate, uint32_t intervals) const {
    const float idle = Idle(estimate, intervals);
    if (estimator_ == Estimator::kAccesses) return idle;
    // Rounding must not carry it above 1, where even "nothing is hot" is hot.
    return std::min(idle + Gain(), 1.0f);
  }
  // Of a row that is written and was not there before. The lookup that came
  // first has found no entry to be recorded in.
  float Created() const { return Gain(); }
  // After a lookup, `intervals` after the last write. A row that is only read
  // for hundreds of intervals reaches a bound, and reads too low from then on:
  // such a row is saved, and no longer asked for.
  float Accessed(float estimate, uint32_t intervals) const {
    const float power = Power(intervals);
    if (power == 0) return kMost;
    return std::min(estimate + Gain() / power, kMost);
  }

  // What is compared with thresholds and written to files, in [0, 1].
  float ToProbability(float estimate) const {
    if (estimator_ == Estimator::kUpdates) return estimate;
    return static_cast<float>(-std::expm1(-static_cast<double>(estimate)));
  }
  // Near p = 1 a float no longer tells one f from another: at most 16.6.
  float FromProbability(float p) const {
    if (estimator_ == Estimator::kUpdates) return p;
    constexpr double kLargest = 1 - 0x1p-24;
    const double bounded = std::max(0.0, std::min<double>(p, kLargest));
    return static_cast<float>(-std::log1p(-bounded));
  }

 private:
  static constexpr float kMost = 1e38f;
  // Most rows of an old table were written hundreds of intervals ago. With a
  // factor of up to 0.97 all powers are there that are not 0: 987 with 0.9.
  static constexpr size_t kMostPowers = 4096;

  float Gain() const { return static_cast<float>(1 - factor_); }
  float Power(uint32_t intervals) const {
    if (intervals < powers_.size()) return powers_[intervals];
    if (powers_.back() == 0) return 0;
    return static_cast<float>(std::pow(factor_, intervals));
  }

  double factor_;
  Estimator estimator_;
  std::vector<float> powers_;  // of the factor, to the first that is 0
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_DECAY_H_

// The decay of the update indicator.

#ifndef ADAPTCP_OPS_TRACKER_DECAY_H_
#define ADAPTCP_OPS_TRACKER_DECAY_H_

#include <array>
#include <cmath>
#include <cstdint>

namespace adaptcp {

// p estimates the probability that a row is written in an interval: an
// exponentially weighted mean of the indicator "written", brought up to date at
// the first write of an interval. Immutable: any thread.
class Decay {
 public:
  explicit Decay(double factor) : factor_(factor) {
    double power = 1;
    for (float& entry : powers_) {
      entry = static_cast<float>(power);
      power *= factor;
    }
  }

  // p after `intervals` without a write.
  float Idle(float p, uint32_t intervals) const {
    return p * (intervals < powers_.size()
                    ? powers_[intervals]
                    : static_cast<float>(std::pow(factor_, intervals)));
  }
  // p after a write, `intervals` after the last one.
  float Written(float p, uint32_t intervals) const {
    return Idle(p, intervals) + static_cast<float>(1 - factor_);
  }

 private:
  double factor_;
  std::array<float, 64> powers_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_DECAY_H_

// What a Session tells of its groups: counts, and how likely their rows are to be
// updated, of samples.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/session.h"

namespace adaptcp {

Json Session::Stats() const {
  Json groups = Json::array();
  for (const auto& group : groups_) {
    Json stats = group->Stats();
    stats["name"] = group->spec().name;
    stats["shard"] = group->spec().shard;
    groups.push_back(std::move(stats));
  }
  return {{"groups", groups}};
}

// Enough of each group that a share of a hundredth is known to a tenth of it,
// and not so many of all that a checkpoint notices.
uint64_t Session::SampleSize() const {
  constexpr uint64_t kOfAll = 128 << 10, kOfEach = 16 << 10;
  return std::max<uint64_t>(kOfEach, kOfAll / std::max<size_t>(1, groups_.size()));
}

Json Session::Histograms(const Json& request) const {
  const Seq sequence = request.value("sequence", Seq{0});
  Json groups = Json::array();
  for (const auto& group : groups_) {
    const PHistogram found = group->HistogramOfP(sequence, 2.0, SampleSize());
    const auto scaled = [&](const auto& sample) {
      std::vector<double> values(sample.begin(), sample.end());
      for (double& value : values) value *= found.scale();
      return values;
    };
    groups.push_back({{"name", group->spec().name},
                      {"rows", scaled(found.all.rows)},
                      {"sum_of_p", scaled(found.all.sum_of_p)},
                      {"unsaved", scaled(found.unsaved.rows)}});
  }
  return {{"groups", groups}};
}

Json Session::Predict(const Json& request) const {
  const Seq sequence = request.value("sequence", Seq{0});
  const bool is_base = request.value("kind", "") == "base";
  const auto thresholds =
      request.value("thresholds", std::map<std::string, double>());
  std::map<std::string, std::pair<double, double>> rows;
  for (const auto& group : groups_) {
    const auto found = thresholds.find(group->spec().name);
    const PHistogram sample = group->HistogramOfP(
        sequence, found == thresholds.end() ? 2.0 : found->second,
        SampleSize());
    uint64_t unsaved = 0;
    for (const uint64_t count : sample.unsaved.rows) unsaved += count;
    auto& [hot, cold] = rows[group->spec().name];
    if (is_base) {
      cold += sample.keys;
    } else {
      hot += sample.hot * sample.scale();
      cold += (unsaved - sample.hot) * sample.scale();
    }
  }
  return rows;
}

}  // namespace adaptcp

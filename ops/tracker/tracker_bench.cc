// What tracking costs a write, and, where accesses are counted, a lookup:
// nanoseconds of CPU time per key; and what it costs to ask how p is distributed.
//
//   tracker_bench [rows, default 10000000] [batches per measurement, default 40]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "ops/tracker/group_tracker.h"

namespace {

using adaptcp::CutKind;
using adaptcp::Estimator;
using adaptcp::GroupTracker;
using adaptcp::RowClass;
using adaptcp::Seq;
using adaptcp::TrackerOptions;
using Keys = std::vector<int64_t>;

constexpr size_t kBatch = 1 << 16;

double Seconds(const std::function<void()>& f) {
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// Ranks 0..rows-1 with P(rank) ~ 1 / (rank+1)^exponent, by inversion of the
// continuous distribution, scattered over the key space.
int64_t Zipf(double u, double rows, double exponent) {
  const double a = 1 - exponent;
  const double rank = std::pow(u * (std::pow(rows + 1, a) - 1) + 1, 1 / a) - 1;
  return static_cast<int64_t>(std::min(rank, rows - 1)) * 2654435761 %
         static_cast<int64_t>(rows);
}

void Drain(GroupTracker<int64_t>* tracker, Seq n) {
  Keys keys;
  std::vector<RowClass> classes(4096);
  while (tracker->NextPending(n, 4096, &keys)) {
    tracker->Claim(n, keys.data(), nullptr, keys.size(), nullptr,
                   classes.data(), nullptr);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 10000000;
  const int batches = argc > 2 ? std::atoi(argv[2]) : 40;
  TrackerOptions options;
  options.estimator = Estimator::kAccesses;
  GroupTracker<int64_t> tracker(options);
  Keys keys(kBatch);
  const double fill = Seconds([&] {
    for (int64_t from = 0; from < rows; from += kBatch) {
      const int64_t n = std::min<int64_t>(kBatch, rows - from);
      std::iota(keys.begin(), keys.begin() + n, from);
      tracker.Touch(keys.data(), n);
    }
  });
  const auto stats = tracker.Stats();
  std::printf("fill     %6.1f ns/key  (%lld rows, %.1f bytes per key)\n",
              fill / rows * 1e9, static_cast<long long>(rows),
              static_cast<double>(stats.memory_bytes) / stats.keys);

  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  Seq n = 0;
  for (const bool zipf : {true, false}) {
    std::vector<Keys> work(batches, Keys(kBatch));
    for (Keys& batch : work) {
      for (int64_t& key : batch) {
        const double u = uniform(random);
        key = zipf ? Zipf(u, rows, 1.2) : static_cast<int64_t>(u * rows);
      }
    }
    const auto touch_all = [&] {
      for (const Keys& batch : work) tracker.Touch(batch.data(), batch.size());
    };
    for (int round = 0; round < 3; ++round) {
      const double keys_touched = static_cast<double>(batches) * kBatch;
      ++n;
      const double cut = Seconds([&] {
        if (!tracker.Cut({n, CutKind::kDelta, HUGE_VAL}).ok()) std::abort();
      });
      const uint64_t candidates = tracker.CountUncaptured(n);
      const double drain = Seconds([&] { Drain(&tracker, n); });
      const double resolve = Seconds([&] {
        if (!tracker.Resolve(n, true).ok()) std::abort();
      });
      const double first = Seconds(touch_all);
      const double again = Seconds(touch_all);
      const double lookups = Seconds([&] {
        for (const Keys& batch : work) {
          tracker.RecordAccesses(batch.data(), batch.size());
        }
      });
      const double asked = Seconds([&] {
        if (tracker.HistogramOfP(n + 1, 0.5, 128 << 10).counted == 0) {
          std::abort();
        }
      });
      std::printf(
          "%-8s %6.1f ns/key first in the interval, %6.1f again, %6.1f of a "
          "lookup; distribution %.1f ms; cut %.0f us, %llu rows: drain %.1f "
          "ns/row, resolve %.1f ns/row\n",
          zipf ? "zipf 1.2" : "uniform", first / keys_touched * 1e9,
          again / keys_touched * 1e9, lookups / keys_touched * 1e9,
          asked * 1e3, cut * 1e6,
          static_cast<unsigned long long>(candidates),
          drain / std::max<double>(1, candidates) * 1e9,
          resolve / std::max<double>(1, candidates) * 1e9);
    }
  }
  return 0;
}

// A tracker while it grows: memory per key, the longest that one write of new
// rows takes, as a stripe's table is copied into a larger one, and what a cut of
// everything takes under the closed gate. CPU time of the thread, so that
// neighbours don't count. A line of JSON for each number of rows.
//
//   growth_bench [rows at the end, default 16000000] [at the first line, 1000000]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <vector>

#include "ops/tracker/group_tracker.h"

namespace {

using adaptcp::CutKind;
using adaptcp::GroupTracker;
using adaptcp::Seq;

constexpr int64_t kBatch = 1024;

double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t last = argc > 1 ? std::atoll(argv[1]) : 16000000;
  GroupTracker<int64_t> tracker;
  std::vector<int64_t> keys(kBatch);
  std::vector<double> seconds;
  int64_t rows = 0;
  Seq n = 0;
  for (int64_t stop = argc > 2 ? std::atoll(argv[2]) : 1000000; stop <= last;
       stop *= 2) {
    seconds.clear();
    while (rows < stop) {
      std::iota(keys.begin(), keys.end(), rows);
      const double start = Now();
      tracker.Touch(keys.data(), keys.size());
      seconds.push_back(Now() - start);
      rows += kBatch;
    }
    const auto stats = tracker.Stats();
    const double cutting = Now();
    if (!tracker.Cut({++n, CutKind::kBase, 2.0}).ok()) std::abort();
    const double resolving = Now();
    if (!tracker.Resolve(n, false).ok()) std::abort();
    const double resolved = Now();
    std::printf(
        "{\"rows\": %lld, \"bytes_per_key\": %.2f, \"longest_write_ms\": %.3f, "
        "\"median_write_ms\": %.4f, \"cut_ms\": %.4f, "
        "\"resolve_ns_per_row\": %.2f}\n",
        static_cast<long long>(rows),
        static_cast<double>(stats.memory_bytes) / stats.keys,
        1e3 * *std::max_element(seconds.begin(), seconds.end()),
        1e3 * Median(seconds), 1e3 * (resolving - cutting),
        1e9 * (resolved - resolving) / rows);
    std::fflush(stdout);
  }
  return 0;
}

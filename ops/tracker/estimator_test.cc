// What the tracker believes of a row's future, against plain maps in double
// precision: both estimators, and how their probabilities are distributed.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "ops/tracker/group_tracker.h"

namespace adaptcp {
namespace {

using Tracker = GroupTracker<int64_t>;
using Keys = std::vector<int64_t>;
constexpr double kAllCold = std::numeric_limits<double>::infinity();

TrackerOptions With(double decay, Estimator estimator) {
  TrackerOptions options;
  options.decay = decay;
  options.estimator = estimator;
  return options;
}

// The estimates by their definition: brought up to date for every row at every
// cut, so that nothing is kept as of anything.
class Oracle {
 public:
  Oracle(double decay, Estimator estimator)
      : decay_(decay), estimator_(estimator) {}

  void Write(int64_t key) {
    Row& row = rows_[key];
    const bool updates = estimator_ == Estimator::kUpdates;
    if (updates ? !row.written : !row.exists) row.value += 1 - decay_;
    row.written = row.exists = true;
  }
  void Look(int64_t key) {
    const auto row = rows_.find(key);
    if (row == rows_.end() || estimator_ != Estimator::kAccesses) return;
    row->second.value += 1 - decay_;
  }
  void Pass(Seq intervals) {
    for (auto& [key, row] : rows_) {
      row.value *= std::pow(decay_, intervals);
      row.written = false;
    }
  }
  double P(int64_t key) const {
    const double value = rows_.at(key).value;
    return estimator_ == Estimator::kUpdates ? value : 1 - std::exp(-value);
  }
  const auto& rows() const { return rows_; }

 private:
  struct Row {
    double value = 0;
    bool written = false, exists = false;
  };
  double decay_;
  Estimator estimator_;
  std::map<int64_t, Row> rows_;
};

// Claims all that the cut needs: {key: p}.
std::map<int64_t, float> Drain(Tracker* tracker, Seq n) {
  std::map<int64_t, float> found;
  Keys keys;
  while (tracker->NextPending(n, 16, &keys)) {
    std::vector<RowClass> classes(keys.size());
    std::vector<float> p(keys.size());
    tracker->Claim(n, keys.data(), nullptr, keys.size(), nullptr,
                   classes.data(), p.data());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (classes[i] != RowClass::kLost) found[keys[i]] = p[i];
    }
  }
  return found;
}

TEST(EstimatorTest, EveryClaimEqualsTheEstimateByItsDefinition) {
  for (const Estimator estimator :
       {Estimator::kUpdates, Estimator::kAccesses}) {
    for (const double decay : {0.9, 0.7}) {
      std::mt19937_64 random(7);
      Tracker tracker(With(decay, estimator));
      Oracle oracle(decay, estimator);
      size_t claims = 0;
      for (Seq n = 1, last = 0; n < 200; last = n, n += 1 + random() % 3) {
        // Low keys come often, twice in a batch too; some only ever are read.
        for (int i = 0; i < 10; ++i) {
          const int64_t key = std::pow(random() % 1000 / 1000.0, 3) * 60;
          const Keys keys(random() % 4 == 0 ? 2 : 1, key);
          tracker.RecordAccesses(keys.data(), keys.size());
          for (const int64_t k : keys) oracle.Look(k);
          if (random() % 3 == 0) continue;
          tracker.Touch(keys.data(), keys.size());
          for (const int64_t k : keys) oracle.Write(k);
        }
        ASSERT_TRUE(
            tracker.Cut({n, CutKind::kDelta, n % 5 ? kAllCold : 0.0}).ok());
        // The sequences that were left out are intervals in which nothing came.
        oracle.Pass(n - last - 1);
        for (const auto& [key, p] : Drain(&tracker, n)) {
          ++claims;
          ASSERT_NEAR(p, oracle.P(key), 1e-5) << "key " << key << ", cut " << n;
        }
        ASSERT_TRUE(tracker.Resolve(n, true).ok());
        oracle.Pass(1);
      }
      EXPECT_GT(claims, 500u);
    }
  }
}

TEST(EstimatorTest, UpdatesNeedNothingOfLookups) {
  Tracker tracker;
  const Keys keys = {1, 1, 2};
  tracker.Touch(keys.data(), 1);
  tracker.RecordAccesses(keys.data(), keys.size());
  EXPECT_EQ(tracker.Stats().accesses, 0u);
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, 0}).ok());
  EXPECT_FLOAT_EQ(Drain(&tracker, 1).at(1), 0.1f);
}

TEST(EstimatorTest, AnAccessMakesNoEntryAndLeavesARowClean) {
  Tracker tracker(With(0.9, Estimator::kAccesses));
  const Keys keys = {1, 1, 2};
  tracker.RecordAccesses(keys.data(), keys.size());
  EXPECT_EQ(tracker.Stats().keys, 0u);
  EXPECT_EQ(tracker.Stats().accesses, 3u);
  tracker.Touch(keys.data(), 1);
  ASSERT_TRUE(tracker.Cut({1, CutKind::kDelta, kAllCold}).ok());
  EXPECT_FLOAT_EQ(Drain(&tracker, 1).at(1), -std::expm1(-0.1));
  ASSERT_TRUE(tracker.Resolve(1, true).ok());
  tracker.RecordAccesses(keys.data(), 2);
  ASSERT_TRUE(tracker.Cut({2, CutKind::kDelta, kAllCold}).ok());
  EXPECT_TRUE(Drain(&tracker, 2).empty());
}

TEST(EstimatorTest, LookupsAtOnceAllCount) {
  Tracker tracker(With(0.5, Estimator::kAccesses));
  const Keys keys = {1, 2, 1};
  tracker.Touch(keys.data(), 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 10000; ++n) tracker.RecordAccesses(keys.data(), 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(tracker.Cut({16, CutKind::kDelta, kAllCold}).ok());
  const auto found = Drain(&tracker, 16);
  // Halves are exact; after 15 intervals few enough are left to tell.
  EXPECT_FLOAT_EQ(found.at(1), -std::expm1(-0.5 * 80001 / 32768));
  EXPECT_FLOAT_EQ(found.at(2), -std::expm1(-0.5 * 40001 / 32768));
}

TEST(EstimatorTest, ARowThatIsOnlyReadForVeryLongStaysANumber) {
  const Decay decay(0.5, Estimator::kAccesses);
  float estimate = 0;
  for (uint32_t n = 0; n < 5000; ++n) {
    for (int i = 0; i < 100; ++i) estimate = decay.Accessed(estimate, n);
    ASSERT_TRUE(std::isfinite(estimate)) << n;
    // Exact until the bound is near.
    const float now = decay.Idle(estimate, n);
    if (n > 20 && n < 100) {
      ASSERT_NEAR(now, 100, 0.1) << n;
    }
    const float p = decay.ToProbability(now);
    ASSERT_GE(p, 0) << n;
    ASSERT_LE(p, 1) << n;
  }
}

TEST(EstimatorTest, DecaysAsThePowersDoHoweverLongItHasBeen) {
  for (const double factor : {0.0, 0.5, 0.9, 0.97, 0.9999, 0.9999999}) {
    const Decay decay(factor);
    for (const uint32_t n :
         {0u, 1u, 63u, 64u, 987u, 988u, 989u, 4095u, 4096u, 4097u, 1000000u}) {
      EXPECT_FLOAT_EQ(decay.Idle(1, n), std::pow(factor, n))
          << factor << " " << n;
    }
  }
}

TEST(EstimatorTest, ProbabilitiesInFilesAreReadBack) {
  for (const Estimator estimator :
       {Estimator::kUpdates, Estimator::kAccesses}) {
    const Decay decay(0.9, estimator);
    for (const float p : {0.0f, 1e-30f, 1e-6f, 0.095f, 0.5f, 0.999f, 1.0f}) {
      EXPECT_FLOAT_EQ(decay.ToProbability(decay.FromProbability(p)), p);
    }
  }
  const Decay accesses(0.9, Estimator::kAccesses);
  EXPECT_NEAR(accesses.FromProbability(0.5f), std::log(2.0), 1e-6);
  // Of nobody's making, and still no bad number.
  for (const float p : {-1.0f, 2.0f, std::nanf("")}) {
    EXPECT_LE(accesses.FromProbability(p), 17.0f);
  }
}

TEST(EstimatorTest, RestoredRowsGoOnFromTheCutTheyWereWrittenAt) {
  for (const Estimator estimator :
       {Estimator::kUpdates, Estimator::kAccesses}) {
    Tracker tracker(With(0.9, estimator));
    ASSERT_TRUE(tracker.Reset(10, 3).ok());
    const int64_t key = 1;
    const float p = 0.5;
    uint8_t fresh;
    ASSERT_TRUE(tracker.RestoreRows(&key, 1, nullptr, &p, 7, false, &fresh, 2)
                    .ok());
    tracker.RecordAccesses(&key, 1);
    tracker.Touch(&key, 1);
    ASSERT_TRUE(tracker.Cut({10, CutKind::kDelta, 0}).ok());
    const double then = std::pow(0.9, 2 + 3);
    const double expected = estimator == Estimator::kUpdates
                                ? 0.5 * then + 0.1
                                : -std::expm1(-(std::log(2.0) * then + 0.1));
    EXPECT_NEAR(Drain(&tracker, 10).at(key), expected, 1e-6);
  }
}

// ---------------------------------------------------------------- distribution

// A tracker in which row i has been written in i % 7 intervals, and saved after
// the first of them if i is even.
void Fill(Tracker* tracker, Oracle* oracle, std::map<int64_t, bool>* unsaved,
          int64_t rows) {
  for (Seq n = 1; n <= 7; ++n) {
    for (int64_t key = 0; key < rows; ++key) {
      if (key % 7 + 1 < static_cast<int64_t>(n)) continue;
      tracker->Touch(&key, 1);
      oracle->Write(key);
      (*unsaved)[key] = true;
    }
    ASSERT_TRUE(tracker->Cut({n, CutKind::kDelta, 0.25}).ok());
    for (const auto& [key, p] : Drain(tracker, n)) {
      (*unsaved)[key] = p > 0.25f;
    }
    ASSERT_TRUE(tracker->Resolve(n, true).ok());
    oracle->Pass(1);
  }
}

TEST(PHistogramTest, OfFewRowsIsExact) {
  Tracker tracker;
  Oracle oracle(0.9, Estimator::kUpdates);
  std::map<int64_t, bool> unsaved;
  Fill(&tracker, &oracle, &unsaved, 2000);
  constexpr double kThreshold = 0.33;
  const PHistogram found = tracker.HistogramOfP(9, kThreshold, 100000);
  PHistogram expected;
  for (const auto& [key, row] : oracle.rows()) {
    const float p = oracle.P(key) * 0.9;  // from interval 8 to cut 9
    const int bucket = PHistogram::BucketOf(p);
    expected.all.Add(bucket, p);
    if (!unsaved[key]) continue;
    expected.unsaved.Add(bucket, p);
    expected.hot += p > kThreshold;
  }
  EXPECT_EQ(found.keys, 2000u);
  EXPECT_EQ(found.scale(), 1);
  EXPECT_EQ(found.all.rows, expected.all.rows);
  EXPECT_EQ(found.unsaved.rows, expected.unsaved.rows);
  EXPECT_EQ(found.hot, expected.hot);
  EXPECT_GT(found.hot, 0u);
  for (int b = 0; b < PHistogram::kBuckets; ++b) {
    EXPECT_NEAR(found.all.sum_of_p[b], expected.all.sum_of_p[b], 1e-3);
    EXPECT_NEAR(found.unsaved.sum_of_p[b], expected.unsaved.sum_of_p[b], 1e-3);
  }
}

TEST(PHistogramTest, OfManyRowsIsAFairSample) {
  Tracker tracker;
  Oracle oracle(0.9, Estimator::kUpdates);
  std::map<int64_t, bool> unsaved;
  Fill(&tracker, &oracle, &unsaved, 40000);
  const PHistogram all = tracker.HistogramOfP(8, 0.33, 1 << 20);
  for (const Seq n : {8, 9, 10}) {  // other stripes each time
    const PHistogram some = tracker.HistogramOfP(n, 0.33, 8000);
    EXPECT_EQ(some.keys, 40000u);
    EXPECT_GE(some.counted, 8000u);
    EXPECT_LE(some.counted, 8600u);  // no stripe more than needed
    if (n != 8) continue;
    // Rows of a class are in the sample by chance: six standard deviations.
    for (int b = 0; b < PHistogram::kBuckets; ++b) {
      const double rows = all.unsaved.rows[b];
      EXPECT_NEAR(some.unsaved.rows[b] * some.scale(), rows,
                  6 * std::sqrt(rows * 4) + 1);
    }
    EXPECT_NEAR(some.hot * some.scale(), all.hot,
                6 * std::sqrt(all.hot * 4.0));
  }
  EXPECT_EQ(Tracker().HistogramOfP(1, 0, 100).scale(), 1);
}

// However many rows a stripe has: it is sampled in part.
TEST(PHistogramTest, OfVeryManyRowsTakesNoLonger) {
  constexpr int64_t kRows = 400000;
  constexpr uint64_t kEnough = 16384;
  TrackerOptions options;
  options.stripes = 4;
  Tracker tracker(options);
  ASSERT_TRUE(tracker.Reset(10, 3).ok());
  // Unsaved, with a high p, or saved.
  Keys keys[2];
  for (int64_t key = 0; key < kRows; ++key) keys[key % 2].push_back(key);
  for (const bool unsaved : {true, false}) {
    const std::vector<float> p(kRows / 2, unsaved ? 0.75f : 0.1f);
    std::vector<uint8_t> fresh(kRows / 2);
    ASSERT_TRUE(tracker
                    .RestoreRows(keys[unsaved].data(), kRows / 2, nullptr,
                                 p.data(), 9, unsaved, fresh.data())
                    .ok());
  }
  std::vector<uint64_t> found;
  for (Seq n = 10; n < 26; n += 4) {  // the same stripe
    const PHistogram some = tracker.HistogramOfP(n, 0.05, kEnough);
    EXPECT_EQ(some.keys, uint64_t{kRows});
    EXPECT_GE(some.counted, kEnough);
    EXPECT_LE(some.counted, 2 * kEnough);
    EXPECT_NEAR(some.hot * some.scale(), kRows / 2,
                6 * std::sqrt(0.25 / some.counted) * kRows);
    found.push_back(some.hot);
  }
  EXPECT_NE(found, std::vector<uint64_t>(found.size(), found[0]))
      << "the same rows each time";
}

TEST(PHistogramTest, BucketsMeetTheirBounds) {
  EXPECT_EQ(PHistogram::BucketOf(0), 0);
  EXPECT_EQ(PHistogram::BucketOf(1), PHistogram::kBuckets - 1);
  for (int b = 1; b < PHistogram::kBuckets; ++b) {
    const float low = static_cast<float>(PHistogram::LowerBound(b));
    EXPECT_EQ(PHistogram::BucketOf(low), b);
    EXPECT_EQ(PHistogram::BucketOf(std::nextafter(low, 0.0f)), b - 1);
  }
  EXPECT_LT(PHistogram::LowerBound(PHistogram::kBuckets - 1), 1);
}

}  // namespace
}  // namespace adaptcp

// Random histories of a small training job: every checkpoint must equal the
// tables as they were at its cut, through failures, messages that only some
// shards heard, unknown outcomes and restores onto other numbers of shards.

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ops/tracker/testing/toy_job.h"

namespace adaptcp {
namespace testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// p of a row starts at 0.1 and is 0.19 after two intervals with writes.
constexpr double kThresholds[] = {-1, 0.05, 0.085, 0.12, 0.18, kInfinity};

struct Step {
  enum Kind {
    kWrite, kRemove, kReplace, kLookup, kCut, kBaseCut, kDrain,
    kFinishReadings, kCommit, kCommitToldOne, kAbandon, kAbandonToldOne,
    kUnknown, kRestore, kBeginScan, kScan
  };
  Kind kind;
  unsigned a = 0, b = 0, c = 0;
};

struct History {
  TrackerOptions options;
  std::vector<Step> steps;
};

History RandomHistory(std::mt19937_64* random) {
  const auto pick = [&](unsigned n) {
    return static_cast<unsigned>((*random)() % n);
  };
  History history;
  history.options.stripes = 1u << pick(3);
  history.options.min_listed = pick(2) ? 64 : pick(3);
  history.options.min_remembered = 1;
  history.options.walk_step = 1 + pick(4);
  if (pick(3) == 0) history.options.estimator = Estimator::kAccesses;
  const unsigned keys = 5 + pick(4);
  const unsigned length = 20 + pick(41);
  const std::vector<std::pair<unsigned, Step::Kind>> odds = {
      {320, Step::kWrite},        {110, Step::kRemove},
      {25, Step::kReplace},
      {70, Step::kLookup},        {130, Step::kCut},
      {20, Step::kBaseCut},       {70, Step::kDrain},
      {60, Step::kFinishReadings}, {80, Step::kCommit},
      {30, Step::kCommitToldOne}, {30, Step::kAbandon},
      {20, Step::kAbandonToldOne}, {15, Step::kUnknown},
      {30, Step::kRestore},       {35, Step::kBeginScan},
      {120, Step::kScan}};
  unsigned total = 0;
  for (const auto& odd : odds) total += odd.first;
  while (history.steps.size() < length) {
    unsigned x = pick(total);
    size_t i = 0;
    while (x >= odds[i].first) x -= odds[i++].first;
    history.steps.push_back({odds[i].second, pick(keys), pick(12), pick(12)});
  }
  return history;
}

void Apply(const Step& s, ToyJob* job) {
  static constexpr int kTables[] = {1, 2, 3, 3};
  switch (s.kind) {
    case Step::kWrite: job->Write(s.a, kTables[s.b % 4], s.c == 0); break;
    case Step::kRemove: job->Remove(s.a, kTables[s.b % 4]); break;
    case Step::kReplace:
      // A clear of a table, or of all; an import or a load.
      job->Replace(kTables[s.b % 4], s.b % 3 != 0, s.a, s.c % 4 ? 0 : s.c % 3,
                   s.c != 0);
      break;
    case Step::kLookup: job->BeginLookup(s.a); break;
    case Step::kCut:
      // A delta after a replacement is right too.
      job->Cut(job->NeedsBase() && s.a % 2 ? CutKind::kBase : CutKind::kDelta,
               kThresholds[s.b % 6], s.c == 0);
      break;
    case Step::kBaseCut: job->Cut(CutKind::kBase, kThresholds[s.b % 6], 0);
      break;
    case Step::kDrain: job->BeginDrain(s.a, 1 + s.b % 3, s.c % 2); break;
    case Step::kFinishReadings: job->FinishReadings(); break;
    case Step::kCommit: job->Commit(ToyJob::kAll); break;
    case Step::kCommitToldOne: job->Commit(s.a % 3); break;
    case Step::kAbandon: job->Abandon(ToyJob::kAll); break;
    case Step::kAbandonToldOne: job->Abandon(s.a % 3); break;
    case Step::kUnknown: job->Commit(ToyJob::kAll, false); break;
    case Step::kRestore: job->Restore(s.a, 1 + s.b % 3, 1 + s.c % 4); break;
    case Step::kBeginScan: job->BeginScan(); break;
    case Step::kScan: job->ContinueScan(s.a, 1 + s.b); break;
  }
}

std::string Violation(const History& history,
                      ScanMistake mistake = ScanMistake::kNone) {
  ToyJob job(history.options, 2, mistake);
  for (const Step& step : history.steps) {
    Apply(step, &job);
    if (!job.violation().empty()) return job.violation();
  }
  job.CheckHeads();
  return job.violation();
}

// Leaves out steps as long as something stays wrong.
History Shrink(History history) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t width : {8, 4, 2, 1}) {
      for (size_t i = 0; i + width <= history.steps.size();) {
        History shorter = history;
        shorter.steps.erase(shorter.steps.begin() + i,
                            shorter.steps.begin() + i + width);
        if (Violation(shorter).empty()) {
          ++i;
        } else {
          history = shorter;
          changed = true;
        }
      }
    }
  }
  return history;
}

std::string Describe(const History& history) {
  static const char* const kNames[] = {
      "write", "remove", "replace", "lookup", "cut", "base cut", "drain",
      "finish readings", "commit", "commit, one told", "abandon",
      "abandon, one told", "unknown outcome", "restore", "begin scan",
      "scan"};
  std::ostringstream out;
  out << Violation(history) << "; stripes " << history.options.stripes
      << ", min_listed " << history.options.min_listed << ", walk_step "
      << history.options.walk_step;
  for (const Step& s : history.steps) {
    out << "\n  " << kNames[s.kind] << " " << s.a << " " << s.b << " " << s.c;
  }
  return out.str();
}

TEST(TrackerModelTest, EveryCheckpointEqualsItsCut) {
  const char* more = std::getenv("ADAPTCP_MODEL_SEQUENCES");
  const int sequences = more != nullptr ? std::atoi(more) : 20000;
  std::mt19937_64 random(20261129);
  for (int i = 0; i < sequences; ++i) {
    const History history = RandomHistory(&random);
    if (!Violation(history).empty()) {
      FAIL() << "history " << i << ": " << Describe(Shrink(history));
    }
  }
}

// The rules of a scanned base are the caller's to keep: each is needed.
TEST(TrackerModelTest, WrongUsesOfAScannedBaseAreFound) {
  for (const ScanMistake mistake :
       {ScanMistake::kUsedEarly, ScanMistake::kIncrementsDropped,
        ScanMistake::kClearedUpToHead}) {
    std::mt19937_64 random(20261129);
    bool found = false;
    for (int i = 0; i < 20000 && !found; ++i) {
      found = !Violation(RandomHistory(&random), mistake).empty();
    }
    EXPECT_TRUE(found) << "mistake " << static_cast<int>(mistake);
  }
}

}  // namespace
}  // namespace testing
}  // namespace adaptcp

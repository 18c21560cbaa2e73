#include "ops/tracker/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace adaptcp {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60000};

TEST(GateTest, RunsTheCutWhenNobodyIsInside) {
  Gate gate;
  { GateScope scope(&gate); }
  bool ran = false;
  EXPECT_TRUE(gate.RunExclusive(kLong, [&] { ran = true; }).ok());
  EXPECT_TRUE(ran);
}

TEST(GateTest, GivesUpAndReopensWhenAWriterStays) {
  Gate gate;
  gate.Enter();
  bool ran = false;
  const Status status = gate.RunExclusive(milliseconds(1), [&] { ran = true; });
  EXPECT_EQ(status.code(), Status::Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("1 operations"), std::string::npos)
      << status.message();
  EXPECT_FALSE(ran);
  { GateScope scope(&gate); }  // would hang if the gate had stayed closed
  gate.Exit();
  EXPECT_TRUE(gate.RunExclusive(kLong, [&] { ran = true; }).ok());
  EXPECT_TRUE(ran);
}

TEST(GateTest, WaitsForAWriterThatLeavesLater) {
  Gate gate;
  gate.Enter();
  std::atomic<bool> left{false};
  std::thread cut([&] {
    EXPECT_TRUE(gate.RunExclusive(kLong, [&] { EXPECT_TRUE(left); }).ok());
  });
  std::this_thread::yield();
  left = true;
  gate.Exit();
  cut.join();
}

// Writers that follow each other without a gap would keep a cut out for ever if
// a closing gate let them in.
TEST(GateTest, OverlappingWritersDoNotStarveACut) {
  Gate gate;
  std::atomic<bool> stop{false};
  std::atomic<int> entered{0};
  std::vector<std::thread> writers;
  gate.Enter();  // the baton: there is always someone inside
  for (int i = 0; i < 3; ++i) {
    writers.emplace_back([&] {
      while (!stop) {
        GateScope scope(&gate);
        ++entered;
        const int seen = entered;
        for (int spin = 0; spin < 100 && entered == seen; ++spin) {
          std::this_thread::yield();
        }
      }
    });
  }
  while (entered == 0) std::this_thread::yield();
  gate.Exit();
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(gate.RunExclusive(kLong, [] {}).ok());
  }
  stop = true;
  for (auto& writer : writers) writer.join();
}

// Nobody is inside during a cut, and only one cut runs: plain variables, so
// that ThreadSanitizer checks the ordering too.
TEST(GateTest, ExcludesWritersFromCutsAndCutsFromEachOther) {
  Gate gate;
  std::atomic<int> inside{0};
  int64_t cut_state = 0;  // written by cuts, read by writers
  int cuts = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 2000; ++k) {
        GateScope scope(&gate);
        ++inside;
        EXPECT_EQ(cut_state % 2, 0);
        --inside;
      }
    });
  }
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        const Status status = gate.RunExclusive(kLong, [&] {
          EXPECT_EQ(inside, 0);
          ++cut_state;
          ++cuts;
          ++cut_state;
        });
        EXPECT_TRUE(status.ok()) << status.ToString();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(cuts, 400);
}

TEST(GateTest, ReopensWhenTheCutThrows) {
  Gate gate;
  EXPECT_THROW(
      (void)gate.RunExclusive(kLong, [] { throw std::bad_alloc(); }),
      std::bad_alloc);
  GateScope scope(&gate);
}

}  // namespace
}  // namespace adaptcp

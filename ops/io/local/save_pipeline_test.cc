#include "ops/io/local/save_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace adaptcp {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::hours kLong(1);

// Calls `until` now and then until it says true.
template <typename F>
void Poll(const F& until) {
  while (!until()) std::this_thread::sleep_for(milliseconds(1));
}

TEST(SavePipelineTest, RoomThatGetsFreeIsOfUpdatesFirst) {
  SavePipeline pipeline(100, milliseconds(20000));
  ASSERT_TRUE(pipeline.Reserve(60, CaptureSource::kDrain).ok());
  ASSERT_TRUE(pipeline.Reserve(40, CaptureSource::kDrain).ok());
  std::atomic<bool> updated{false};
  Status status;
  std::thread update([&] {
    status = pipeline.Reserve(70, CaptureSource::kUpdate);
    updated = true;
  });
  // Whenever a batch of the drain is encoded the next one takes its room.
  std::atomic<bool> ended{false};
  std::atomic<int> rounds{0};
  std::thread drain([&] {
    for (; !ended; ++rounds) {
      pipeline.Release(10);
      if (!pipeline.Reserve(10, CaptureSource::kDrain).ok()) return;
    }
  });
  // Unless an update waits: then the drain does, too.
  int before = -1;
  while (!updated && rounds != before) {
    before = rounds;
    std::this_thread::sleep_for(milliseconds(200));
  }
  if (!updated) pipeline.Release(60);
  update.join();
  ended = true;
  pipeline.Abort(Status::Cancelled("the end of the test"));
  drain.join();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(SavePipelineTest, WhatIsThereAlreadyCounts) {
  SavePipeline pipeline(100, milliseconds(20));
  ASSERT_TRUE(pipeline.Reserve(60, CaptureSource::kDrain).ok());
  pipeline.Charge(70);  // it can't wait, whatever there is room for
  EXPECT_EQ(pipeline.peak_bytes(), 130u);
  EXPECT_FALSE(pipeline.Reserve(1, CaptureSource::kUpdate).ok());
  pipeline.Release(130);
  EXPECT_TRUE(pipeline.Reserve(100, CaptureSource::kUpdate).ok());
}

TEST(SavePipelineTest, TheDrainGoesOnWhenNoUpdateWaits) {
  SavePipeline pipeline(100, milliseconds(20));
  ASSERT_TRUE(pipeline.Reserve(60, CaptureSource::kDrain).ok());
  std::thread update([&] {
    EXPECT_EQ(pipeline.Reserve(80, CaptureSource::kUpdate).code(),
              Status::Code::kDeadlineExceeded);
  });
  Poll([&] { return pipeline.counters().updates_delayed == 1; });
  EXPECT_TRUE(pipeline.Reserve(40, CaptureSource::kDrain).ok());
  update.join();
}

TEST(SavePipelineTest, NobodyRestsWhileSomebodyWaits) {
  // For room, or for the end.
  for (const bool aborts : {false, true}) {
    SavePipeline pipeline(100, milliseconds(60000));
    ASSERT_TRUE(pipeline.Reserve(40, CaptureSource::kDrain).ok());
    std::thread rest([&] { pipeline.Rest(kLong); });
    std::thread wait([&] {
      if (aborts) {
        pipeline.Abort(Status::Cancelled("given up"));
      } else {
        (void)pipeline.Reserve(90, CaptureSource::kUpdate);
      }
    });
    rest.join();
    pipeline.Abort(Status::Cancelled("the end of the test"));
    wait.join();
  }
}

class NoRows final : public CapturedBatch {
 public:
  explicit NoRows(std::function<void()> at_end = nullptr)
      : at_end_(std::move(at_end)) {}
  ~NoRows() override {
    if (at_end_ != nullptr) at_end_();
  }
  size_t string_bytes() const override { return 0; }
  uint32_t group_index() const override { return 0; }
  size_t rows() const override { return 0; }
  Status AppendTo(RowBlockBuilder*, RowBlockBuilder*) const override {
    return Status::Ok();
  }

 private:
  const std::function<void()> at_end_;
};

TEST(SavePipelineTest, StarvedWhenAllBatchesAreWaitedFor) {
  SavePipeline pipeline(100, milliseconds(20));
  const auto push = [&] {
    pipeline.Push(std::make_unique<NoRows>(), CaptureSource::kDrain);
    return pipeline.is_starved();
  };
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(push()) << "nobody waits";
  std::thread encoder([&] {
    std::unique_ptr<CapturedBatch> batch;
    while (pipeline.Pop(&batch)) {
    }
  });
  Poll(push);
  pipeline.Abort(Status::Cancelled("the end of the test"));
  encoder.join();
}

// He may hold what every write waits for.
TEST(SavePipelineTest, WhoGivesUpDoesNotFreeWhatIsQueued) {
  SavePipeline pipeline(100, milliseconds(20));
  std::atomic<bool> go{false}, freed{false};
  pipeline.Push(std::make_unique<NoRows>([&] {
                  for (int i = 0; i < 5000 && !go; ++i) {
                    std::this_thread::sleep_for(milliseconds(1));
                  }
                  freed = true;
                }),
                CaptureSource::kDrain);
  pipeline.Abort(Status::Cancelled("given up"));
  EXPECT_FALSE(freed);
  go = true;
  Poll([&] { return freed.load(); });
}

TEST(SavePipelineTest, WhatComesAfterTheEndIsDropped) {
  SavePipeline pipeline(100, milliseconds(20));
  pipeline.Abort(Status::Cancelled("given up"));
  bool freed = false;
  pipeline.Push(std::make_unique<NoRows>([&] {
                  // With the lock held it would wait for itself.
                  EXPECT_FALSE(pipeline.status().ok());
                  freed = true;
                }),
                CaptureSource::kUpdate);
  EXPECT_TRUE(freed);
}

TEST(SavePipelineTest, CapturesThatOverlapDoNotKeepItOpen) {
  SavePipeline pipeline(100, milliseconds(20000));
  ASSERT_TRUE(pipeline.Begin());
  std::atomic<bool> closed{false};
  std::thread close([&] {
    pipeline.CloseWhenIdle();
    closed = true;
  });
  // Each begins before the one before has ended, until one is told that nothing is
  // left to do.
  int others = 0;
  while (pipeline.Begin()) {
    pipeline.End();
    if (++others == 5000) break;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LT(others, 5000);
  EXPECT_FALSE(closed);
  pipeline.End();
  close.join();
  EXPECT_TRUE(closed);
}

}  // namespace
}  // namespace adaptcp

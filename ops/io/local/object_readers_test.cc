#include "ops/io/local/object_readers.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

namespace adaptcp {
namespace {

using std::chrono::milliseconds;

// What objects tell of themselves. Outlives them, and threads that hang.
struct World {
  std::atomic<uint64_t> live_bytes{0};
  std::atomic<uint64_t> peak_bytes{0};
  std::atomic<int> live{0};
  std::atomic<int> reading{0};
  std::atomic<int> most_reading{0};
  std::atomic<int> reads{0};

  // Reads wait until so many have been under way at once, or `open`.
  std::mutex mu;
  std::condition_variable changed;
  int enough = 0;
  bool open = false;

  void Open() {
    std::lock_guard<std::mutex> lock(mu);
    open = true;
    changed.notify_all();
  }
};

void Raise(std::atomic<uint64_t>* most, uint64_t value) {
  uint64_t seen = most->load();
  while (seen < value && !most->compare_exchange_weak(seen, value)) {
  }
}

class FakeObject final : public ReadableObject {
 public:
  FakeObject(std::shared_ptr<World> world, std::string name, uint64_t bytes,
             size_t parts, size_t pieces)
      : world_(std::move(world)),
        name_(std::move(name)),
        bytes_(bytes),
        pieces_(pieces),
        seen_(parts) {
    ++world_->live;
  }
  ~FakeObject() override {
    if (begun_.load()) world_->live_bytes -= bytes_;
    --world_->live;
  }

  const std::string& name() const override { return name_; }
  uint64_t memory_bytes() const override { return bytes_; }
  size_t parts() const override { return seen_.size(); }
  uint64_t part_bytes(size_t) const override { return bytes_ / seen_.size(); }

  Status Read(size_t part, const StopFlag& stop) override {
    if (!begun_.exchange(true)) {
      world_->live_bytes += bytes_;
      Raise(&world_->peak_bytes, world_->live_bytes.load());
    }
    ++world_->reads;
    const int reading = ++world_->reading;
    int most = world_->most_reading.load();
    while (most < reading &&
           !world_->most_reading.compare_exchange_weak(most, reading)) {
    }
    {
      std::unique_lock<std::mutex> lock(world_->mu);
      world_->open = world_->open || reading >= world_->enough;
      world_->changed.notify_all();
      world_->changed.wait(lock, [&] { return world_->open; });
    }
    EXPECT_FALSE(seen_[part].exchange(true)) << name_ << " part " << part;
    stopped_seen = stop.IsSet();
    --world_->reading;
    return fails_in_read == static_cast<int>(part) ? Status::DataLoss(name_)
                                                   : Status::Ok();
  }

  Status Finish(size_t* pieces) override {
    for (const auto& seen : seen_) EXPECT_TRUE(seen.load()) << name_;
    EXPECT_FALSE(finished_.exchange(true)) << name_;
    *pieces = pieces_;
    return fails_in_finish ? Status::DataLoss(name_) : Status::Ok();
  }

  int fails_in_read = -1;
  bool fails_in_finish = false;
  std::atomic<bool> stopped_seen{false};

 private:
  const std::shared_ptr<World> world_;
  const std::string name_;
  const uint64_t bytes_;
  const size_t pieces_;
  std::vector<std::atomic<bool>> seen_;
  std::atomic<bool> begun_{false};
  std::atomic<bool> finished_{false};
};

std::shared_ptr<FakeObject> Make(const std::shared_ptr<World>& world,
                                 const std::string& name, uint64_t bytes = 10,
                                 size_t parts = 1, size_t pieces = 1) {
  return std::make_shared<FakeObject>(world, name, bytes, parts, pieces);
}

// Until what is left of hung threads has gone.
void ExpectNoneLeft(const World& world) {
  for (int i = 0; i < 5000 && world.live.load() > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(world.live.load(), 0);
}

TEST(ObjectReadersTest, EveryPieceOnceLevelByLevelWithinTheBound) {
  for (int seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto world = std::make_shared<World>();
    const uint64_t bound = 1 + random() % 100;
    uint64_t largest = 0;
    std::vector<ObjectReaders::Level> levels(random() % 5);
    std::set<std::string> expected;
    for (size_t level = 0; level < levels.size(); ++level) {
      for (size_t i = 0, n = random() % 8; i < n; ++i) {
        const std::string name =
            std::to_string(level) + "/" + std::to_string(i);
        const uint64_t bytes = random() % 60;
        const size_t pieces = random() % 4;
        largest = std::max(largest, bytes);
        levels[level].push_back(
            Make(world, name, bytes, 1 + random() % 5, pieces));
        for (size_t p = 0; p < pieces; ++p) {
          expected.insert(name + "#" + std::to_string(p));
        }
      }
    }
    const size_t count = levels.size();
    ReadersOptions options;
    options.threads = random() % 4;
    options.max_threads = 4;
    options.memory_bytes = bound;
    ObjectReaders readers(std::move(levels), options);
    std::mutex mu;
    std::set<std::string> found;
    std::vector<std::atomic<int>> out(count + 1);
    const auto use = [&] {
      for (size_t level = 0; level < count; ++level) {
        for (;;) {
          ObjectReaders::Piece piece;
          ASSERT_TRUE(readers.Next(level, &piece).ok());
          if (piece.object() == nullptr) break;
          ++out[level];
          for (size_t before = 0; before < level; ++before) {
            EXPECT_EQ(out[before].load(), 0) << "level " << level;
          }
          {
            std::lock_guard<std::mutex> lock(mu);
            EXPECT_TRUE(found.insert(piece.object()->name() + "#" +
                                     std::to_string(piece.index())).second);
          }
          std::this_thread::yield();
          --out[level];
        }
      }
    };
    std::vector<std::thread> users;
    for (int i = 0; i < 3; ++i) users.emplace_back(use);
    for (auto& user : users) user.join();
    EXPECT_EQ(found, expected);
    EXPECT_LE(world->peak_bytes.load(), std::max(bound, largest));
    EXPECT_LE(readers.stats().peak_bytes, std::max(bound, largest));
    EXPECT_GE(readers.stats().peak_bytes, world->peak_bytes.load());
    ExpectNoneLeft(*world);
  }
}

TEST(ObjectReadersTest, OneThatIsLargerThanTheBoundPassesAlone) {
  const auto world = std::make_shared<World>();
  ReadersOptions options;
  options.memory_bytes = 25;
  options.threads = 3;
  ObjectReaders readers({{Make(world, "a", 10), Make(world, "b", 90, 4),
                          Make(world, "c", 10), Make(world, "d", 10)}},
                        options);
  for (int i = 0; i < 4; ++i) {
    ObjectReaders::Piece piece;
    ASSERT_TRUE(readers.Next(0, &piece).ok());
    ASSERT_NE(piece.object(), nullptr);
  }
  EXPECT_EQ(world->peak_bytes.load(), 90u);
  EXPECT_EQ(readers.stats().bytes_read, 118u);  // 90 / 4 is 22
}

TEST(ObjectReadersTest, ThreadsGrowWhileSomebodyWaitsAndNoFurther) {
  const auto world = std::make_shared<World>();
  world->enough = 99;
  ReadersOptions options;
  options.max_threads = 4;
  ObjectReaders readers({{Make(world, "o", 10, 16)}}, options);
  std::thread waits([&] {
    ObjectReaders::Piece piece;
    EXPECT_TRUE(readers.Next(0, &piece).ok());
    EXPECT_NE(piece.object(), nullptr);
  });
  while (world->reading.load() < 4) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(60));  // for more, if there were any
  EXPECT_EQ(world->reading.load(), 4);
  world->Open();
  waits.join();
  EXPECT_EQ(world->most_reading.load(), 4);
  EXPECT_EQ(readers.stats().threads, 4);
}

TEST(ObjectReadersTest, AsManyThreadsAsAreAskedFor) {
  const auto world = std::make_shared<World>();
  world->enough = 2;
  ReadersOptions options;
  options.threads = 2;
  ObjectReaders readers({{Make(world, "a", 10, 8)}}, options);
  ObjectReaders::Piece piece;
  ASSERT_TRUE(readers.Next(0, &piece).ok());
  EXPECT_EQ(world->most_reading.load(), 2);
  EXPECT_EQ(readers.stats().threads, 2);
}

TEST(ObjectReadersTest, TheFirstErrorEndsEverything) {
  for (const bool in_finish : {false, true}) {
    const auto world = std::make_shared<World>();
    auto bad = Make(world, "bad", 10, 2);
    bad->fails_in_finish = in_finish;
    bad->fails_in_read = in_finish ? -1 : 1;
    ReadersOptions options;
    options.threads = 1;
    options.memory_bytes = 20;
    ObjectReaders readers(
        {{Make(world, "good")}, {bad, Make(world, "after", 15)}}, options);
    bad.reset();
    ObjectReaders::Piece good;
    Status status = readers.Next(0, &good);
    while (status.ok() && readers.status().ok()) {
      std::this_thread::yield();
      good = ObjectReaders::Piece();
      status = readers.Next(1, &good);
      ASSERT_EQ(good.object(), nullptr);
    }
    ObjectReaders::Piece piece;
    status = readers.Next(1, &piece);
    EXPECT_EQ(status.code(), Status::Code::kDataLoss);
    EXPECT_EQ(status.message(), "bad");
    EXPECT_EQ(piece.object(), nullptr);
    good = ObjectReaders::Piece();
    EXPECT_LE(world->reads.load(), 3) << "nothing is read after it";
    readers.Stop(Status::Cancelled("later"));
    EXPECT_EQ(readers.status().message(), "bad") << "the first one stays";
    ExpectNoneLeft(*world);
  }
}

TEST(ObjectReadersTest, StoppedWhileAReadHangs) {
  const auto world = std::make_shared<World>();
  world->enough = 99;
  std::shared_ptr<FakeObject> hung = Make(world, "hung");
  {
    ObjectReaders readers({{hung, Make(world, "next")}, {Make(world, "last")}},
                          ReadersOptions());
    std::thread waits([&] {
      ObjectReaders::Piece piece;
      EXPECT_EQ(readers.Next(0, &piece).code(), Status::Code::kCancelled);
    });
    while (world->reads.load() == 0) std::this_thread::yield();
    readers.Stop(Status::Cancelled("enough"));
    waits.join();
  }  // the destructor waits for nobody
  EXPECT_GE(world->live.load(), 1) << "it hangs still";
  EXPECT_FALSE(hung->stopped_seen.load());
  world->Open();
  for (int i = 0; i < 5000 && !hung->stopped_seen.load(); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(hung->stopped_seen.load());
  hung.reset();
  ExpectNoneLeft(*world);
  EXPECT_LE(world->reads.load(), 2) << "those that were under way, no more";
}

TEST(ObjectReadersTest, ADeadlineNamesWhatWasWaitedFor) {
  const auto world = std::make_shared<World>();
  world->enough = 99;
  ReadersOptions options;
  options.deadline = std::chrono::steady_clock::now() + milliseconds(30);
  ObjectReaders readers({{Make(world, "slow")}}, options);
  ObjectReaders::Piece piece;
  const Status status = readers.Next(0, &piece);
  EXPECT_EQ(status.code(), Status::Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("slow"), std::string::npos);
  world->Open();
  ExpectNoneLeft(*world);
}

TEST(ObjectReadersTest, NothingIsKeptForWhoDoesNotComeBack) {
  const auto world = std::make_shared<World>();
  ReadersOptions options;
  options.threads = 2;
  options.memory_bytes = 20;
  options.idle = milliseconds(20);
  ObjectReaders readers(
      {{Make(world, "a"), Make(world, "b"), Make(world, "c")}}, options);
  ExpectNoneLeft(*world);
  EXPECT_EQ(world->reads.load(), 2) << "as many as there was room for";
  ObjectReaders::Piece piece;
  EXPECT_EQ(readers.Next(0, &piece).code(), Status::Code::kCancelled);
}

TEST(ObjectReadersTest, APieceOutlivesItsReaders) {
  const auto world = std::make_shared<World>();
  ObjectReaders::Piece piece;
  {
    ObjectReaders readers({{Make(world, "a", 10, 1, 2)}}, ReadersOptions());
    ASSERT_TRUE(readers.Next(0, &piece).ok());
  }
  EXPECT_EQ(piece.object()->name(), "a");
  piece = ObjectReaders::Piece();
  ExpectNoneLeft(*world);
}

// While there is one, the system has no thread left: none has room for its stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&normal_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 47);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&normal_);
    pthread_attr_destroy(&normal_);
  }

 private:
  pthread_attr_t normal_;
};

TEST(ObjectReadersTest, WithoutAnyThreadTheyEnd) {
  const auto world = std::make_shared<World>();
  const NoThreads none;
  ObjectReaders readers({{Make(world, "a")}}, ReadersOptions());
  ObjectReaders::Piece piece;
  EXPECT_EQ(readers.Next(0, &piece).code(), Status::Code::kResourceExhausted);
  ExpectNoneLeft(*world);
}

TEST(ObjectReadersTest, WithoutAnotherThreadTheyGoOn) {
  const auto world = std::make_shared<World>();
  world->enough = 99;
  ObjectReaders readers({{Make(world, "a"), Make(world, "b")}},
                        ReadersOptions());
  // It is after some waiting that another one would start.
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(50));
    world->Open();
  });
  {
    const NoThreads none;
    for (int pieces = 0; pieces < 2; ++pieces) {
      ObjectReaders::Piece piece;
      ASSERT_TRUE(readers.Next(0, &piece).ok());
      ASSERT_NE(piece.object(), nullptr);
    }
  }
  opener.join();
  EXPECT_EQ(readers.stats().threads, 1);
}

TEST(ObjectReadersTest, NothingToRead) {
  for (size_t count : {0, 3}) {
    const std::vector<ObjectReaders::Level> levels(count);
    ObjectReaders readers(levels, ReadersOptions());
    for (size_t level = 0; level < count + 1; ++level) {
      ObjectReaders::Piece piece;
      EXPECT_TRUE(readers.Next(level, &piece).ok());
      EXPECT_EQ(piece.object(), nullptr);
    }
  }
}

}  // namespace
}  // namespace adaptcp

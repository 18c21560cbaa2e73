#include "ops/io/local/segment_transfer.h"

#include <gtest/gtest.h>
#include <stdio.h>

#include <atomic>
#include <condition_variable>
#include <set>
#include <thread>
#include <vector>

#include "ops/io/local/folder_testing.h"
#include "ops/io/local/local_store.h"
#include "ops/io/local/store_faults.h"

namespace adaptcp {
namespace {

using testing::Folder;
using testing::List;

using std::chrono::milliseconds;

// A store in memory, whose trouble the tests choose.
class FakeStore {
 public:
  // Called with the name and the number of the sink (1, 2, ...) at its end.
  std::function<Status(const std::string&, int)> on_close =
      [](const std::string&, int) { return Status::Ok(); };

  Status Open(const std::string& path, std::unique_ptr<ByteSink>* sink) {
    std::lock_guard<std::mutex> lock(mu_);
    if (!opened_.insert(path).second) {
      return Status::FailedPrecondition(path + " is written twice");
    }
    *sink = std::make_unique<Sink>(this, path, ++sinks_);
    return Status::Ok();
  }
  std::map<std::string, std::string> objects() {
    std::lock_guard<std::mutex> lock(mu_);
    return objects_;
  }
  int most_at_once() const { return most_; }

 private:
  class Sink final : public ByteSink {
   public:
    Sink(FakeStore* store, std::string path, int number)
        : store_(store), path_(std::move(path)), number_(number) {}
    Status Append(std::string_view data) override {
      data_.append(data);
      return Status::Ok();
    }
    Status SyncAndClose() override {
      const int now = ++store_->running_;
      int most = store_->most_;
      while (now > most && !store_->most_.compare_exchange_weak(most, now)) {
      }
      const Status status = store_->on_close(path_, number_);
      --store_->running_;
      if (!status.ok()) return status;
      std::lock_guard<std::mutex> lock(store_->mu_);
      store_->objects_[path_] = data_;
      return status;
    }
    const std::string& name() const override { return path_; }

   private:
    FakeStore* const store_;
    const std::string path_;
    const int number_;
    std::string data_;
  };

  std::mutex mu_;
  std::set<std::string> opened_;
  std::map<std::string, std::string> objects_;
  int sinks_ = 0;
  std::atomic<int> running_{0};
  std::atomic<int> most_{0};
};

struct Fixture {
  explicit Fixture(TransferOptions options) {
    transfer = std::make_unique<SegmentTransfer>(
        std::move(options),
        [this](const std::string& path, std::unique_ptr<ByteSink>* sink) {
          return store->Open(path, sink);
        },
        room, rate, stop, [stop = stop](const Status&) { stop->Set(); });
  }
  Status Write(const std::string& path, const std::string& data) {
    std::unique_ptr<ByteSink> sink;
    ADAPTCP_RETURN_IF_ERROR(transfer->Open(path, &sink));
    for (size_t at = 0; at < data.size(); at += 700000) {
      ADAPTCP_RETURN_IF_ERROR(sink->Append(data.substr(at, 700000)));
    }
    return sink->SyncAndClose();
  }
  // No thread that was left behind uses the store, or what its trouble refers to.
  void WaitUntilUnused() {
    while (room->used() > 0) std::this_thread::sleep_for(milliseconds(1));
  }
  Status Finish(std::map<std::string, std::string>* names = nullptr) {
    std::map<std::string, std::string> found;
    const Status status = transfer->Finish(milliseconds(50), &found);
    if (names != nullptr) *names = found;
    return status;
  }

  std::shared_ptr<FakeStore> store = std::make_shared<FakeStore>();
  std::shared_ptr<StagingRoom> room = std::make_shared<StagingRoom>();
  std::shared_ptr<RateLimit> rate = std::make_shared<RateLimit>();
  std::shared_ptr<StopFlag> stop = std::make_shared<StopFlag>();
  std::unique_ptr<SegmentTransfer> transfer;
};

TransferOptions InMemory(int threads = 4) {
  TransferOptions options;
  options.upload_threads = threads;
  options.retry_for = milliseconds(60000);
  return options;
}

TEST(SegmentTransferTest, NamesOfAttempts) {
  EXPECT_EQ(SegmentTransfer::NameOfAttempt("a.b/c.seg", 1), "a.b/c.seg");
  EXPECT_EQ(SegmentTransfer::NameOfAttempt("a.b/c.seg", 12), "a.b/c-try12.seg");
}

TEST(SegmentTransferTest, EverythingArrivesBitForBit) {
  Folder folder;
  for (const bool buffered : {false, true}) {
    TransferOptions options = InMemory();
    if (buffered) {
      ASSERT_TRUE(BufferDirectory::Open(folder.path(), &options.buffer).ok());
    }
    Fixture fixture(options);
    std::map<std::string, std::string> expected;
    for (int i = 0; i < 20; ++i) {
      std::string& data = expected["s" + std::to_string(i) + ".seg"];
      for (int j = 0; j < i * 199999; ++j) data += static_cast<char>(j * i);
    }
    for (const auto& [path, data] : expected) {
      ASSERT_TRUE(fixture.Write(path, data).ok());
    }
    std::map<std::string, std::string> names;
    ASSERT_TRUE(fixture.Finish(&names).ok());
    EXPECT_EQ(fixture.store->objects(), expected);
    EXPECT_EQ(names.size(), expected.size());
    EXPECT_EQ(fixture.room->used(), 0u);
    EXPECT_EQ(fixture.transfer->stats().uploads, 20u);
    EXPECT_EQ(fixture.transfer->stats().buffered_after.count() > 0, buffered);
    if (buffered) {
      EXPECT_EQ(List(options.buffer->path()),
                std::vector<std::string>({"lock"}));
    }
  }
}

TEST(SegmentTransferTest, AsManyAtOnceAsAreAllowed) {
  Fixture fixture(InMemory(3));
  std::mutex mu;
  std::condition_variable changed;
  int here = 0;
  // Three have to be there at once for any to go on.
  fixture.store->on_close = [&](const std::string&, int) {
    std::unique_lock<std::mutex> lock(mu);
    ++here;
    changed.notify_all();
    changed.wait(lock, [&] { return here >= 3; });
    return Status::Ok();
  };
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(fixture.Write(std::to_string(i) + ".seg", "data").ok());
  }
  ASSERT_TRUE(fixture.Finish().ok());
  EXPECT_EQ(fixture.store->most_at_once(), 3);
  EXPECT_EQ(fixture.transfer->stats().upload_threads, 3);
}

TEST(SegmentTransferTest, EachAttemptHasANameOfItsOwn) {
  Fixture fixture(InMemory());
  fixture.store->on_close = [](const std::string& path, int) {
    // Stored or not, nobody knows.
    return path.find("try3") == std::string::npos
               ? Status::Unavailable("no answer")
               : Status::Ok();
  };
  ASSERT_TRUE(fixture.Write("d/a.seg", "data").ok());
  std::map<std::string, std::string> names;
  ASSERT_TRUE(fixture.Finish(&names).ok());
  EXPECT_EQ(names["d/a.seg"], "d/a-try3.seg");
  EXPECT_EQ(fixture.store->objects()["d/a-try3.seg"], "data");
  EXPECT_EQ(fixture.transfer->stats().retries, 2u);
}

TEST(SegmentTransferTest, WhatFailsForGoodFailsTheSave) {
  TransferOptions options = InMemory();
  options.retry_for = milliseconds(150);
  for (const Status& failure :
       {Status::ResourceExhausted("full"), Status::Unavailable("away")}) {
    Fixture fixture(options);
    fixture.store->on_close = [&](const std::string&, int number) {
      return number > 2 ? failure : Status::Ok();
    };
    for (int i = 0; i < 6; ++i) {
      (void)fixture.Write(std::to_string(i) + ".seg", "data");
    }
    EXPECT_EQ(fixture.Finish().code(), failure.code());
    EXPECT_TRUE(fixture.stop->IsSet());
    fixture.transfer = nullptr;
    fixture.WaitUntilUnused();
  }
}

TEST(SegmentTransferTest, AHungStoreIsLeftBehindWithItsRoom) {
  auto fixture = std::make_unique<Fixture>(InMemory(1));
  std::mutex mu;
  std::condition_variable changed;
  bool released = false, hangs = false;
  fixture->store->on_close = [&](const std::string&, int) {
    std::unique_lock<std::mutex> lock(mu);
    hangs = true;
    changed.notify_all();
    changed.wait(lock, [&] { return released; });
    return Status::Ok();
  };
  ASSERT_TRUE(fixture->Write("a.seg", std::string(1000, 'a')).ok());
  ASSERT_TRUE(fixture->Write("b.seg", std::string(500, 'b')).ok());
  {
    std::unique_lock<std::mutex> lock(mu);
    changed.wait(lock, [&] { return hangs; });
  }
  fixture->stop->Set();
  EXPECT_EQ(fixture->Finish().code(), Status::Code::kCancelled);
  const auto room = fixture->room;
  const auto store = fixture->store;
  fixture = nullptr;
  // What was queued is gone, what hangs is not: a later save has less room.
  EXPECT_EQ(room->used(), 1000u);
  {
    std::lock_guard<std::mutex> lock(mu);
    released = true;
    changed.notify_all();
  }
  while (room->used() > 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(store->objects().count("b.seg"), 0u);
}

TEST(SegmentTransferTest, AFullRoomIsWaitedFor) {
  Fixture fixture(InMemory(1));
  fixture.room->SetLimit(1000);
  std::atomic<bool> go{false};
  std::atomic<bool> last_began{false};
  fixture.store->on_close = [&](const std::string& path, int) {
    if (path == "c.seg") last_began = true;
    while (!go) std::this_thread::sleep_for(milliseconds(1));
    return Status::Ok();
  };
  const auto none = [] { return Status::Internal("nothing of mine is open"); };
  ASSERT_TRUE(fixture.Write("a.seg", std::string(1000, 'a')).ok());
  EXPECT_TRUE(fixture.transfer->IsFull());
  EXPECT_FALSE(fixture.transfer->IsStuck()) << "an upload makes room";
  std::thread other([&] { go = true; });
  EXPECT_TRUE(fixture.transfer->WaitForRoom(none).ok());
  other.join();
  // Nothing is on its way: what is open has to leave, or nothing ever would.
  std::unique_ptr<ByteSink> sink;
  ASSERT_TRUE(fixture.transfer->Open("b.seg", &sink).ok());
  ASSERT_TRUE(sink->Append(std::string(2000, 'b')).ok());
  EXPECT_TRUE(fixture.transfer->IsFull());
  // An upload has made room a moment before it is over.
  while (!fixture.transfer->IsStuck()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(fixture.transfer->WaitForRoom(none).code(),
            Status::Code::kInternal);
  EXPECT_TRUE(
      fixture.transfer->WaitForRoom([&] { return sink->SyncAndClose(); }).ok());
  EXPECT_EQ(fixture.store->objects()["b.seg"].size(), 2000u);
  EXPECT_EQ(fixture.transfer->stats().staged_peak_bytes, 2000u);
  EXPECT_GT(fixture.transfer->stats().room_wait.count(), 0);
  go = false;
  ASSERT_TRUE(fixture.Write("c.seg", std::string(1000, 'c')).ok());
  // What has not begun by then is not uploaded, and keeps its room.
  while (!last_began) std::this_thread::sleep_for(milliseconds(1));
  std::thread stopper([&] { fixture.stop->Set(); });
  EXPECT_EQ(fixture.transfer->WaitForRoom(none).code(),
            Status::Code::kCancelled);
  stopper.join();
  go = true;
  fixture.WaitUntilUnused();
  EXPECT_EQ(fixture.transfer->WaitForRoom(none).code(),
            Status::Code::kCancelled)
      << "there is room, and nobody wants what would fill it";
}

TEST(SegmentTransferTest, WhatTheBuffersDiskChangesIsNotUploaded) {
  Folder folder;
  TransferOptions options = InMemory();
  ASSERT_TRUE(BufferDirectory::Open(folder.path(), &options.buffer).ok());
  Fixture fixture(options);
  std::unique_ptr<ByteSink> sink;
  ASSERT_TRUE(fixture.transfer->Open("a.seg", &sink).ok());
  // More than is gathered before it is written out.
  ASSERT_TRUE(sink->Append(std::string(3 << 20, 'a')).ok());
  std::string path;
  for (const std::string& name : List(options.buffer->path())) {
    if (name != "lock") path = options.buffer->path() + "/" + name;
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> file(::fopen(path.c_str(), "r+"),
                                                   ::fclose);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::fputc('b', file.get()), 'b');
  ASSERT_EQ(::fflush(file.get()), 0);
  ASSERT_TRUE(sink->SyncAndClose().ok());
  EXPECT_EQ(fixture.Finish().code(), Status::Code::kDataLoss);
  EXPECT_TRUE(fixture.store->objects().empty());
}

TEST(SegmentTransferTest, WhatWaitsInTheBufferHasNoFileOpen) {
  Folder folder;
  TransferOptions options = InMemory(1);
  ASSERT_TRUE(BufferDirectory::Open(folder.path(), &options.buffer).ok());
  Fixture fixture(options);
  std::atomic<bool> go{false};
  fixture.store->on_close = [&](const std::string&, int) {
    while (!go) std::this_thread::sleep_for(milliseconds(1));
    return Status::Ok();
  };
  const size_t before = List("/proc/self/fd").size();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(fixture.Write(std::to_string(i) + ".seg", "data").ok());
  }
  EXPECT_LT(List("/proc/self/fd").size(), before + 10);
  go = true;
  EXPECT_TRUE(fixture.Finish().ok());
  EXPECT_EQ(fixture.store->objects().size(), 50u);
}

TEST(SegmentTransferTest, DirectFilesAreWrittenWhereTheyBelong) {
  Folder folder;
  TransferOptions options = InMemory();
  options.direct = true;
  std::map<std::string, std::string> names;
  auto stop = std::make_shared<StopFlag>();
  SegmentTransfer transfer(options, local::NewSink,
                           std::make_shared<StagingRoom>(),
                           std::make_shared<RateLimit>(), stop,
                           [stop](const Status&) { stop->Set(); });
  std::unique_ptr<ByteSink> sink;
  const std::string path = folder.path() + "/a/b.seg";
  ASSERT_TRUE(transfer.Open(path, &sink).ok());
  ASSERT_TRUE(sink->Append("data").ok());
  ASSERT_TRUE(sink->SyncAndClose().ok());
  ASSERT_TRUE(transfer.Finish(milliseconds(50), &names).ok());
  EXPECT_EQ(names[path], path);
  std::unique_ptr<ByteSource> source;
  ASSERT_TRUE(local::NewSource(path, &source).ok());
  EXPECT_EQ(source->size(), 4u);
}

// Files that wait to be synced hold a descriptor each, and no more; whoever
// adds to many syncs his own.
TEST(SegmentTransferTest, FewDirectFilesAreOpenWhileTheStoreIsSlow) {
  constexpr size_t kMost = 64;  // that wait
  Folder folder;
  TransferOptions options = InMemory(1);
  options.direct = true;
  auto stop = std::make_shared<StopFlag>();
  std::atomic<size_t> most{0};
  const size_t before = List("/proc/self/fd").size();
  SegmentTransfer transfer(
      options,
      [&](const std::string& path, std::unique_ptr<ByteSink>* sink) {
        most = std::max<size_t>(most, List("/proc/self/fd").size());
        return local::NewSink(path, sink);
      },
      std::make_shared<StagingRoom>(), std::make_shared<RateLimit>(), stop,
      [stop](const Status&) { stop->Set(); });
  // The only thread for it hangs in the first.
  ASSERT_EQ(adaptcp_store_faults(
                ("match=" + folder.path() + "/0.seg;hang@3").c_str()),
            0);
  for (int i = 0; i < 150; ++i) {
    std::unique_ptr<ByteSink> sink;
    const std::string path = folder.path() + "/" + std::to_string(i) + ".seg";
    ASSERT_TRUE(transfer.Open(path, &sink).ok());
    ASSERT_TRUE(sink->Append("data").ok());
    ASSERT_TRUE(sink->SyncAndClose().ok());
    while (adaptcp_store_op_count() < 3) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    if (i == 0) continue;
    uint64_t size = 0;
    ASSERT_TRUE(local::ObjectSize(path, &size).ok());
    ASSERT_EQ(size, 4u) << "the rest of it waits in memory";
  }
  EXPECT_GE(most, before + kMost);
  EXPECT_LT(most, before + kMost + 10);
  adaptcp_store_faults("");
  std::map<std::string, std::string> names;
  EXPECT_TRUE(transfer.Finish(milliseconds(50), &names).ok());
  EXPECT_EQ(names.size(), 150u);
}

// Rows would wait with it, and then updates.
TEST(SegmentTransferTest, AnEncoderDoesNotWaitForSlowSyncs) {
  TransferOptions options = InMemory(2);
  options.direct = true;
  Fixture fixture(options);
  std::atomic<bool> go{false};
  std::atomic<int> synced_here{0};
  const auto encoder = std::this_thread::get_id();
  fixture.store->on_close = [&](const std::string&, int) {
    if (std::this_thread::get_id() == encoder) {
      ++synced_here;
      return Status::Ok();
    }
    while (!go) std::this_thread::sleep_for(milliseconds(1));
    return Status::Ok();
  };
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(fixture.Write(std::to_string(i) + ".seg", "data").ok());
  }
  EXPECT_EQ(synced_here, 0);
  for (int i = 64; i < 100; ++i) {
    ASSERT_TRUE(fixture.Write(std::to_string(i) + ".seg", "data").ok());
  }
  EXPECT_GE(synced_here, 100 - 64 - 2) << "there is a bound";
  go = true;
  ASSERT_TRUE(fixture.Finish().ok());
  EXPECT_EQ(fixture.store->objects().size(), 100u);
}

// So that those whom a store hangs can be counted.
TEST(SegmentTransferTest, ItLivesForAsLongAsTheStoreHangsOneOfItsThreads) {
  for (const bool direct : {true, false}) {
    TransferOptions options = InMemory(1);
    options.direct = direct;
    auto fixture = std::make_unique<Fixture>(options);
    const auto store = fixture->store;
    std::atomic<bool> hangs{false}, go{false};
    store->on_close = [&](const std::string&, int) {
      hangs = true;
      while (!go) std::this_thread::sleep_for(milliseconds(1));
      return Status::Ok();
    };
    const std::weak_ptr<const void> life = fixture->transfer->life();
    ASSERT_TRUE(fixture->Write("a.seg", "data").ok());
    while (!hangs) std::this_thread::sleep_for(milliseconds(1));
    fixture->stop->Set();
    EXPECT_FALSE(fixture->Finish().ok());
    fixture = nullptr;
    EXPECT_FALSE(life.expired());
    go = true;
    while (!life.expired()) std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(SegmentTransferTest, WhatWaitsGoesWhenItIsDropped) {
  Folder folder;
  TransferOptions options = InMemory(1);
  ASSERT_TRUE(BufferDirectory::Open(folder.path(), &options.buffer).ok());
  const std::string buffer = options.buffer->path();
  Fixture fixture(options);
  std::atomic<bool> hangs{false}, go{false};
  fixture.store->on_close = [&](const std::string&, int) {
    hangs = true;
    while (!go) std::this_thread::sleep_for(milliseconds(1));
    return Status::Ok();
  };
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(fixture.Write(std::to_string(i) + ".seg", "data").ok());
  }
  while (!hangs) std::this_thread::sleep_for(milliseconds(1));
  fixture.stop->Set();
  EXPECT_FALSE(fixture.Finish().ok());
  EXPECT_EQ(List(buffer).size(), 6u) << "five, and the lock";
  fixture.transfer->Drop();
  EXPECT_EQ(List(buffer).size(), 2u) << "the one that hangs";
  go = true;
  fixture.WaitUntilUnused();
}

}  // namespace
}  // namespace adaptcp

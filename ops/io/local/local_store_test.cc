// The local store and the fault plans: against the file system itself, and in
// child processes where a fault kills.

#include "ops/io/local/local_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "ops/io/local/folder_testing.h"
#include "ops/io/local/store_faults.h"

namespace adaptcp {
namespace local {
namespace {

class LocalStoreTest : public ::testing::Test {
 protected:
  ~LocalStoreTest() override { adaptcp_store_faults(""); }

  // Writes an object of the given pieces.
  static Status Write(const std::string& path,
                      const std::vector<std::string>& pieces) {
    std::unique_ptr<ByteSink> sink;
    ADAPTCP_RETURN_IF_ERROR(NewSink(path, &sink));
    for (const std::string& piece : pieces) {
      ADAPTCP_RETURN_IF_ERROR(sink->Append(piece));
    }
    return sink->SyncAndClose();
  }

  static std::string Content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static bool Exists(const std::string& path) {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0;
  }

  // The operations of a plan's log, without their numbers.
  static std::vector<std::string> Logged(const std::string& log) {
    std::vector<std::string> lines;
    std::istringstream in(Content(log));
    for (std::string line; std::getline(in, line);) {
      lines.push_back(line.substr(line.find(' ') + 1));
    }
    return lines;
  }

  const testing::Folder folder_;
  const std::string dir_ = folder_.path();
};

TEST_F(LocalStoreTest, WhatIsWrittenIsThere) {
  const std::string path = dir_ + "/a/b//c/./x.seg";
  const std::string large(3 << 20, 'y');
  ASSERT_TRUE(Write(path, {"one", "", large, "two"}).ok());
  const std::string expected = "one" + large + "two";
  EXPECT_EQ(Content(path), expected);
  uint64_t size = 0;
  ASSERT_TRUE(ObjectSize(path, &size).ok());
  EXPECT_EQ(size, expected.size());
  std::unique_ptr<ByteSource> source;
  ASSERT_TRUE(NewSource(path, &source).ok());
  EXPECT_EQ(source->size(), expected.size());
  std::string read(7, '\0');
  ASSERT_TRUE(source->ReadAt(expected.size() - 7, 7, read.data()).ok());
  EXPECT_EQ(read, "yyyytwo");
  const Status past = source->ReadAt(expected.size() - 3, 7, read.data());
  EXPECT_EQ(past.code(), Status::Code::kDataLoss);
  EXPECT_NE(past.message().find("4 bytes early"), std::string::npos);
}

TEST_F(LocalStoreTest, NoNameIsWrittenTwice) {
  const std::string path = dir_ + "/x";
  ASSERT_TRUE(Write(path, {"first"}).ok());
  const Status again = Write(path, {"second"});
  EXPECT_EQ(again.code(), Status::Code::kFailedPrecondition);
  EXPECT_NE(again.message().find(path), std::string::npos);
  EXPECT_EQ(Content(path), "first");
}

TEST_F(LocalStoreTest, ListsAndDeletes) {
  for (const char* name : {"c", "a", "b"}) {
    ASSERT_TRUE(Write(dir_ + "/d/" + name, {name}).ok());
  }
  std::vector<std::string> names;
  ASSERT_TRUE(ListObjects(dir_ + "/d", &names).ok());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_TRUE(DeleteObject(dir_ + "/d/b").ok());
  ASSERT_TRUE(ListObjects(dir_ + "/d", &names).ok());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(DeleteObject(dir_ + "/d/b").code(), Status::Code::kNotFound);
  EXPECT_EQ(ListObjects(dir_ + "/e", &names).code(), Status::Code::kNotFound);
  std::unique_ptr<ByteSource> source;
  EXPECT_EQ(NewSource(dir_ + "/no", &source).code(), Status::Code::kNotFound);
  EXPECT_EQ(NewSource(dir_, &source).code(),
            Status::Code::kFailedPrecondition);
  EXPECT_EQ(MakeDirectories(dir_ + "/d/a/x").code(),
            Status::Code::kFailedPrecondition);
}

// File first, then its directory; each new directory before anything in it
// counts; nothing again for a directory that is known to be durable.
TEST_F(LocalStoreTest, DurabilityIsInOrder) {
  const std::string log = dir_ + ".log";
  ASSERT_TRUE(MakeDirectories(dir_).ok());
  ASSERT_EQ(adaptcp_store_faults(("log=" + log).c_str()), 0);
  ASSERT_TRUE(Write(dir_ + "/m/n/x.seg", {"data"}).ok());
  ASSERT_TRUE(Write(dir_ + "/m/n/y.seg", {}).ok());
  adaptcp_store_faults("");
  const std::string base = dir_.substr(dir_.rfind('/') + 1);
  EXPECT_EQ(Logged(log),
            (std::vector<std::string>{
                "mkdir m", "fsync_dir " + base, "mkdir n", "fsync_dir m",
                "create x.seg", "write x.seg", "fsync x.seg", "close x.seg",
                "fsync_dir n", "create y.seg", "fsync y.seg", "close y.seg",
                "fsync_dir n"}));
  EXPECT_EQ(std::remove(log.c_str()), 0);
}

// A directory that another process made, and did not sync before it died.
TEST_F(LocalStoreTest, FoundDirectoriesAreSyncedOnce) {
  const std::string log = dir_ + ".log";
  ASSERT_TRUE(MakeDirectories(dir_).ok());
  ASSERT_EQ(::mkdir((dir_ + "/old").c_str(), 0777), 0);
  ASSERT_EQ(adaptcp_store_faults(("log=" + log).c_str()), 0);
  ASSERT_TRUE(MakeDirectories(dir_ + "/old").ok());
  ASSERT_TRUE(MakeDirectories(dir_ + "/old").ok());
  adaptcp_store_faults("");
  const std::string base = dir_.substr(dir_.rfind('/') + 1);
  EXPECT_EQ(Logged(log), std::vector<std::string>{"fsync_dir " + base});
  EXPECT_EQ(std::remove(log.c_str()), 0);
}

TEST_F(LocalStoreTest, KnownDirectoriesTakeBoundedMemory) {
  ASSERT_TRUE(MakeDirectories(dir_).ok());
  for (int i = 0; i < 3000; ++i) {
    const std::string path = dir_ + "/" + std::to_string(i);
    ASSERT_TRUE(MakeDirectories(path).ok());
    ASSERT_EQ(::rmdir(path.c_str()), 0);
    ASSERT_LE(KnownDirectories(), 1025u);
  }
}

// Whatever operation fails, the caller hears of it, with the errno's meaning.
TEST_F(LocalStoreTest, EveryFailedOperationReachesTheCaller) {
  ASSERT_TRUE(MakeDirectories(dir_).ok());
  int failures = 0;
  for (int n = 1;; ++n) {
    const std::string path = dir_ + "/" + std::to_string(n) + "/x";
    ASSERT_EQ(
        adaptcp_store_faults(("errno=28@" + std::to_string(n)).c_str()), 0);
    const Status status = Write(path, {"data"});
    adaptcp_store_faults("");
    if (status.ok()) break;
    ++failures;
    EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
    EXPECT_NE(status.message().find("errno 28"), std::string::npos);
  }
  EXPECT_EQ(failures, 7);  // mkdir, fsync_dir, create, write, fsync, close, ...
}

TEST_F(LocalStoreTest, AFailedSinkStaysFailed) {
  std::unique_ptr<ByteSink> sink;
  ASSERT_TRUE(NewSink(dir_ + "/x", &sink).ok());
  ASSERT_EQ(adaptcp_store_faults("errno=5@1"), 0);
  EXPECT_EQ(sink->Append(std::string(2 << 20, 'x')).code(),
            Status::Code::kUnavailable);
  EXPECT_FALSE(sink->Append("y").ok());
  EXPECT_FALSE(sink->SyncAndClose().ok());
}

TEST_F(LocalStoreTest, AShortWriteLeavesHalf) {
  ASSERT_EQ(adaptcp_store_faults("match=/x;short@2"), 0);
  EXPECT_EQ(Write(dir_ + "/x", {"0123456789"}).code(),
            Status::Code::kResourceExhausted);
  EXPECT_EQ(Content(dir_ + "/x"), "01234");
}

TEST_F(LocalStoreTest, FaultsFromTheNthOnAndByName) {
  ASSERT_EQ(adaptcp_store_faults("match=bad;errno=5@2+"), 0);
  EXPECT_TRUE(Write(dir_ + "/good", {"x"}).ok());
  EXPECT_EQ(adaptcp_store_op_count(), 0u);
  EXPECT_FALSE(Write(dir_ + "/bad", {"x"}).ok());
  EXPECT_FALSE(Write(dir_ + "/bad2", {"x"}).ok());
  EXPECT_TRUE(Write(dir_ + "/good2", {"x"}).ok());
}

TEST_F(LocalStoreTest, AKilledProcessHasDoneAllBeforeAndNothingAfter) {
  ASSERT_TRUE(MakeDirectories(dir_).ok());
  for (int n = 1; n <= 5; ++n) {
    const std::string path = dir_ + "/x" + std::to_string(n);
    const pid_t child = ::fork();
    if (child == 0) {
      adaptcp_store_faults(("kill@" + std::to_string(n)).c_str());
      const Status status = Write(path, {"data"});
      ::_exit(status.ok() ? 0 : 1);
    }
    int result = 0;
    ASSERT_EQ(::waitpid(child, &result, 0), child);
    ASSERT_TRUE(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL) << n;
    EXPECT_EQ(Exists(path), n > 1);           // create
    EXPECT_EQ(Content(path) == "data", n > 2);  // write
  }
}

TEST_F(LocalStoreTest, PlansThatCannotBeUnderstoodAreRefused) {
  for (const char* plan :
       {"hang", "hang@0", "trace=", "kill", "kill@", "kill@0", "kill@x", "kill@-1", "errno=@1",
        "errno=0@1", "errno=28", "kill@1;;", "match=", "log=", "foo=1@2",
        "kill@1 ", "short@1+", "kill@99999999999999999999"}) {
    EXPECT_EQ(adaptcp_store_faults(plan), EINVAL) << plan;
  }
  EXPECT_EQ(adaptcp_store_faults("errno=28@1;kill@7;match=x;log=/tmp/l"), 0);
  EXPECT_EQ(adaptcp_store_faults(nullptr), 0);
}

// A hung operation holds up nobody else, and is made late.
TEST_F(LocalStoreTest, AHungOperationIsMadeWhenThePlanIsReplaced) {
  ASSERT_TRUE(MakeDirectories(dir_).ok());
  ASSERT_EQ(adaptcp_store_faults("match=late;hang@2"), 0);
  std::thread late([this] {
    EXPECT_TRUE(Write(dir_ + "/late", {"data"}).ok());
  });
  while (adaptcp_store_op_count() < 2) std::this_thread::yield();
  EXPECT_TRUE(Write(dir_ + "/early", {"data"}).ok());
  EXPECT_EQ(Content(dir_ + "/late"), "");
  adaptcp_store_faults("");
  late.join();
  EXPECT_EQ(Content(dir_ + "/late"), "data");
}

TEST_F(LocalStoreTest, ATraceHasSizesAndKeepsWhatIsDeleted) {
  const std::string trace = dir_ + ".trace";
  ASSERT_TRUE(MakeDirectories(dir_).ok());
  ASSERT_TRUE(MakeDirectories(trace).ok());
  const std::string x = dir_ + "/x";
  ASSERT_EQ(adaptcp_store_faults(("trace=" + trace).c_str()), 0);
  ASSERT_TRUE(Write(x, {"data"}).ok());
  ASSERT_TRUE(DeleteObject(x).ok());
  adaptcp_store_faults("");
  EXPECT_EQ(Content(trace + "/log"),
            "1 create -1 " + x + "\n2 write 0 " + x + "\n3 fsync 4 " + x +
                "\n4 close 4 " + x + "\n5 fsync_dir -1 " + dir_ +
                "\n6 delete 4 " + x + "\n");
  EXPECT_EQ(Content(trace + "/6"), "data");
  EXPECT_EQ(std::remove((trace + "/6").c_str()), 0);
  EXPECT_EQ(std::remove((trace + "/log").c_str()), 0);
  EXPECT_EQ(::rmdir(trace.c_str()), 0);
}

TEST_F(LocalStoreTest, CountsOperationsOfAllThreads) {
  ASSERT_EQ(adaptcp_store_faults(""), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string name = "/t" + std::to_string(t) + "/same/" +
                                 std::to_string(i);
        EXPECT_TRUE(Write(dir_ + name, {"x"}).ok());
        EXPECT_EQ(adaptcp_store_op("other", name.c_str()), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(adaptcp_store_op_count(), 4u * 20 * 6);
}

}  // namespace
}  // namespace local
}  // namespace adaptcp

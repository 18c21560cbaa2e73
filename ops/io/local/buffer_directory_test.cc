#include "ops/io/local/buffer_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/io/local/folder_testing.h"
#include "ops/io/local/local_store.h"

namespace adaptcp {
namespace {

using testing::Folder;
using testing::List;

TEST(BufferDirectoryTest, WhatDeadProcessesHaveLeftGoes) {
  Folder folder;
  const std::string root = folder.path() + "/new/buffer";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::shared_ptr<BufferDirectory> own;
    bool made = BufferDirectory::Open(root, &own).ok();
    std::unique_ptr<ByteSink> sink;
    made = made && local::NewSink(own->NewName(), &sink).ok() &&
           sink->Append("left").ok() && sink->SyncAndClose().ok();
    made = ::write(ready[1], made ? "y" : "n", 1) == 1 && made;
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const std::vector<std::string> left = List(root);
  ASSERT_EQ(left.size(), 1u);
  std::shared_ptr<BufferDirectory> own;
  ASSERT_TRUE(BufferDirectory::Open(root, &own).ok());
  // It lives: its files stay.
  EXPECT_EQ(own->removed(), 0);
  EXPECT_EQ(own->others(), 1);
  EXPECT_EQ(List(root).size(), 2u);
  EXPECT_EQ(List(root + "/" + left[0]).size(), 2u);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  // One that died before it had a lock, and what is none of ours.
  ASSERT_TRUE(local::MakeDirectories(root + "/adaptcp-buffer-0").ok());
  ASSERT_TRUE(local::MakeDirectories(root + "/other").ok());
  std::shared_ptr<BufferDirectory> again;
  ASSERT_TRUE(BufferDirectory::Open(root, &again).ok());
  EXPECT_EQ(again, own);
  EXPECT_EQ(own->removed(), 2);
  EXPECT_EQ(own->others(), 0);
  EXPECT_EQ(List(root).size(), 2u);
  uint64_t free = 0;
  ASSERT_TRUE(own->FreeBytes(&free).ok());
  EXPECT_GT(free, 0u);
  EXPECT_NE(own->NewName(), own->NewName());
  // What can't be removed, or isn't what its name says, is in nobody's way.
  ASSERT_TRUE(local::MakeDirectories(root + "/adaptcp-buffer-1/within").ok());
  std::unique_ptr<ByteSink> sink;
  for (const char* name : {"/adaptcp-buffer-1/lock", "/adaptcp-buffer-2"}) {
    ASSERT_TRUE(local::NewSink(root + name, &sink).ok());
    ASSERT_TRUE(sink->SyncAndClose().ok());
  }
  const Status opened = BufferDirectory::Open(root, &again);
  ASSERT_TRUE(opened.ok()) << opened.message();
  EXPECT_EQ(again, own);
  EXPECT_EQ(List(root).size(), 4u);
  ASSERT_EQ(::system(("rm -r " + root).c_str()), 0);
  ASSERT_TRUE(BufferDirectory::Open(root, &again).ok());
  EXPECT_NE(again, own) << "somebody emptied the root";
}

}  // namespace
}  // namespace adaptcp

// For tests only: a directory of their own.

#ifndef ADAPTCP_OPS_IO_LOCAL_FOLDER_TESTING_H_
#define ADAPTCP_OPS_IO_LOCAL_FOLDER_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "ops/io/local/local_store.h"

namespace adaptcp {
namespace testing {

// Goes with all that is in it.
class Folder {
 public:
  Folder() : path_(::testing::TempDir() + "adaptcp_XXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  ~Folder() { EXPECT_EQ(::system(("rm -r " + path_).c_str()), 0); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::vector<std::string> List(const std::string& path) {
  std::vector<std::string> names;
  EXPECT_TRUE(local::ListObjects(path, &names).ok());
  return names;
}

}  // namespace testing
}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_FOLDER_TESTING_H_

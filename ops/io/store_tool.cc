// Makes every operation of ops/io/store.h below a directory that does not exist
// yet, local or remote, and checks what comes back; for tests.
//
//   store_tool DIRECTORY [PLUGIN...]
//
// PLUGINs are libraries with file systems for TensorFlow. Prints "ok", after lines
// "cannot WHAT" for what stores may differ in, or the first thing that is not as
// it should be (exit code 1).

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/io/local/store_faults.h"
#include "ops/io/store.h"
#include "ops/io/tf_status.h"
#include "tensorflow/c/experimental/filesystem/modular_filesystem.h"

namespace adaptcp {
namespace {

void Expect(bool condition, const std::string& what) {
  if (condition) return;
  std::cout << "wrong: " << what << std::endl;
  std::_Exit(1);  // see main
}

void ExpectCode(const Status& status, Status::Code code,
                const std::string& what) {
  Expect(status.code() == code, what + " gave " + status.ToString());
}

void ExpectOk(const Status& status, const std::string& what) {
  ExpectCode(status, Status::Code::kOk, what);
}

Status Write(const std::string& path, const std::vector<std::string>& pieces) {
  std::unique_ptr<ByteSink> sink;
  ADAPTCP_RETURN_IF_ERROR(NewSink(path, &sink));
  for (const std::string& piece : pieces) {
    ADAPTCP_RETURN_IF_ERROR(sink->Append(piece));
  }
  return sink->SyncAndClose();
}

void CheckObjects(const std::string& dir) {
  const std::string path = dir + "/a/b/x.seg";
  const std::string large(3 << 20, 'z');
  ExpectOk(Write(path, {"head", large, "tail"}), "write");
  std::unique_ptr<ByteSource> source;
  ExpectOk(NewSource(path, &source), "open");
  Expect(source->size() == large.size() + 8, "size of the source");
  std::string read(6, '\0');
  ExpectOk(source->ReadAt(0, 6, read.data()), "read");
  Expect(read == "headzz", "bytes at the front: " + read);
  ExpectOk(source->ReadAt(source->size() - 6, 6, read.data()), "read");
  Expect(read == "zztail", "bytes at the end: " + read);
  ExpectCode(source->ReadAt(source->size() - 5, 6, read.data()),
             Status::Code::kDataLoss, "read past the end");
  uint64_t size = 0;
  ExpectOk(ObjectSize(path, &size), "size");
  Expect(size == large.size() + 8, "size");
  ExpectOk(Write(dir + "/a/b/empty", {}), "write of nothing");
  ExpectOk(ObjectSize(dir + "/a/b/empty", &size), "size of nothing");
  Expect(size == 0, "size of nothing");
  ExpectOk(DeleteObject(path), "delete");
  ExpectCode(NewSource(path, &source), Status::Code::kNotFound,
             "open what was deleted");
  ExpectCode(ObjectSize(path, &size), Status::Code::kNotFound,
             "size of what was deleted");
}

// What a range of an object holds, whatever range, in whatever order, also when
// several threads read one source.
void CheckRanges(const std::string& dir) {
  const size_t size = 1 << 20;
  std::string data(size, '\0');
  std::mt19937 random(7);
  for (char& byte : data) byte = static_cast<char>(random());
  const std::string path = dir + "/ranges";
  ExpectOk(Write(path, {data.substr(0, 1), data.substr(1)}), "write");
  std::unique_ptr<ByteSource> source;
  ExpectOk(NewSource(path, &source), "open");
  const auto read = [&](uint32_t seed) {
    std::mt19937 draw(seed);
    std::string found;
    for (int i = 0; i < 40; ++i) {
      const size_t from = draw() % size;
      const size_t length = draw() % std::min<size_t>(size - from + 1, 70000);
      found.assign(length, '\0');
      ExpectOk(source->ReadAt(from, length, found.data()), "read of a range");
      Expect(data.compare(from, length, found) == 0,
             "bytes from " + std::to_string(from));
    }
  };
  std::vector<std::thread> readers;
  for (uint32_t i = 0; i < 3; ++i) readers.emplace_back(read, i);
  for (std::thread& reader : readers) reader.join();
  char byte = 0;
  ExpectOk(source->ReadAt(size, 0, &byte), "read of nothing at the end");
  ExpectCode(source->ReadAt(size, 1, &byte), Status::Code::kDataLoss,
             "read behind the end");
}

void CheckWritersAtOnce(const std::string& dir) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&dir, i] {
      const std::string path = dir + "/data/w" + std::to_string(i) + "/x.seg";
      const std::string piece(100000 * i + 1, static_cast<char>('a' + i));
      ExpectOk(Write(path, {piece, piece}), "write at once");
      std::unique_ptr<ByteSource> source;
      ExpectOk(NewSource(path, &source), "open");
      std::string found(2 * piece.size(), '\0');
      ExpectOk(source->ReadAt(0, found.size(), found.data()), "read");
      Expect(found == piece + piece, "bytes of " + path);
    });
  }
  for (std::thread& writer : writers) writer.join();
}

// What is not the same everywhere: told, not judged.
void TellDifferences(const std::string& dir) {
  const std::string path = dir + "/twice";
  ExpectOk(Write(path, {"first"}), "write");
  if (Write(path, {"other"}).ok()) std::cout << "cannot refuse to overwrite\n";
  const Status deleted = DeleteObject(dir + "/a/b/x.seg");
  if (deleted.ok()) {
    std::cout << "cannot tell that there was nothing to delete\n";
  } else {
    ExpectCode(deleted, Status::Code::kNotFound, "delete twice");
  }
}

// Each operation of a write, failed in turn, must reach the caller.
void CheckFaults(const std::string& dir) {
  int failures = 0;
  for (;; ++failures) {
    const std::string plan = "errno=28@" + std::to_string(failures + 1);
    Expect(adaptcp_store_faults(plan.c_str()) == 0, "plan");
    const Status status =
        Write(dir + "/fault/" + std::to_string(failures), {"data"});
    adaptcp_store_faults("");
    if (status.ok()) break;
    ExpectCode(status, Status::Code::kResourceExhausted, plan);
  }
  // create, write, fsync, close at the least.
  Expect(failures >= 4, std::to_string(failures) + " operations in a write");
  adaptcp_store_faults("match=/half;short@2");
  const std::string half = dir + "/half";
  Expect(!Write(half, {"0123456789"}).ok(), "a short write");
  adaptcp_store_faults("");
}

void CheckStatus() {
  for (int code = 0; code <= static_cast<int>(Status::Code::kUnimplemented);
       ++code) {
    const Status status(static_cast<Status::Code>(code), code == 0 ? "" : "m");
    const Status back = FromTensorFlow(ToTensorFlow(status));
    Expect(back.code() == status.code() && back.message() == status.message(),
           "status " + status.ToString() + " became " + back.ToString());
  }
}

}  // namespace
}  // namespace adaptcp

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "store_tool DIRECTORY [PLUGIN...]\n";
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    const auto loaded = tensorflow::RegisterFilesystemPlugin(argv[i]);
    if (!loaded.ok()) {
      std::cerr << argv[i] << ": " << loaded << "\n";
      return 2;
    }
  }
  const std::string directory = argv[1];
  adaptcp::CheckStatus();
  adaptcp::CheckObjects(directory);
  adaptcp::CheckRanges(directory);
  adaptcp::CheckWritersAtOnce(directory);
  adaptcp::TellDifferences(directory);
  adaptcp::CheckFaults(directory);
  std::cout << "ok" << std::endl;
  // Not through the destructors of plug-ins: that of s3 aborts.
  std::_Exit(0);
}

// What quantising costs: bytes of rows per second of CPU time, one core, beside
// a plain copy.
//
//   quantize_bench [rows, default 200000] [dim, default 64] [rounds, default 3]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <vector>

#include "ops/format/quantize.h"
#include "ops/format/quantized_column.h"

namespace {

using adaptcp::Codec;
using adaptcp::DType;
using adaptcp::Method;

// The least of several rounds: others use the machine, too.
double Seconds(int rounds, const std::function<void()>& f) {
  double least = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const std::clock_t start = std::clock();
    f();
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t rows = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200000;
  const size_t dim = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 3;
  std::vector<float> values(rows * dim);
  std::mt19937_64 engine(1);
  std::normal_distribution<float> normal(0, 0.05f);
  for (float& x : values) x = normal(engine);
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  const size_t size = values.size() * sizeof(float);
  std::vector<char> copy(size);
  const double gigabytes = static_cast<double>(size) / 1e9;
  const double plain = Seconds(rounds, [&] { std::memcpy(copy.data(), bytes, size); });
  std::printf("%zu rows of %zu float32; GB of them per second\n", rows, dim);
  std::printf("%-14s %8.2f\n", "memcpy", gigabytes / plain);

  const struct { const char* name; Method method; } kMethods[] = {
      {"symmetric", Method::kSymmetric}, {"asymmetric", Method::kAsymmetric},
      {"adaptive", Method::kAdaptive},   {"kmeans", Method::kKmeans},
      {"bfloat16", Method::kBfloat16}};
  for (const auto& entry : kMethods) {
    for (const int bits : {2, 3, 4, 8, 16}) {
      if (!adaptcp::IsCodeWidth(entry.method == Method::kBfloat16 ? Codec::kBfloat16
                                                                  : Codec::kAffine,
                                bits)) {
        continue;
      }
      const Codec codec = CodecFor({entry.method, bits}, DType::kFloat32, dim);
      if (codec == Codec::kRaw) continue;
      std::string column;
      const double encode = Seconds(rounds, [&] {
        column.clear();
        QuantizeColumn({entry.method, bits}, DType::kFloat32, dim, bytes, rows, &column);
      });
      adaptcp::QuantizedColumn view;
      const double decode = Seconds(rounds, [&] {
        if (!adaptcp::QuantizedColumn::Parse("column", codec, column, DType::kFloat32,
                                             static_cast<uint32_t>(dim), rows, &view)
                 .ok()) {
          std::abort();
        }
        view.Read(copy.data());
      });
      std::printf("%-10s %3d %8.2f quantised, %8.2f read; %5.2f times smaller\n",
                  entry.name, bits, gigabytes / encode, gigabytes / decode,
                  static_cast<double>(size) / static_cast<double>(column.size()));
    }
  }
  return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// The fuzzer's cases without a fuzzer: the same ones at every run, with any compiler.
//   fuzz_replay [FIRST_SEED COUNT | FILE...]
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kInputBytes = 256;

void run_seed(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> input(kInputBytes);
  for (uint8_t& byte : input) byte = static_cast<uint8_t>(random() >> 32);
  std::fflush(stderr);
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

int run_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "fuzz_replay: cannot read %s\n", path);
    return 2;
  }
  const std::vector<char> input((std::istreambuf_iterator<char>(file)), {});
  std::fprintf(stderr, "fuzz_replay: %s\n", path);
  return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

// Seed of the case that runs, for the report.
uint64_t g_seed;
void say_seed(int) {
  std::fprintf(stderr, "fuzz_replay: seed %llu\n", static_cast<unsigned long long>(g_seed));
  std::_Exit(134);
}

}  // namespace

#include <csignal>

int main(int argc, char** argv) {
  const bool seeds = argc == 3 && std::isdigit(static_cast<unsigned char>(argv[1][0])) != 0;
  if (!seeds) {
    for (int i = 1; i < argc; ++i) {
      if (const int error = run_file(argv[i])) return error;
    }
    return argc < 2 ? 2 : 0;
  }
  std::signal(SIGABRT, say_seed);
  std::signal(SIGFPE, say_seed);
  const uint64_t first = std::strtoull(argv[1], nullptr, 10), count = std::strtoull(argv[2], nullptr, 10);
  for (g_seed = first; g_seed < first + count; ++g_seed) run_seed(g_seed);
  return 0;
}

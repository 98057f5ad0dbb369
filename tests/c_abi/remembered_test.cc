// SPDX-License-Identifier: MIT OR Apache-2.0
// A call like one before chooses nothing, and does what it would do without: each call of a random series is
// made twice, once by an older header's struct, for which nothing is remembered.
//   remembered_test FAKE_RUNTIME
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_hip.h"
#include "fmha_rocm.h"
#include "params.h"

namespace {

constexpr size_t kBytes = size_t{1} << 24;
constexpr uint32_t kOlderSize = 440;  // the struct's before `flags`

int (*hip_malloc)(void**, size_t);
int (*hip_set_device)(int);
fake_hip_state* hip;

// What a call came to.
struct Outcome {
  fmha_status status;
  std::string message;
  int launches, memsets;
  std::string function;
  std::vector<unsigned char> arguments;
  std::vector<unsigned> grid;

  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(fmha_fwd_params p, uint32_t size) {
  p.struct_size = size;
  const int launches = hip->launches, memsets = hip->memsets;
  const fmha_status status = fmha_fwd(&p, nullptr);
  if (status != FMHA_OK || hip->launches == launches) {
    return {status, status == FMHA_OK ? "" : fmha_last_error(), 0, 0, "", {}, {}};
  }
  return {status,
          "",
          hip->launches - launches,
          hip->memsets - memsets,
          hip->function_name,
          {hip->arguments, hip->arguments + hip->argument_bytes},
          {hip->grid, hip->grid + 3}};
}

class Series {
 public:
  Series() {
    for (char*& region : regions_) {
      void* memory = nullptr;
      CHECK(hip_malloc(&memory, kBytes) == 0);
      region = static_cast<char*>(memory);
    }
  }

  fmha_fwd_params next() {
    constexpr int64_t kLengths[] = {1, 64, 512, 4096}, kHdims[] = {64, 128};
    constexpr fmha_dtype kTypes[] = {FMHA_FP16, FMHA_BF16};
    fmha_fwd_params p = test_params(one_of(kTypes), TEST_BSHD, 1 + below(2), one_of(kLengths),
                                    one_of(kLengths), 2, 1 + below(2), one_of(kHdims));
    p.q.data = address(0), p.k.data = address(1), p.v.data = address(2), p.o.data = address(3);
    if (below(2) == 0) p.lse.data = reinterpret_cast<float*>(address(4));
    if (below(3) == 0) p.mask = FMHA_MASK_CAUSAL;
    if (below(8) == 0) p.kernel = below(4);
    if (below(6) == 0) p.mask = FMHA_MASK_WINDOW, p.window_left = 16 << below(4);
    if (below(4) == 0) make_packed(p);
    p.philox_seed = static_cast<uint64_t>(below(100));
    if (below(2) == 0) {
      p.workspace = regions_[6] + 256 * below(9);
      p.workspace_bytes = int64_t{1} << (12 + 2 * below(6));
    }
    return p;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  template <typename T, size_t N>
  T one_of(const T (&values)[N]) {
    return values[below(N)];
  }

  // Mostly aligned, now and then not, or not there.
  char* address(int region) {
    constexpr int kOff[] = {2, 4, 8, 16, 128};
    if (below(40) == 0) return nullptr;
    char* start = regions_[region] + 256 * below(50);
    return below(12) == 0 ? start + one_of(kOff) : start;
  }

  void make_packed(fmha_fwd_params& p) {
    p.total_q = p.batch * p.seqlen_q, p.total_k = p.batch * p.seqlen_k;
    p.cu_seqlens_q = reinterpret_cast<const int32_t*>(regions_[5]);
    p.cu_seqlens_k = p.cu_seqlens_q + (below(2) == 0 ? 0 : 64);
    p.lse.stride_head = p.total_q;
    if (below(3) == 0) p.seqused_k = p.cu_seqlens_q + 128;
  }

  std::mt19937_64 random_{7};
  char* regions_[7] = {};
};

void test_series(Series& series) {
  int launched = 0;
  for (int i = 0; i < 4000; ++i) {
    const fmha_fwd_params p = series.next();
    const Outcome anew = outcome_of(p, kOlderSize);
    launched += anew.launches > 0 ? 1 : 0;
    for (int turn = 0; turn < 2; ++turn) CHECK(outcome_of(p, sizeof p) == anew);
  }
  CHECK(launched > 1000);
}

// Another device of the process, and another thread, know their own.
void test_devices(Series& series) {
  fmha_fwd_params p = series.next();
  while (outcome_of(p, kOlderSize).launches == 0) p = series.next();
  p.flags = FMHA_NO_MEMORY_CHECK;
  const Outcome first = outcome_of(p, sizeof p);
  CHECK(hip_set_device(1) == 0);
  CHECK(outcome_of(p, sizeof p) == first && outcome_of(p, sizeof p) == first);
  CHECK(hip_set_device(0) == 0);
  CHECK(outcome_of(p, sizeof p) == first);
  std::thread([&] { CHECK(outcome_of(p, sizeof p) == first && outcome_of(p, sizeof p) == first); }).join();
}

template <typename Function>
void bind(void* library, const char* name, Function& function) {
  void* symbol = dlsym(library, name);
  CHECK(symbol != nullptr);
  std::memcpy(&function, &symbol, sizeof function);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  CHECK_OK(fmha_set_hip_runtime(argv[1]));
  void* library = dlopen(fmha_hip_runtime_path(), RTLD_NOW | RTLD_NOLOAD);
  CHECK(library != nullptr);
  if (library == nullptr) return check_result();
  fake_hip_fn state = nullptr;
  bind(library, "fake_hip", state);
  bind(library, "hipMalloc", hip_malloc);
  bind(library, "hipSetDevice", hip_set_device);
  hip = state();
  Series series;
  test_series(series);
  test_devices(series);
  return check_result();
}

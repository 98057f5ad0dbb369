// SPDX-License-Identifier: MIT OR Apache-2.0
// Eight threads on two devices, all starting at once with nothing loaded: every result is that of the double
// reference, and bit for bit that of the same call made by itself; every message stays with its thread.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fmha_rocm.h"
#include "on_device.h"
#include "params.h"
#include "reference.h"
#include "status.h"

namespace {

constexpr int kThreads = 8;
constexpr int kDevices = 2;
constexpr int kCalls = 3;

struct Worker {
  int id = 0;
  std::vector<std::vector<uint16_t>> results;
};

class Problem {
 public:
  Problem(int id, int call) {
    const fmha_dtype dtype = id % 4 < 2 ? FMHA_FP16 : FMHA_BF16;
    params =
        test_params(dtype, TEST_BSHD, 1, 30 + 7 * id + call, 64 + 9 * id, 2, 1, call % 2 == 0 ? 64 : 128);
    params.mask = id % 3 == 0 ? FMHA_MASK_CAUSAL : FMHA_MASK_NONE;
    const auto seed = static_cast<uint32_t>(100 * id + call + 1);
    q.resize(static_cast<size_t>(params.seqlen_q * params.nhead_q * params.hdim_q));
    k.resize(static_cast<size_t>(params.seqlen_k * params.nhead_k * params.hdim_q));
    v.resize(k.size());
    reference_fill(dtype, seed, q.data(), q.size());
    reference_fill(dtype, seed + 1000, k.data(), k.size());
    reference_fill(dtype, seed + 2000, v.data(), v.size());
  }

  std::vector<uint16_t> run(void* stream) {
    std::vector<uint16_t> o(q.size(), 0xffff);
    fmha_fwd_params p = params;
    p.q.data = upload(q);
    p.k.data = upload(k);
    p.v.data = upload(v);
    p.o.data = upload(o);
    CHECK_OK(fmha_fwd(&p, stream));
    CHECK(hip().stream_synchronize(stream) == 0);
    CHECK(hip().copy(o.data(), p.o.data, o.size() * 2, HIP_TO_HOST) == 0);
    for (void* pointer : {p.q.data, p.k.data, p.v.data, p.o.data}) CHECK(hip().free_(pointer) == 0);
    return o;
  }

  fmha_fwd_params params{};
  std::vector<uint16_t> q, k, v;

 private:
  static void* upload(const std::vector<uint16_t>& data) {
    void* pointer = nullptr;
    CHECK(hip().malloc_(&pointer, data.size() * 2) == 0);
    CHECK(hip().copy(pointer, data.data(), data.size() * 2, HIP_TO_DEVICE) == 0);
    return pointer;
  }
};

// A failure whose text is this thread's own, which must survive what the others do meanwhile.
void fail_in_own_words(const Worker& worker) {
  fmha_fwd_params p = Problem(worker.id, 0).params;
  p.batch = -1000 - worker.id;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_INVALID_ARGUMENT, "");
}

void check_own_words(const Worker& worker) {
  const std::string words = "batch = -" + std::to_string(1000 + worker.id);
  CHECK(fmha_last_error() == doctest::Contains(words.c_str()));
}

void work(Worker& worker) {
  void* stream = nullptr;
  CHECK(hip().set_device(worker.id % kDevices) == 0);
  CHECK(hip().stream_create(&stream) == 0);
  fail_in_own_words(worker);
  for (int call = 0; call < kCalls; ++call) worker.results.push_back(Problem(worker.id, call).run(stream));
  check_own_words(worker);
  CHECK(hip().stream_destroy(stream) == 0);
}

void check_results(const Worker& worker) {
  CAPTURE(worker.id);
  CHECK(hip().set_device(worker.id % kDevices) == 0);
  for (int call = 0; call < kCalls; ++call) {
    Problem problem(worker.id, call);
    const std::vector<uint16_t>& o = worker.results[static_cast<size_t>(call)];
    const reference_errors errors = reference_compare(&problem.params, problem.q.data(), problem.k.data(),
                                                      problem.v.data(), o.data(), nullptr);
    CHECK(errors.worst_o <= 1.0);
    CHECK(problem.run(nullptr) == o);
  }
}

TEST_CASE("threads that begin at once") {
  int count = 0;
  CHECK(hip().get_device_count(&count) == 0);
  if (count < kDevices) {
    MESSAGE("skipped: ", count, " devices, this test needs ", kDevices);
    return;
  }
  std::vector<Worker> workers(kThreads);
  std::vector<std::thread> threads;
  std::atomic<bool> go{false};
  for (int i = 0; i < kThreads; ++i) {
    workers[static_cast<size_t>(i)].id = i;
    threads.emplace_back([&, i] {
      while (!go) std::this_thread::yield();
      work(workers[static_cast<size_t>(i)]);
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  for (const Worker& worker : workers) check_results(worker);
}

}  // namespace

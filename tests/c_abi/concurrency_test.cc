// SPDX-License-Identifier: MIT OR Apache-2.0
// Eight threads on two devices, all starting at once with nothing loaded: every result is that of the double
// reference, and bit for bit that of the same call made by itself; every message stays with its thread.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "fmha_rocm.h"
#include "hip_calls.h"
#include "params.h"
#include "reference.h"

namespace {

constexpr int kThreads = 8;
constexpr int kDevices = 2;
constexpr int kCalls = 3;

hip_calls hip;

// CHECK counts without a lock, so threads keep their verdict to themselves.
struct Worker {
  int id = 0;
  std::string wrong;  // empty: all went well
  std::vector<std::vector<uint16_t>> results;

  void expect(bool condition, const char* what) {
    if (!condition && wrong.empty()) wrong = std::string(what) + " (" + fmha_last_error() + ")";
  }
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

  std::vector<uint16_t> run(void* stream, Worker& worker) {
    std::vector<uint16_t> o(q.size(), 0xffff);
    fmha_fwd_params p = params;
    p.q.data = upload(q, worker);
    p.k.data = upload(k, worker);
    p.v.data = upload(v, worker);
    p.o.data = upload(o, worker);
    worker.expect(fmha_fwd(&p, stream) == FMHA_OK, "fmha_fwd");
    worker.expect(hip.stream_synchronize(stream) == 0, "hipStreamSynchronize");
    worker.expect(hip.copy(o.data(), p.o.data, o.size() * 2, HIP_TO_HOST) == 0, "hipMemcpy");
    for (void* pointer : {p.q.data, p.k.data, p.v.data, p.o.data})
      worker.expect(hip.free_(pointer) == 0, "hipFree");
    return o;
  }

  fmha_fwd_params params{};
  std::vector<uint16_t> q, k, v;

 private:
  static void* upload(const std::vector<uint16_t>& data, Worker& worker) {
    void* pointer = nullptr;
    worker.expect(hip.malloc_(&pointer, data.size() * 2) == 0, "hipMalloc");
    worker.expect(hip.copy(pointer, data.data(), data.size() * 2, HIP_TO_DEVICE) == 0, "hipMemcpy");
    return pointer;
  }
};

// A failure whose text is this thread's own, which must survive what the others do meanwhile.
void fail_in_own_words(Worker& worker) {
  fmha_fwd_params p = Problem(worker.id, 0).params;
  p.batch = -1000 - worker.id;
  worker.expect(fmha_fwd(&p, nullptr) == FMHA_INVALID_ARGUMENT, "a bad call");
}

void check_own_words(Worker& worker) {
  const std::string words = "batch = -" + std::to_string(1000 + worker.id);
  worker.expect(std::strstr(fmha_last_error(), words.c_str()) != nullptr, "another thread's message");
}

void work(Worker& worker) {
  void* stream = nullptr;
  worker.expect(hip.set_device(worker.id % kDevices) == 0, "hipSetDevice");
  worker.expect(hip.stream_create(&stream) == 0, "hipStreamCreate");
  fail_in_own_words(worker);
  for (int call = 0; call < kCalls; ++call)
    worker.results.push_back(Problem(worker.id, call).run(stream, worker));
  check_own_words(worker);
  worker.expect(hip.stream_destroy(stream) == 0, "hipStreamDestroy");
}

void check_results(const Worker& worker) {
  check_add(&g_check_count);
  if (!worker.wrong.empty()) check_fail(__FILE__, __LINE__, "thread %d: %s", worker.id, worker.wrong.c_str());
  Worker alone;
  CHECK(hip.set_device(worker.id % kDevices) == 0);
  for (int call = 0; call < kCalls; ++call) {
    Problem problem(worker.id, call);
    const std::vector<uint16_t>& o = worker.results[static_cast<size_t>(call)];
    const reference_errors errors = reference_compare(&problem.params, problem.q.data(), problem.k.data(),
                                                      problem.v.data(), o.data(), nullptr);
    CHECK(errors.worst_o <= 1.0);
    CHECK(problem.run(nullptr, alone) == o);
  }
  CHECK(alone.wrong.empty());
}

}  // namespace

int main() {
  if (!hip_open(&hip)) return 1;
  int count = 0;
  CHECK(hip.get_device_count(&count) == 0);
  if (count < kDevices) {
    std::fprintf(stderr, "skipped: %d devices, this test needs %d\n", count, kDevices);
    return 77;
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
  return check_result();
}

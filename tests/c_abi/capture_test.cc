// SPDX-License-Identifier: MIT OR Apache-2.0
// A runtime that captures graphs relies on this: after fmha_fwd_prepare, fmha_fwd under capture is one node,
// and its replays compute on what the same memory holds then. Unprepared, a call under capture is refused or
// loses the capture, and never runs something else.
#include <cstdint>
#include <vector>

#include "fmha_rocm.h"
#include "on_device.h"
#include "params.h"
#include "reference.h"
#include "status.h"

namespace {

constexpr int kGlobalMode = 0;
constexpr int kReplays = 3;

struct {
  int (*begin)(void* stream, int mode);
  int (*end)(void* stream, void** graph);
  int (*nodes)(void* graph, void** nodes, size_t* count);
  int (*instantiate)(void** exec, void* graph, void** error_node, char* log, size_t bytes);
  int (*launch)(void* exec, void* stream);
  int (*destroy_exec)(void* exec);
  int (*destroy)(void* graph);
} graphs;

bool bind_graphs() {
  void* library = dlopen(fmha_hip_runtime_path(), RTLD_NOW);
  return hip_bind(library, "hipStreamBeginCapture", &graphs.begin) &&
         hip_bind(library, "hipStreamEndCapture", &graphs.end) &&
         hip_bind(library, "hipGraphGetNodes", &graphs.nodes) &&
         hip_bind(library, "hipGraphInstantiate", &graphs.instantiate) &&
         hip_bind(library, "hipGraphLaunch", &graphs.launch) &&
         hip_bind(library, "hipGraphExecDestroy", &graphs.destroy_exec) &&
         hip_bind(library, "hipGraphDestroy", &graphs.destroy);
}

class Problem {
 public:
  Problem(fmha_dtype dtype, int64_t hdim, fmha_mask mask) {
    params = test_params(dtype, TEST_BSHD, 2, 70, 190, 4, 2, hdim);
    params.mask = mask;
    for (fmha_tensor* t : {&params.q, &params.o})
      t->data = allocate(elements(params.seqlen_q, params.nhead_q));
    for (fmha_tensor* t : {&params.k, &params.v})
      t->data = allocate(elements(params.seqlen_k, params.nhead_k));
  }
  ~Problem() {
    for (const fmha_tensor& t : {params.q, params.k, params.v, params.o}) CHECK(hip().free_(t.data) == 0);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  void new_data(uint32_t seed) {
    fill(&q_, params.q.data, elements(params.seqlen_q, params.nhead_q), seed);
    fill(&k_, params.k.data, elements(params.seqlen_k, params.nhead_k), seed + 1000);
    fill(&v_, params.v.data, elements(params.seqlen_k, params.nhead_k), seed + 2000);
  }
  std::vector<uint16_t> output() const {
    std::vector<uint16_t> o(elements(params.seqlen_q, params.nhead_q));
    CHECK(hip().copy(o.data(), params.o.data, o.size() * 2, HIP_TO_HOST) == 0);
    return o;
  }
  double worst(const std::vector<uint16_t>& o) const {
    return reference_compare(&params, q_.data(), k_.data(), v_.data(), o.data(), nullptr).worst_o;
  }

  fmha_fwd_params params{};

 private:
  size_t elements(int64_t seqlen, int64_t heads) const {
    return static_cast<size_t>(params.batch * seqlen * heads * params.hdim_q);
  }
  static void* allocate(size_t count) {
    void* p = nullptr;
    CHECK(hip().malloc_(&p, count * 2) == 0);
    return p;
  }
  void fill(std::vector<uint16_t>* host, void* device, size_t count, uint32_t seed) const {
    host->resize(count);
    reference_fill(params.dtype, seed, host->data(), count);
    CHECK(hip().copy(device, host->data(), count * 2, HIP_TO_DEVICE) == 0);
  }
  std::vector<uint16_t> q_, k_, v_;
};

void* capture(const Problem& problem, void* stream) {
  void *graph = nullptr, *exec = nullptr;
  size_t nodes = 0;
  CHECK(graphs.begin(stream, kGlobalMode) == 0);
  CHECK_OK(fmha_fwd(&problem.params, stream));
  CHECK(graphs.end(stream, &graph) == 0);
  CHECK(graphs.nodes(graph, nullptr, &nodes) == 0);
  CHECK(nodes == 1);
  CHECK(graphs.instantiate(&exec, graph, nullptr, nullptr, 0) == 0);
  CHECK(graphs.destroy(graph) == 0);
  return exec;
}

void replays_compute_on_new_data(fmha_dtype dtype, int64_t hdim, fmha_mask mask, void* stream) {
  CAPTURE(dtype);
  Problem problem(dtype, hdim, mask);
  CHECK_OK(fmha_fwd_prepare(&problem.params));
  void* exec = capture(problem, stream);
  std::vector<uint16_t> before;
  for (int i = 0; i < kReplays; ++i) {
    problem.new_data(static_cast<uint32_t>(10 * i + 1));
    CHECK(graphs.launch(exec, stream) == 0);
    CHECK(hip().stream_synchronize(stream) == 0);
    const std::vector<uint16_t> replayed = problem.output();
    CHECK(problem.worst(replayed) <= 1.0);
    CHECK(replayed != before);
    CHECK_OK(fmha_fwd(&problem.params, stream));
    CHECK(hip().stream_synchronize(stream) == 0);
    CHECK(problem.output() == replayed);  // bit for bit what the call itself computes
    before = replayed;
  }
  CHECK(graphs.destroy_exec(exec) == 0);
}

TEST_CASE("replays compute on new data") {
  REQUIRE(bind_graphs());
  void* stream = nullptr;
  CHECK(hip().stream_create(&stream) == 0);
  replays_compute_on_new_data(FMHA_FP16, 128, FMHA_MASK_NONE, stream);
  replays_compute_on_new_data(FMHA_BF16, 64, FMHA_MASK_CAUSAL, stream);
  CHECK(hip().stream_destroy(stream) == 0);
}

}  // namespace

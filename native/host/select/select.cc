// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/select.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "error.h"
#include "select/fit.h"

namespace fmha {
namespace {

// What a key costs a wave, in the time that one more row costs it. Counted by the software device's profile,
// 128 rows by 1024 keys of heads of 64 and 128, in cycles of matrix and vector instructions, of the LDS
// shared by four waves, and of bytes from L2 at 64 a cycle: tiles of 128 and 64 rows by four waves (83576 and
// 66960 cycles at 128) and of 16 by one. Not measured on a card: it decides between tiles, which all compute
// the same.
constexpr int64_t kRowsOfAKey = 35;   // whatever the tile: LDS reads, the softmax's reductions, barriers
constexpr int64_t kRowsOfALoad = 36;  // K and V on their way to the LDS, shared by a workgroup's waves
constexpr int64_t kSimds = 4;
constexpr int64_t kWaveSize = 64;

// Kernels that differ in what can be compared at once lie together.
constexpr size_t kKeys = 2 * 4 * 2 * 3 * 2 * 2;

constexpr size_t key_of(Arch arch, DType dtype, bool group, Bias bias, bool softcap, bool dropout) {
  size_t key = static_cast<size_t>(arch);
  key = key * 4 + static_cast<size_t>(dtype);
  key = key * 2 + static_cast<size_t>(group);
  key = key * 3 + static_cast<size_t>(bias);
  key = key * 2 + static_cast<size_t>(softcap);
  return key * 2 + static_cast<size_t>(dropout);
}

size_t key_of(const Kernel& k) {
  return key_of(k.arch, k.dtype, k.fwd.group, k.fwd.bias, k.fwd.softcap, k.fwd.dropout);
}

// The catalogue by key: a full set has more than a thousand kernels, of which a call looks at some ten.
class Index {
 public:
  Index() : kernels_(std::make_unique<const Kernel*[]>(kKernelCount)) {
    for_each_kernel([&](const Kernel& k) { ++ends_[key_of(k)]; });
    size_t end = 0;
    for (size_t& count : ends_) end += std::exchange(count, end);
    // Each entry is the beginning of its kernels now, and their end once they are in, in the table's order.
    for_each_kernel([&](const Kernel& k) { kernels_[ends_[key_of(k)]++] = &k; });
  }

  std::span<const Kernel* const> of(size_t key) const {
    const size_t begin = key == 0 ? 0 : ends_[key - 1];
    return {&kernels_[begin], ends_[key] - begin};
  }

 private:
  // A tile that does not divide kTileRows could leave the spans that problem.cc has checked.
  template <typename Function>
  static void for_each_kernel(Function function) {
    for (size_t i = 0; i < kKernelCount; ++i) {
      if (kTileRows % kKernels[i].fwd.tile_m == 0 && kTileRows % kKernels[i].fwd.tile_n == 0)
        function(kKernels[i]);
    }
  }

  std::array<size_t, kKeys> ends_{};
  std::unique_ptr<const Kernel*[]> kernels_;
};

std::span<const Kernel* const> kernels_for(const Problem& p, Arch arch) {
  static const Index& index = *new Index;  // never destroyed: other threads may still be launching
  return index.of(key_of(arch, p.dtype, p.group, p.bias, p.softcap, p.dropout));
}

bool can_do(const Kernel& k, const Problem& p) { return unmet_needs(k, p) == 0 && fits_grid(k, p); }

// Rounds of workgroups over the device, a wave on each SIMD at a time, times what a wave takes a key. Tall
// tiles read K and V less often; short ones, and those of fewer waves, fill a device that a small problem
// leaves idle, and waste less on few queries.
int64_t time_of(const Kernel& k, const Problem& p, int compute_units) {
  const int64_t waves = k.block_size / kWaveSize;
  const int64_t workgroups = tiles_of(k, p) * p.args.nhead_q * p.batch;
  const int64_t at_once = compute_units * kSimds;
  const int64_t rounds = workgroups * waves <= at_once ? 1 : ceil_div(workgroups * waves, at_once);
  return rounds * ((k.fwd.tile_m + kRowsOfALoad) / waves + kRowsOfAKey);
}

// The less the better, from left to right.
using Cost = std::tuple<int, int64_t, int, const Kernel*>;

// 1. The smallest tile that holds both head dims: the rest of it is computed for nothing.
// 2. The estimate of time, which is about the heights of tiles.
// 3. What is checked in the loop for nothing: the mask costs most (d128: 653 VALU instructions a step with
//    it, 551 with padded keys, 359 with neither), head dims least.
// 4. The catalogue's order, which names the better of two pipelines first.
Cost cost_of(const Kernel& k, const Problem& p, int compute_units) {
  const int checks = (k.fwd.mask ? 4 : 0) + (k.fwd.pad ? 2 : 0) + (k.fwd.hdim_step != 0 ? 1 : 0);
  return {k.fwd.hdim_q + k.fwd.hdim_v, time_of(k, p, compute_units), checks, &k};
}

// The cheapest of the kernels that can do the problem and cost more than `after`; nullptr if there is none.
const Kernel* cheapest(std::span<const Kernel* const> kernels, const Problem& p, int compute_units,
                       const Cost& after, Cost& best) {
  const Kernel* chosen = nullptr;
  for (const Kernel* k : kernels) {
    // Head dims alone rule out most: too small, or larger than need be.
    if (k->fwd.hdim_q < p.args.hdim_q || k->fwd.hdim_v < p.args.hdim_v) continue;
    if (chosen != nullptr && k->fwd.hdim_q + k->fwd.hdim_v > std::get<0>(best)) continue;
    if (!can_do(*k, p)) continue;
    const Cost cost = cost_of(*k, p, compute_units);
    if (cost <= after || (chosen != nullptr && cost >= best)) continue;
    best = cost;
    chosen = k;
  }
  return chosen;
}

const Cost kNothing{-1, 0, 0, nullptr};

}  // namespace

const Kernel* find_kernel(const Problem& problem, const Target& target) {
  if (problem.kernel != 0) return list_candidates(problem, target).kernel;
  Cost cost{};
  const Kernel* best =
      cheapest(kernels_for(problem, target.arch), problem, target.compute_units, kNothing, cost);
  if (best == nullptr) fail_unsupported(problem, target.arch);
  return best;
}

Candidates list_candidates(const Problem& problem, const Target& target) {
  const std::span<const Kernel* const> kernels = kernels_for(problem, target.arch);
  const auto count = static_cast<int>(
      std::count_if(kernels.begin(), kernels.end(), [&](const Kernel* k) { return can_do(*k, problem); }));
  if (count == 0) fail_unsupported(problem, target.arch);
  const int number = std::max(problem.kernel, 1);
  if (number > count) {
    fail(FMHA_UNSUPPORTED,
         "kernel = %d: expected 0 (the library's choice) to %d, the candidates for this problem",
         problem.kernel, count);
  }
  // Without an array to sort: this may run while a stream is captured, and allocates nothing.
  Cost cost = kNothing;
  const Kernel* chosen = nullptr;
  for (int i = 0; i < number; ++i) {
    const Cost after = cost;
    chosen = cheapest(kernels, problem, target.compute_units, after, cost);
  }
  return {chosen, number, count};
}

// CK's FmhaFwdKernel::GridSize: one workgroup a head, a tile of queries (times tiles of V columns), a batch.
// With lengths in use of the keys it has batches before tiles.
Grid grid_of(const Kernel& kernel, const Problem& problem) {
  if (problem.empty) return {0, 0, 0};
  const auto heads = static_cast<uint32_t>(problem.args.nhead_q);
  const auto tiles = static_cast<uint32_t>(tiles_of(kernel, problem));
  const auto batch = static_cast<uint32_t>(problem.batch);
  if (problem.args.used_k != nullptr) return {heads, batch, tiles};
  return {heads, tiles, batch};
}

}  // namespace fmha

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select.h"

#include <algorithm>
#include <cstdlib>

#include "error.h"
#include "text.h"

namespace fmha {
namespace {

// HIP promises no more than this in y and z (hipDeviceAttributeMaxGridDimY on AMD devices is 65536).
constexpr int64_t kMaxGridYZ = 65535;
// A launch counts work-items, not workgroups, in 32 bits.
constexpr int64_t kMaxWorkItemsX = UINT32_MAX;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool same_head_dims(const Kernel& k, const Problem& p) {
  return k.hdim_q == p.args.hdim_q && k.hdim_v == p.args.hdim_v;
}

bool same_type(const Kernel& k, const Problem& p, Arch arch) {
  return k.arch == arch && k.family == Family::kFwd && k.dtype == p.dtype;
}

// An unpadded kernel does not check keys against seqlen_k, so its last tile of keys must be whole, and it
// enters its loop over the keys unconditionally, so there must be one. Rows of queries are checked by every
// kernel.
bool fits_unpadded(const Kernel& k, const Problem& p) {
  return p.args.seqlen_k > 0 && p.args.seqlen_k % k.tile_n == 0;
}

// A masked kernel does an unmasked problem too, with both sides of its window unlimited.
bool can_do(const Kernel& k, const Problem& p, Arch arch) {
  return same_type(k, p, arch) && same_head_dims(k, p) && (k.mask || !p.masked) &&
         (k.pad || fits_unpadded(k, p)) && kTileRows % k.tile_m == 0 && kTileRows % k.tile_n == 0;
}

// Of those that can, the one that checks least in its loop: no mask before no padding, since the mask costs
// more instructions (facts measured on d128: 653 VALU a step with it, 359 without).
int cost_of(const Kernel& k) { return (k.mask ? 2 : 0) + (k.pad ? 1 : 0); }

template <typename Predicate>
bool any_kernel(Predicate predicate) {
  return std::any_of(kKernels, kKernels + kKernelCount, predicate);
}

[[noreturn]] void fail_for_type(const Problem& p, Arch arch) {
  ItemList archs, dtypes;
  for (const ArchInfo& info : kArchs) {
    if (any_kernel([&](const Kernel& k) { return k.arch == info.arch; })) archs.add(info.name);
  }
  for (const DTypeInfo& info : kDTypes) {
    if (any_kernel([&](const Kernel& k) { return k.arch == arch && k.dtype == info.dtype; })) {
      dtypes.add(info.name);
    }
  }
  if (dtypes.is_empty()) {
    fail(FMHA_UNSUPPORTED, "this build has no kernel for %s; it has kernels for: %s", arch_name(arch),
         archs.c_str());
  }
  fail(FMHA_UNSUPPORTED, "dtype = %s: this build has no such kernel for %s; it has: %s", dtype_name(p.dtype),
       arch_name(arch), dtypes.c_str());
}

// How far a kernel's head dims are from those asked for.
int64_t distance(const Kernel& k, const Problem& p) {
  return std::llabs(int64_t{k.hdim_q} - p.args.hdim_q) + std::llabs(int64_t{k.hdim_v} - p.args.hdim_v);
}

[[noreturn]] void fail_for_head_dims(const Problem& p, Arch arch) {
  const Kernel* nearest = nullptr;
  const Kernel* nearest_above = nullptr;  // zero columns make the tensors fit this one
  for (size_t i = 0; i < kKernelCount; ++i) {
    const Kernel& k = kKernels[i];
    if (!same_type(k, p, arch)) continue;
    if (nearest == nullptr || distance(k, p) < distance(*nearest, p)) nearest = &k;
    if (k.hdim_q < p.args.hdim_q || k.hdim_v < p.args.hdim_v) continue;
    if (nearest_above == nullptr || distance(k, p) < distance(*nearest_above, p)) nearest_above = &k;
  }
  if (nearest == nullptr) fail_for_type(p, arch);
  if (nearest_above == nullptr) {
    fail(FMHA_UNSUPPORTED,
         "hdim_q = %d, hdim_v = %d: no %s kernel for %s; the largest near is hdim_q = %d, hdim_v = %d",
         p.args.hdim_q, p.args.hdim_v, dtype_name(p.dtype), arch_name(arch), nearest->hdim_q,
         nearest->hdim_v);
  }
  fail(FMHA_UNSUPPORTED,
       "hdim_q = %d, hdim_v = %d: no %s kernel for %s; the nearest is hdim_q = %d, hdim_v = %d, and columns "
       "of "
       "zeros make the tensors fit hdim_q = %d, hdim_v = %d",
       p.args.hdim_q, p.args.hdim_v, dtype_name(p.dtype), arch_name(arch), nearest->hdim_q, nearest->hdim_v,
       nearest_above->hdim_q, nearest_above->hdim_v);
}

[[noreturn]] void fail_for(const Problem& p, Arch arch) {
  for (size_t i = 0; i < kKernelCount; ++i) {
    if (!same_type(kKernels[i], p, arch) || !same_head_dims(kKernels[i], p)) continue;
    fail(FMHA_UNSUPPORTED,
         "%s, seqlen_q = %d, seqlen_k = %d: the %s kernels of this build for %s and hdim_q = %d do no such "
         "mask or "
         "no such lengths; %s (tiles of %d queries and %d keys, %s) comes nearest",
         p.masked ? "a mask" : "no mask", p.args.seqlen_q, p.args.seqlen_k, dtype_name(p.dtype),
         arch_name(arch), p.args.hdim_q, kKernels[i].name, kKernels[i].tile_m, kKernels[i].tile_n,
         kKernels[i].mask ? "any mask" : "no mask");
  }
  fail_for_head_dims(p, arch);
}

void check_grid(const Kernel& k, const Problem& p) {
  if (p.batch > kMaxGridYZ) {
    fail(FMHA_UNSUPPORTED, "batch = %d: one launch does at most %lld; split the batch", p.batch,
         static_cast<long long>(kMaxGridYZ));
  }
  if (ceil_div(p.args.seqlen_q, k.tile_m) * ceil_div(p.args.hdim_v, k.tile_nv) > kMaxGridYZ) {
    fail(FMHA_UNSUPPORTED, "seqlen_q = %d: one launch does at most %lld rows; split the queries",
         p.args.seqlen_q, static_cast<long long>(kMaxGridYZ * k.tile_m / ceil_div(p.args.hdim_v, k.tile_nv)));
  }
  if (int64_t{p.args.nhead_q} * k.block_size > kMaxWorkItemsX) {
    fail(FMHA_UNSUPPORTED, "nhead_q = %d: one launch does at most %lld", p.args.nhead_q,
         static_cast<long long>(kMaxWorkItemsX / k.block_size));
  }
}

}  // namespace

const Kernel& select_kernel(const Problem& problem, Arch arch) {
  const Kernel* best = nullptr;
  for (size_t i = 0; i < kKernelCount; ++i) {
    const Kernel& k = kKernels[i];
    if (can_do(k, problem, arch) && (best == nullptr || cost_of(k) < cost_of(*best))) best = &k;
  }
  if (best == nullptr) fail_for(problem, arch);
  check_grid(*best, problem);
  return *best;
}

// CK's FmhaFwdKernel::GridSize: one workgroup a head, a tile of queries (times tiles of V columns), a batch.
Grid grid_of(const Kernel& kernel, const Problem& problem) {
  if (problem.empty) return {0, 0, 0};
  const int64_t tiles =
      ceil_div(problem.args.seqlen_q, kernel.tile_m) * ceil_div(problem.args.hdim_v, kernel.tile_nv);
  return {static_cast<uint32_t>(problem.args.nhead_q), static_cast<uint32_t>(tiles),
          static_cast<uint32_t>(problem.batch)};
}

}  // namespace fmha

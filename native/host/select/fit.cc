// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/fit.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "error.h"

namespace fmha {
namespace {

// HIP promises no more than this in y and z (hipDeviceAttributeMaxGridDimY on AMD devices is 65536).
constexpr int64_t kMaxGridYZ = 65535;
// A launch counts work-items, not workgroups, in 32 bits.
constexpr int64_t kMaxWorkItemsX = UINT32_MAX;

constexpr uint32_t bit(Need need) { return 1U << static_cast<uint32_t>(need); }
constexpr uint32_t bit_if(bool unmet, Need need) { return unmet ? bit(need) : 0; }

bool holds(int16_t tile, int16_t step, int32_t hdim) {
  return hdim == tile || (step != 0 && hdim < tile && hdim % step == 0);
}

// An unpadded kernel does not check keys against seqlen_k, so its last tile of keys must be whole, and it
// enters its loop over the keys unconditionally, so there must be one. Rows of queries are checked by every
// kernel.
bool fits_lengths(const Kernel& k, const Problem& p) {
  if (k.fwd.pad) return true;
  if (p.group || p.args.seqlen_k == 0 || p.args.seqlen_k % k.fwd.tile_n != 0) return false;
  return p.bias != Bias::kElementwise || p.vector_bias;  // which it loads by vectors
}

const char* bias_words(Bias bias) {
  switch (bias) {
    case Bias::kNone:
      return "neither bias nor alibi_slopes";
    case Bias::kElementwise:
      return "bias";
    case Bias::kAlibi:
      return "alibi_slopes";
  }
  return "unknown bias";
}

// What a kernel takes where it does not meet a need.
void add_terms(ItemList& terms, Need need, const Kernel& k) {
  switch (need) {
    case Need::kODType:
      return terms.add_format("o_dtype = %s", dtype_name(k.fwd.o_dtype));
    case Need::kHeadDims:
      if (k.fwd.hdim_step == 0)
        return terms.add_format("hdim_q = %d and hdim_v = %d", k.fwd.hdim_q, k.fwd.hdim_v);
      return terms.add_format("hdim_q up to %d and hdim_v up to %d, multiples of %d", k.fwd.hdim_q,
                              k.fwd.hdim_v, k.fwd.hdim_step);
    case Need::kGroup:
      return terms.add(k.fwd.group ? "cu_seqlens_q and cu_seqlens_k alone" : "no cu_seqlens");
    case Need::kMask:
      return terms.add("no mask");
    case Need::kLength:
      terms.add_format("seqlen_k in multiples of %d, not 0", k.fwd.tile_n);
      if (k.fwd.bias == Bias::kElementwise) terms.add("a bias aligned to 4 elements, strides included");
      return;
    case Need::kBias:
      return terms.add(bias_words(k.fwd.bias));
    case Need::kSoftcap:
      return terms.add(k.fwd.softcap ? "softcap above 0" : "softcap = 0");
    case Need::kDropout:
      return terms.add(k.fwd.dropout ? "p_drop above 0" : "p_drop = 0");
  }
}

// What a problem asks for beyond the plainest one.
void add_wishes(ItemList& wishes, const Problem& p) {
  wishes.add_format("hdim_q = %d, hdim_v = %d", p.args.hdim_q, p.args.hdim_v);
  if (p.o_dtype != p.dtype) wishes.add_format("o_dtype = %s", dtype_name(p.o_dtype));
  if (p.group) wishes.add("cu_seqlens");
  if (p.masked) wishes.add("a mask");
  if (p.bias != Bias::kNone) wishes.add(bias_words(p.bias));
  if (p.softcap) wishes.add("softcap");
  if (p.dropout) wishes.add("dropout");
  if (!p.group) wishes.add_format("seqlen_k = %d", p.args.seqlen_k);
}

bool same_type(const Kernel& k, const Problem& p, Arch arch) {
  return k.arch == arch && k.family == Family::kFwd && k.dtype == p.dtype;
}

template <typename Predicate>
bool any_kernel(Predicate predicate) {
  return std::any_of(kKernels, kKernels + kKernelCount, predicate);
}

[[noreturn]] void fail_for_type(const Problem& p, Arch arch) {
  ItemList archs, dtypes;
  for (const ArchInfo& info : kArchs) {
    if (any_kernel([&](const Kernel& k) { return k.arch == info.arch; })) archs.add(info.name);
  }
  for (size_t i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (any_kernel([&](const Kernel& k) { return k.arch == arch && k.dtype == dtype; })) {
      dtypes.add(dtype_name(dtype));
    }
  }
  if (dtypes.is_empty()) {
    fail(FMHA_UNSUPPORTED, "this build has no kernel for %s; it has kernels for: %s", arch_name(arch),
         archs.c_str());
  }
  fail(FMHA_UNSUPPORTED, "dtype = %s: this build has no such kernel for %s; it has: %s", dtype_name(p.dtype),
       arch_name(arch), dtypes.c_str());
}

// The most that a launch of any kernel for the problem does.
template <typename Limit>
int64_t best_limit(const Problem& p, Arch arch, Limit limit) {
  int64_t best = 0;
  for (size_t i = 0; i < kKernelCount; ++i) {
    const Kernel& k = kKernels[i];
    if (same_type(k, p, arch) && unmet_needs(k, p) == 0) best = std::max<int64_t>(best, limit(k));
  }
  return best;
}

[[noreturn]] void fail_for_grid(const Problem& p, Arch arch) {
  if (p.batch > kMaxGridYZ) {
    fail(FMHA_UNSUPPORTED, "batch = %d: one launch does at most %lld; split the batch", p.batch,
         static_cast<long long>(kMaxGridYZ));
  }
  const int64_t rows = best_limit(p, arch, [&](const Kernel& k) {
    return kMaxGridYZ / ceil_div(p.args.hdim_v, k.fwd.tile_nv) * k.fwd.tile_m;
  });
  if (p.args.seqlen_q > rows) {
    fail(FMHA_UNSUPPORTED, "seqlen_q = %d: one launch does at most %lld rows; split the queries",
         p.args.seqlen_q, static_cast<long long>(rows));
  }
  const int64_t heads = best_limit(p, arch, [](const Kernel& k) { return kMaxWorkItemsX / k.block_size; });
  fail(FMHA_UNSUPPORTED, "nhead_q = %d: one launch does at most %lld", p.args.nhead_q,
       static_cast<long long>(heads));
}

// How far a kernel is from doing a problem: first in how many ways, then in its head dims. One whose head
// dims hold the problem's counts as nearer, since columns of zeros make the tensors fit.
int64_t distance(const Kernel& k, const Problem& p) {
  const uint32_t unmet = unmet_needs(k, p);
  const int64_t dims =
      std::llabs(int64_t{k.fwd.hdim_q} - p.args.hdim_q) + std::llabs(int64_t{k.fwd.hdim_v} - p.args.hdim_v);
  const bool holds_dims = k.fwd.hdim_q >= p.args.hdim_q && k.fwd.hdim_v >= p.args.hdim_v;
  // Of two that are as near, the one that takes more head dims says more.
  return (int64_t{std::popcount(unmet)} << 40) + (holds_dims ? 0 : int64_t{1} << 34) + 2 * dims +
         (k.fwd.hdim_step == 0 ? 1 : 0);
}

}  // namespace

uint32_t unmet_needs(const Kernel& k, const Problem& p) {
  return bit_if(k.fwd.o_dtype != p.o_dtype, Need::kODType) |
         bit_if(!holds(k.fwd.hdim_q, k.fwd.hdim_step, p.args.hdim_q) ||
                    !holds(k.fwd.hdim_v, k.fwd.hdim_step, p.args.hdim_v),
                Need::kHeadDims) |
         bit_if(k.fwd.group != p.group, Need::kGroup) |
         // A masked kernel does an unmasked problem too, with both sides of its window unlimited.
         bit_if(p.masked && !k.fwd.mask, Need::kMask) | bit_if(!fits_lengths(k, p), Need::kLength) |
         bit_if(k.fwd.bias != p.bias, Need::kBias) | bit_if(k.fwd.softcap != p.softcap, Need::kSoftcap) |
         bit_if(k.fwd.dropout != p.dropout, Need::kDropout);
}

bool fits_grid(const Kernel& k, const Problem& p) {
  return p.batch <= kMaxGridYZ && tiles_of(k, p) <= kMaxGridYZ &&
         int64_t{p.args.nhead_q} * k.block_size <= kMaxWorkItemsX;
}

void fail_unsupported(const Problem& p, Arch arch) {
  const Kernel* nearest = nullptr;
  for (size_t i = 0; i < kKernelCount; ++i) {
    const Kernel& k = kKernels[i];
    if (!same_type(k, p, arch)) continue;
    if (nearest == nullptr || distance(k, p) < distance(*nearest, p)) nearest = &k;
  }
  if (nearest == nullptr) fail_for_type(p, arch);
  const uint32_t unmet = unmet_needs(*nearest, p);
  if (unmet == 0) fail_for_grid(p, arch);
  ItemList wishes, terms;
  add_wishes(wishes, p);
  for (int i = 0; i < kNeeds; ++i) {
    const auto need = static_cast<Need>(i);
    if ((unmet & bit(need)) != 0) add_terms(terms, need, *nearest);
  }
  const bool wider = (unmet & bit(Need::kHeadDims)) != 0 && nearest->fwd.hdim_q >= p.args.hdim_q &&
                     nearest->fwd.hdim_v >= p.args.hdim_v;
  fail(FMHA_UNSUPPORTED, "%s: no %s kernel of this build for %s does that; the nearest, %s, takes %s%s",
       wishes.c_str(), dtype_name(p.dtype), arch_name(arch), nearest->name, terms.c_str(),
       wider ? " (columns of zeros make the tensors fit)" : "");
}

}  // namespace fmha

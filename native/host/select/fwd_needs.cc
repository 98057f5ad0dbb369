// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/fwd_needs.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdlib>

#include "error.h"
#include "origins/by_name/fwd.h"
#include "select/unsupported.h"
#include "text.h"

namespace fmha {
namespace {

constexpr uint32_t bit(Need need) { return 1U << static_cast<uint32_t>(need); }
constexpr uint32_t bit_if(bool unmet, Need need) { return unmet ? bit(need) : 0; }

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

// Adds what a kernel takes where it does not meet a need.
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
      return terms.add(k.fwd.group ? "only cu_seqlens_q and cu_seqlens_k" : "no cu_seqlens");
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
    case Need::kSinks:
      return terms.add("no sinks");
    case Need::kLimits:
      return;  // whose reason is told instead, unless it is one of the needs above
  }
}

// Adds what a problem asks for beyond the plainest one.
void add_wishes(ItemList& wishes, const FwdProblem& p, bool needs_mask) {
  wishes.add_format("hdim_q = %" PRId64 ", hdim_v = %" PRId64, p.hdim_q, p.hdim_v);
  if (p.o_dtype != p.dtype) wishes.add_format("o_dtype = %s", dtype_name(p.o_dtype));
  if (p.group) wishes.add("cu_seqlens");
  if (needs_mask) wishes.add("a mask");
  if (bias_of(p) != Bias::kNone) wishes.add(bias_words(bias_of(p)));
  if (p.softcap != 0.0F) wishes.add("softcap");
  if (p.dropout.is_on()) wishes.add("dropout");
  if (p.has_sinks) wishes.add("sinks");
  if (!p.group) wishes.add_format("seqlen_k = %" PRId64, p.seqlen_k);
}

// Kernels of an origin that this library does not know make no offer. Nor do prebuilt ones, which do nothing
// that others do not.
bool same_type(const Kernel& k, const FwdProblem& p, Arch arch) {
  return k.arch == arch && !fwd_is_prebuilt(k.origin) && k.family == Family::kFwd && k.dtype == p.dtype &&
         static_cast<size_t>(k.origin) < kOriginCount;
}

// Tells whether another build has a kernel for the problem.
Elsewhere elsewhere(const FwdProblem& p, const FwdOffers& offers, Arch arch) {
  return Elsewhere([&](const Kernel& k) { return same_type(k, p, arch) && unmet_needs(k, p, offers) == 0; });
}

// The most that a launch of any kernel for the problem does.
template <typename Limit>
int64_t best_limit(const FwdProblem& p, const FwdOffers& offers, Arch arch, Limit limit) {
  int64_t best = 0;
  for (size_t i = 0; i < kKernelCount; ++i) {
    const Kernel& k = kKernels[i];
    if (same_type(k, p, arch) && unmet_needs(k, p, offers) == 0) best = std::max<int64_t>(best, limit(k));
  }
  return best;
}

[[noreturn]] void raise_for_grid(const FwdProblem& p, const FwdOffers& offers, Arch arch) {
  const int64_t rows = best_limit(p, offers, arch, [&](const Kernel& k) {
    return kMaxGridYZ / ceil_div(p.hdim_v, k.fwd.tile_nv) * k.fwd.tile_m;
  });
  if (p.seqlen_q > rows) {
    raise(FMHA_UNSUPPORTED,
          "seqlen_q = %" PRId64 ": one launch does at most %" PRId64 " rows; split the queries", p.seqlen_q,
          rows);
  }
  const int64_t heads =
      best_limit(p, offers, arch, [](const Kernel& k) { return kMaxWorkItemsX / k.block_size; });
  raise(FMHA_UNSUPPORTED, "nhead_q = %" PRId64 ": one launch does at most %" PRId64, p.nhead_q, heads);
}

// How far a kernel is from doing a problem: first in how many ways, a limit being half of one, then in its
// head dims. One whose head dims hold the problem's counts as nearer, since columns of zeros make the tensors
// fit.
int64_t distance(const Kernel& k, const FwdProblem& p, const FwdOffers& offers) {
  const uint32_t unmet = unmet_needs(k, p, offers);
  const int64_t dims = std::llabs(k.fwd.hdim_q - p.hdim_q) + std::llabs(k.fwd.hdim_v - p.hdim_v);
  const bool holds_dims = k.fwd.hdim_q >= p.hdim_q && k.fwd.hdim_v >= p.hdim_v;
  // If two are as near, the one that takes more head dims says more.
  const int64_t ways = 2 * std::popcount(unmet) - ((unmet & bit(Need::kLimits)) != 0 ? 1 : 0);
  return (ways << 40) + (holds_dims ? 0 : int64_t{1} << 34) + 2 * dims + (k.fwd.hdim_step == 0 ? 1 : 0);
}

}  // namespace

uint32_t unmet_needs(const Kernel& k, const FwdProblem& p, const FwdOffers& offers) {
  const FwdRow& row = k.fwd;
  const FwdOffers::Offer& offer = offers.of(k.origin);
  return bit_if(row.o_dtype != p.o_dtype, Need::kODType) | bit_if(!holds_dims(row, p), Need::kHeadDims) |
         bit_if(row.group != p.group, Need::kGroup) | bit_if(offer.needs_mask && !row.mask, Need::kMask) |
         bit_if(!fits_lengths(row, p, offer), Need::kLength) | bit_if(row.bias != bias_of(p), Need::kBias) |
         bit_if(row.softcap != (p.softcap != 0.0F), Need::kSoftcap) |
         bit_if(row.dropout != p.dropout.is_on(), Need::kDropout) |
         bit_if(!fits_sinks(p, offer), Need::kSinks) | bit_if(!offer.possible, Need::kLimits);
}

void raise_fwd_unsupported(const FwdProblem& p, const FwdOffers& offers, Arch arch) {
  const Kernel* nearest = nearest_kernel([&](const Kernel& k) { return same_type(k, p, arch); },
                                         [&](const Kernel& k) { return distance(k, p, offers); });
  if (nearest == nullptr) {
    raise_for_type({Family::kFwd, "kernel", "dtype"}, p.dtype, arch, elsewhere(p, offers, arch));
  }
  const uint32_t unmet = unmet_needs(*nearest, p, offers);
  if (unmet == 0) raise_for_grid(p, offers, arch);
  if (Refusal why;
      (unmet & bit(Need::kLimits)) != 0 && !fwd_within_limits(nearest->origin, p, why) && why.has_reason()) {
    why.raise(elsewhere(p, offers, arch).text);
  }
  ItemList wishes, terms;
  add_wishes(wishes, p, offers.of(nearest->origin).needs_mask);
  for (int i = 0; i < kNeedCount; ++i) {
    const auto need = static_cast<Need>(i);
    if ((unmet & bit(need)) != 0) add_terms(terms, need, *nearest);
  }
  const bool wider = (unmet & bit(Need::kHeadDims)) != 0 && nearest->fwd.hdim_q >= p.hdim_q &&
                     nearest->fwd.hdim_v >= p.hdim_v;
  raise(FMHA_UNSUPPORTED, "%s: no %s kernel of this build for %s does that; the nearest, %s, takes %s%s%s",
        wishes.c_str(), dtype_name(p.dtype), arch_name(arch), nearest->name, terms.c_str(),
        wider ? " (columns of zeros make the tensors fit)" : "", elsewhere(p, offers, arch).text);
}

}  // namespace fmha

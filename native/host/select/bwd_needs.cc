// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/bwd_needs.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdlib>

#include "error.h"
#include "origins/by_name/bwd.h"
#include "plan/bwd_workspace.h"
#include "select/fwd_needs.h"
#include "select/unsupported.h"
#include "text.h"

namespace fmha {
namespace {

constexpr uint32_t bit(BwdNeed need) { return 1U << static_cast<uint32_t>(need); }
constexpr uint32_t bit_if(bool unmet, BwdNeed need) { return unmet ? bit(need) : 0; }

bool holds_dims(const BwdRow& row, const FwdProblem& f) {
  return std::min(f.hdim_q, f.hdim_v) >= row.hdim_least && holds(row.hdim_q, row.hdim_step, f.hdim_q) &&
         holds(row.hdim_v, row.hdim_step, f.hdim_v) && (!row.equal_hdims || f.hdim_q == f.hdim_v);
}

// Both causal masks are the same for squares: so are all of packed sequences with one array of their starts.
bool holds_mask(BwdMask mask, const FwdProblem& f) {
  const bool causal = f.mask.left == Mask::kUnlimited && f.mask.right == 0;
  const bool square = f.group ? f.cu_seqlens_q == f.cu_seqlens_k : f.seqlen_q == f.seqlen_k;
  switch (mask) {
    case BwdMask::kAny:
      return true;
    case BwdMask::kNone:
      return !f.mask.hides();
    case BwdMask::kTopLeft:
      return causal && (square || f.mask.top_left);
  }
  return false;
}

bool holds_layout(BwdLayout layout, const FwdProblem& f) {
  return layout == BwdLayout::kAny || (layout == BwdLayout::kGroup) == f.group;
}

bool differs(const BwdRow& row, bool has, bool wanted) { return wanted ? !has : has && !row.optional; }

// Adds what a kernel takes where it does not meet a need.
void add_terms(ItemList& terms, BwdNeed need, const BwdRow& row) {
  switch (need) {
    case BwdNeed::kHeadDims:
      if (row.hdim_step == 0)
        return terms.add_format("fwd->hdim_q = %d and fwd->hdim_v = %d", row.hdim_q, row.hdim_v);
      if (row.equal_hdims)
        return terms.add_format("fwd->hdim_q = fwd->hdim_v up to %d, multiples of %d", row.hdim_q,
                                row.hdim_step);
      return terms.add_format("fwd->hdim_q up to %d and fwd->hdim_v up to %d, multiples of %d", row.hdim_q,
                              row.hdim_v, row.hdim_step);
    case BwdNeed::kMask:
      return terms.add_format("a mask that is %s", bwdmask_name(row.mask));
    case BwdNeed::kLayout:
      return terms.add(row.layout == BwdLayout::kGroup ? "packed sequences" : "no packed sequences");
    case BwdNeed::kAlibi:
      return terms.add(row.alibi ? "fwd->alibi_slopes" : "no fwd->alibi_slopes");
    case BwdNeed::kBias:
      return terms.add(row.bias ? "fwd->bias" : "no fwd->bias");
    case BwdNeed::kDbias:
      return terms.add(row.dbias ? "dbias" : "no dbias");
    case BwdNeed::kSoftcap:
      return terms.add(row.softcap ? "fwd->softcap above 0" : "fwd->softcap = 0");
    case BwdNeed::kDropout:
      return terms.add(row.dropout ? "fwd->p_drop above 0" : "fwd->p_drop = 0");
    case BwdNeed::kDeterministic:
      return terms.add("deterministic = 0");
    case BwdNeed::kLimits:
      return;  // whose reason is told instead
  }
}

// Adds what a problem asks for beyond the plainest one.
void add_wishes(ItemList& wishes, const BwdProblem& p) {
  const FwdProblem& f = p.fwd;
  wishes.add_format("fwd->hdim_q = %" PRId64 ", fwd->hdim_v = %" PRId64, f.hdim_q, f.hdim_v);
  if (f.has_alibi) wishes.add("fwd->alibi_slopes");
  if (f.has_bias) wishes.add("fwd->bias");
  if (p.dbias.touched) wishes.add("dbias");
  if (f.softcap != 0.0F) wishes.add("fwd->softcap");
  if (f.dropout.is_on()) wishes.add("dropout");
  if (p.deterministic) wishes.add("deterministic = 1");
}

bool same_type(const Kernel& k, const BwdProblem& p, Arch arch) {
  return k.arch == arch && k.family == Family::kBwd && k.dtype == p.fwd.dtype;
}

// Tells whether another build has a kernel for the problem.
Elsewhere elsewhere(const BwdProblem& p, const BwdOffers& offers, Arch arch) {
  return Elsewhere([&](const Kernel& k) { return same_type(k, p, arch) && unmet_needs(k, p, offers) == 0; });
}

bool is_wider(const BwdRow& row, const FwdProblem& f) {
  return row.hdim_q >= f.hdim_q && row.hdim_v >= f.hdim_v;
}

// Compares as forward's choice does: first in how many ways, then in its head dims.
int64_t distance(const Kernel& k, const BwdProblem& p, const BwdOffers& offers) {
  const int64_t dims = std::llabs(k.bwd.hdim_q - p.fwd.hdim_q) + std::llabs(k.bwd.hdim_v - p.fwd.hdim_v);
  return (int64_t{std::popcount(unmet_needs(k, p, offers))} << 40) +
         (is_wider(k.bwd, p.fwd) ? 0 : int64_t{1} << 34) + dims;
}

}  // namespace

uint32_t unmet_needs(const Kernel& k, const BwdProblem& p, const BwdOffers& offers) {
  return bit_if(!holds_dims(k.bwd, p.fwd), BwdNeed::kHeadDims) |
         bit_if(!holds_mask(k.bwd.mask, p.fwd), BwdNeed::kMask) |
         bit_if(!holds_layout(k.bwd.layout, p.fwd), BwdNeed::kLayout) |
         bit_if(differs(k.bwd, k.bwd.alibi, p.fwd.has_alibi), BwdNeed::kAlibi) |
         bit_if(differs(k.bwd, k.bwd.bias, p.fwd.has_bias), BwdNeed::kBias) |
         bit_if(differs(k.bwd, k.bwd.dbias, p.dbias.touched), BwdNeed::kDbias) |
         bit_if(differs(k.bwd, k.bwd.softcap, p.fwd.softcap != 0.0F), BwdNeed::kSoftcap) |
         bit_if(differs(k.bwd, k.bwd.dropout, p.fwd.dropout.is_on()), BwdNeed::kDropout) |
         bit_if(p.deterministic && sums_in_blocks(k), BwdNeed::kDeterministic) |
         bit_if(!offers.of(k.origin), BwdNeed::kLimits);
}

void raise_bwd_unsupported(const BwdProblem& p, const BwdOffers& offers, Arch arch) {
  const Kernel* nearest = nearest_kernel([&](const Kernel& k) { return same_type(k, p, arch); },
                                         [&](const Kernel& k) { return distance(k, p, offers); });
  if (nearest == nullptr) {
    raise_for_type({Family::kBwd, "backward kernel", "fwd->dtype"}, p.fwd.dtype, arch,
                   elsewhere(p, offers, arch));
  }
  const uint32_t unmet = unmet_needs(*nearest, p, offers);
  if (Refusal why; (unmet & bit(BwdNeed::kLimits)) != 0 && !bwd_within_limits(nearest->origin, p, why)) {
    // Other kernels, which this build does not have, may take it.
    why.raise(elsewhere(p, offers, arch).text);
  }
  ItemList wishes, terms;
  add_wishes(wishes, p);
  for (int i = 0; i < kBwdNeedCount; ++i) {
    const auto need = static_cast<BwdNeed>(i);
    if ((unmet & bit(need)) != 0) add_terms(terms, need, nearest->bwd);
  }
  const bool wider = (unmet & bit(BwdNeed::kHeadDims)) != 0 && is_wider(nearest->bwd, p.fwd);
  raise(FMHA_UNSUPPORTED,
        "%s: no %s backward kernel of this build for %s does that; the nearest, %s, takes %s%s%s",
        wishes.c_str(), dtype_name(p.fwd.dtype), arch_name(arch), nearest->name, terms.c_str(),
        wider ? " (columns of zeros make the tensors fit)" : "", elsewhere(p, offers, arch).text);
}

}  // namespace fmha

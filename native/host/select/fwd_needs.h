// SPDX-License-Identifier: MIT OR Apache-2.0
// The needs of a forward problem, one bit each, and the words for those that no kernel meets.
#pragma once

#include <cstdint>

#include "problem/fwd.h"
#include "select/fwd.h"

namespace fmha {

// A message tells them in this order.
enum class Need : uint8_t {
  kODType,
  kHeadDims,
  kGroup,
  kMask,
  kLength,
  kBias,
  kSoftcap,
  kDropout,
  kSinks,
  kLimits
};
inline constexpr int kNeedCount = static_cast<int>(Need::kLimits) + 1;

inline Bias bias_of(const FwdProblem& p) {
  return p.has_bias ? Bias::kElementwise : p.has_alibi ? Bias::kAlibi : Bias::kNone;
}

constexpr bool holds(int16_t tile, int16_t step, int64_t hdim) {
  return hdim == tile || (step != 0 && hdim < tile && is_multiple(hdim, step));
}

// An unpadded kernel does not check keys against seqlen_k, so its last tile of keys must be whole, and it
// enters its loop over the keys unconditionally, so there must be one. Every kernel checks rows of queries.
inline bool fits_lengths(const FwdRow& row, const FwdProblem& p, const FwdOffers::Offer& offer) {
  if (row.pad) return true;
  if (p.group || p.seqlen_k == 0 || !is_multiple(p.seqlen_k, row.tile_n)) return false;
  return !p.has_bias || offer.whole_bias;
}

inline bool holds_dims(const FwdRow& row, const FwdProblem& p) {
  return holds(row.hdim_q, row.hdim_step, p.hdim_q) && holds(row.hdim_v, row.hdim_step, p.hdim_v);
}

// A causal kernel does nothing else.
inline bool fits_mask(const FwdRow& row, const FwdOffers::Offer& offer) {
  return (row.mask || !offer.needs_mask) && (!row.causal || offer.needs_mask);
}

inline bool fits_sinks(const FwdProblem& p, const FwdOffers::Offer& offer) {
  return !p.has_sinks || offer.takes_sinks;
}

// Tells whether a kernel meets the needs that a key does not settle (see FwdFamily): the way of every call. A
// masked kernel does an unmasked problem too, with both sides of its window unlimited.
inline bool meets_unkeyed_needs(const Kernel& k, const FwdProblem& p, const FwdOffers& offers) {
  const FwdOffers::Offer& offer = offers.of(k.origin);
  return holds_dims(k.fwd, p) && k.fwd.o_dtype == p.o_dtype && fits_mask(k.fwd, offer) &&
         fits_lengths(k.fwd, p, offer) && fits_sinks(p, offer) && offer.possible;
}

// The needs of a problem that a kernel of its dtype does not meet; 0: it can do the problem.
uint32_t unmet_needs(const Kernel& kernel, const FwdProblem& problem, const FwdOffers& offers);

// Fails with UNSUPPORTED: says what no kernel does, and what comes nearest.
[[noreturn]] void raise_fwd_unsupported(const FwdProblem& problem, const FwdOffers& offers, Arch arch);

}  // namespace fmha

// SPDX-License-Identifier: MIT OR Apache-2.0
// A forward problem as CK's kernels get it: checked as mathematics and against CK's limits, then packed.
// Needs no device.
#pragma once

#include <cstring>

#include "args/fwd.h"
#include "error.h"
#include "origins/ck/fwd.h"
#include "problem/fwd.h"
#include "select/fwd.h"
#include "select/fwd_needs.h"

struct Checked {
  fmha::DType dtype, o_dtype;
  fmha::Bias bias;
  bool group, empty, masked, vector_bias, softcap, dropout;
  int64_t batch, nhead_k;
  int32_t kernel;
  fmha::FwdKernelParams args;
};

inline Checked checked_of(const fmha::FwdProblem& p, const fmha::FwdOffers& offers) {
  const fmha::FwdOffers::Offer& offer = offers.of(fmha::Origin::kCk);
  Checked checked{};
  checked.dtype = p.dtype;
  checked.o_dtype = p.o_dtype;
  checked.bias = fmha::bias_of(p);
  checked.group = p.group;
  checked.empty = p.empty;
  checked.masked = offer.needs_mask;
  checked.vector_bias = offer.whole_bias;
  checked.softcap = p.softcap != 0.0F;
  checked.dropout = p.dropout.is_on();
  checked.batch = p.batch;
  checked.nhead_k = p.nhead_k;
  checked.kernel = p.candidate;
  fmha::Plan plan;
  fmha::ck::fwd_add_steps(fmha::kKernels[0], p, plan);
  std::memcpy(&checked.args, plan[0].arguments.data(), sizeof checked.args);
  return checked;
}

// `out` may be nullptr.
inline fmha_status check_problem(const fmha_fwd_params* params, fmha::Pointers pointers, Checked* out) {
  return fmha::guard([&] {
    fmha::FwdProblem problem;
    fmha::make_fwd_problem(params, pointers, problem);
    fmha::FwdOffers offers;
    fmha::ask_fwd_origins(problem, offers);
    fmha::check_overlaps(problem);
    const Checked checked = checked_of(problem, offers);
    if (out != nullptr) *out = checked;
  });
}

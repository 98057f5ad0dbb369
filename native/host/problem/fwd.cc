// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/fwd.h"

#include <cinttypes>
#include <cmath>
#include <cstddef>

#include "divide.h"
#include "error.h"
#include "problem/options.h"
#include "problem/struct_size.h"

namespace fmha {
namespace {

// The first header's struct ended after lse. The second header's ended with four bytes of padding, in which
// its callers may have anything. The third's ended after workspace_bytes, the fourth's after flags.
constexpr StructVersion kParamsVersions[] = {
    {240, 240}, {424, 420}, {440, 440}, {448, 448}, {sizeof(fmha_fwd_params), sizeof(fmha_fwd_params)}};
static_assert(offsetof(fmha_fwd_params, lse) + sizeof(fmha_lse) == 240 &&
              offsetof(fmha_fwd_params, reserved) == 420);
static_assert(offsetof(fmha_fwd_params, flags) == 440 && offsetof(fmha_fwd_params, sinks) == 448);

void check_dims(const fmha_fwd_params& p) {
  check_least("batch", p.batch, 0);
  check_least("seqlen_q", p.seqlen_q, 0);
  check_least("seqlen_k", p.seqlen_k, 0);
  check_least("nhead_q", p.nhead_q, 0);
  check_least("nhead_k", p.nhead_k, 1);
  check_least("hdim_q", p.hdim_q, 1);
  check_least("hdim_v", p.hdim_v, 1);
  if (!is_multiple(p.nhead_q, p.nhead_k)) {
    raise(FMHA_INVALID_ARGUMENT, "nhead_q = %" PRId64 ": expected a multiple of nhead_k = %" PRId64,
          p.nhead_q, p.nhead_k);
  }
}

// Keys have their lengths by seqused_k, packed or not.
void check_varlen_of_cache(const fmha_fwd_params& p) {
  if (p.cu_seqlens_k != nullptr && p.cu_seqlens_q == nullptr) {
    raise_set("cu_seqlens_k", p.cu_seqlens_k, " without cu_seqlens_q");
  }
  if (p.seqused_q != nullptr) raise_set("seqused_q", p.seqused_q, ": the keys are in a cache");
  if (p.cu_seqlens_q != nullptr) check_least("total_q", p.total_q, p.batch > 0 && p.seqlen_q > 0 ? 1 : 0);
}

void check_sinks_of_cache(const fmha_fwd_params& p) {
  if (p.sinks != nullptr) raise_set("sinks", p.sinks, ": a call over a cache has sinks of its own");
}

// Checks that lengths are given once, and for both sides.
void check_varlen(const fmha_fwd_params& p, Pass pass) {
  if (pass == Pass::kDecode) return check_varlen_of_cache(p);
  if ((p.cu_seqlens_q == nullptr) != (p.cu_seqlens_k == nullptr)) {
    raise(FMHA_INVALID_ARGUMENT, "cu_seqlens_%c = NULL, but cu_seqlens_%c is set: expected both or neither",
          p.cu_seqlens_q == nullptr ? 'q' : 'k', p.cu_seqlens_q == nullptr ? 'k' : 'q');
  }
  if (p.cu_seqlens_q == nullptr) {
    if (p.seqused_q != nullptr || p.seqused_k != nullptr) {
      raise(FMHA_INVALID_ARGUMENT, "seqused_%c = %p: expected NULL without cu_seqlens_q and cu_seqlens_k",
            p.seqused_q != nullptr ? 'q' : 'k',
            static_cast<const void*>(p.seqused_q != nullptr ? p.seqused_q : p.seqused_k));
    }
    return;
  }
  // A total that was forgotten is zero. If there are no rows, the upper bound says so.
  check_least("total_q", p.total_q, p.batch > 0 && p.seqlen_q > 0 ? 1 : 0);
  check_least("total_k", p.total_k, p.batch > 0 && p.seqlen_k > 0 ? 1 : 0);
}

void check_positive(const char* name, float value) {
  if (!std::isfinite(value) || value <= 0.0F) {
    raise(FMHA_INVALID_ARGUMENT, "%s = %g: expected a finite number above 0", name, double{value});
  }
}

float descale(const char* name, float value, bool fp8) {
  if (value == 0.0F || value == 1.0F) return 1.0F;
  if (!fp8) {
    raise(FMHA_INVALID_ARGUMENT, "%s = %g: expected 0 (none): only FP8 inputs are scaled", name,
          double{value});
  }
  check_positive(name, value);
  return value;
}

void set_sizes(const fmha_fwd_params& p, FwdProblem& problem) {
  problem.group = p.cu_seqlens_q != nullptr;
  problem.empty = p.batch == 0 || p.seqlen_q == 0 || p.nhead_q == 0;
  problem.batch = p.batch;
  problem.seqlen_q = p.seqlen_q;
  problem.seqlen_k = p.seqlen_k;
  problem.nhead_q = p.nhead_q;
  problem.nhead_k = p.nhead_k;
  problem.hdim_q = p.hdim_q;
  problem.hdim_v = p.hdim_v;
  problem.total_q = problem.group ? p.total_q : 0;
  problem.total_k = problem.group ? p.total_k : 0;
}

void set_scores(const fmha_fwd_params& p, FwdProblem& problem) {
  const bool fp8 = is_fp8(problem.dtype);
  problem.qk_descale = descale("q_descale", p.q_descale, fp8) * descale("k_descale", p.k_descale, fp8);
  problem.v_descale = descale("v_descale", p.v_descale, fp8);
  if (!std::isfinite(p.softmax_scale) || p.softmax_scale == 0.0F) {
    raise(FMHA_INVALID_ARGUMENT, "softmax_scale = %g: expected a finite number above 0",
          double{p.softmax_scale});
  }
  problem.softmax_scale = p.softmax_scale;
  if (p.softcap != 0.0F) check_positive("softcap", p.softcap);
  problem.softcap = p.softcap;
}

void set_dropout(const fmha_fwd_params& p, Pass pass, FwdProblem& problem) {
  const void* random_bytes = pass == Pass::kForward ? p.randval.data : nullptr;
  check_dropout(p.p_drop, random_bytes);
  problem.dropout = {p.p_drop, p.philox_seed, p.philox_offset, nullptr};
  // Callers of flash-attention ask for its log-sum-exp by a chance of 1e-30: kernels without dropout have it.
  if (problem.dropout.p_keep() == 1.0F && random_bytes == nullptr) problem.dropout.p_drop = 0.0F;
}

// Only the device knows the lengths of packed sequences.
void set_mask(const fmha_fwd_params& p, FwdProblem& problem) {
  problem.mask = make_mask(p.mask, p.window_left, p.window_right, p.seqlen_k);
  if (!problem.group) drop_idle_sides(problem.mask, p.seqlen_q, p.seqlen_k);
}

struct Types {
  const AbiType& type;
  const AbiType& o_type;
};

// All but memory, and what belongs to the call itself. Every message begins with the name of an argument.
Types fill(const fmha_fwd_params& p, Pass pass, FwdProblem& problem) {
  check_reserved("reserved", p.reserved);
  const AbiType& type = type_of("dtype", p.dtype);
  const AbiType& o_type = p.o_dtype == 0 ? type : type_of("o_dtype", p.o_dtype);
  problem.dtype = type.dtype;
  problem.o_dtype = o_type.dtype;
  check_dims(p);
  check_varlen(p, pass);
  if (pass == Pass::kDecode) check_sinks_of_cache(p);
  set_sizes(p, problem);
  set_scores(p, problem);
  set_dropout(p, pass, problem);
  set_mask(p, problem);
  return {type, o_type};
}

Types fill_of(Pass pass, const fmha_fwd_params& p, FwdProblem& problem) {
  try {
    return fill(p, pass, problem);
  } catch (const Error& error) {
    raise(error.status, "fwd->%s", error.message);
  }
}

}  // namespace

void make_fwd_problem(const fmha_fwd_params* params, Pointers pointers, FwdProblem& problem) {
  fmha_fwd_params copy;
  const fmha_fwd_params& p = current_params("params", params, kParamsVersions, copy);
  const CallOptions options = make_call_options(p.kernel, p.flags);
  problem.candidate = options.candidate;
  problem.checks_memory = options.checks_memory;
  const Types types = fill(p, Pass::kForward, problem);
  set_fwd_tensors(p, types.type, types.o_type, pointers, Pass::kForward, problem);
  problem.workspace = {p.workspace, p.workspace_bytes};
  problem.may_use_workspace = pointers == Pointers::kOptional || p.workspace != nullptr;
}

void make_fwd_problem_of(Pass pass, const fmha_fwd_params* fwd, Pointers pointers, FwdProblem& problem) {
  fmha_fwd_params copy;
  const fmha_fwd_params& p = current_params("fwd", fwd, kParamsVersions, copy);
  const Types types = fill_of(pass, p, problem);
  set_fwd_tensors(p, types.type, types.o_type, pointers, pass, problem);
}

void check_overlaps(const FwdProblem& problem) {
  for (const View* written : {&problem.o, &problem.lse, &problem.randval}) {
    if (written->touched) check_no_self_overlap(*written);
  }
  problem.extents.check_overlaps();
}

}  // namespace fmha

// SPDX-License-Identifier: MIT OR Apache-2.0
// Forward attention as the caller asked for it, checked: tensors, mask, dropout and scales, as mathematics.
// Errors of the arguments themselves are found here, before anything is said to a device. An
// origin says what its kernels cannot do. The selector says what this build or this device lacks.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "fmha_rocm.h"
#include "memory/view.h"
#include "memory/workspace.h"
#include "problem/dropout.h"
#include "problem/mask.h"
#include "problem/rebind.h"
#include "problem/types.h"

namespace fmha {

// The pass that reads the params: the backward pass only reads what the forward pass wrote; a decode pass has
// its keys and values in a cache.
enum class Pass : uint8_t { kForward, kBackward, kDecode };

struct FwdProblem {
  // make_fwd_problem sets every field: zeroing them first would cost a tenth of the call.
  FwdProblem() {}

  DType dtype;         // of q, k and v
  DType o_dtype;       // of o
  bool group;          // packed sequences
  bool empty;          // nothing to write: nothing to launch
  bool checks_memory;  // whose memory the pointers are is asked of HIP
  int32_t candidate;   // 0: the best kernel; n: the n-th that can do it
  int64_t batch;
  int64_t seqlen_q;
  int64_t seqlen_k;
  int64_t nhead_q;
  int64_t nhead_k;
  int64_t hdim_q;
  int64_t hdim_v;
  int64_t total_q;  // of packed sequences
  int64_t total_k;
  float softmax_scale;
  float softcap;     // 0: none
  float qk_descale;  // 1: none
  float v_descale;   // 1: none
  Mask mask;
  Dropout dropout;
  View q, k, v, o;
  View lse, bias, randval;  // touched only if they are wanted
  const float* alibi_slopes;
  int64_t alibi_stride_batch;
  const float* sinks;  // forward: a logit for each query head that has no value; nullptr: none
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  const int32_t* seqused_q;
  const int32_t* seqused_k;
  bool has_bias;  // these say what was asked for, even if nothing of it will be read
  bool has_alibi;
  bool has_sinks;
  Extents extents;  // all that the call touches, its workspace aside
  Workspace workspace;
  // Tells whether the call may use one: it has one, or it is only asked what it would take. Without one,
  // steps that it would speed up do without it.
  bool may_use_workspace;
};

// Tells whether it asks for no more than a mask and an LSE.
inline bool is_plain(const FwdProblem& p) {
  return !p.has_bias && !p.has_alibi && !p.has_sinks && p.softcap == 0.0F && !p.dropout.is_on() &&
         !p.randval.touched && p.qk_descale == 1.0F && p.v_descale == 1.0F;
}

// Fails with INVALID_ARGUMENT or ABI_MISMATCH. It does not look whether tensors overlap.
void make_fwd_problem(const fmha_fwd_params* params, Pointers pointers, FwdProblem& problem);

// The same of the `fwd` of a call of another pass, in whose messages names begin with "fwd->": what belongs
// to the call itself (kernel, randval, workspace, flags) is not looked at, and candidate, checks_memory and
// workspace are not set. Backward: o is read, lse is read and required. Decode: k and v are not looked at.
void make_fwd_problem_of(Pass pass, const fmha_fwd_params* fwd, Pointers pointers, FwdProblem& problem);

// Takes over the addresses, seed and workspace of a call that is like the problem's own in all else.
void rebind(const fmha_fwd_params& params, FwdProblem& problem);

// The same of the `fwd` of a call of another pass, without its workspace.
void rebind_fwd_of(const fmha_fwd_params& fwd, FwdProblem& problem, Rebinder& rebinder);

// The part of make_fwd_problem that is about memory: views, arrays and extents. The rest is set already.
void set_fwd_tensors(const fmha_fwd_params& params, const AbiType& type, const AbiType& o_type,
                     Pointers pointers, Pass pass, FwdProblem& problem);

// Fails with INVALID_ARGUMENT if what is written overlaps itself or anything else.
void check_overlaps(const FwdProblem& problem);

}  // namespace fmha

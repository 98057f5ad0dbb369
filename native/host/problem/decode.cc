// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/decode.h"

#include <cinttypes>

#include "error.h"
#include "problem/options.h"
#include "problem/struct_size.h"

namespace fmha {
namespace {

constexpr StructVersion kDecodeVersions[] = {{sizeof(fmha_decode_params), sizeof(fmha_decode_params)}};

template <typename T>
const T* array(const char* name, const T* data, int64_t count, Pointers pointers, FwdProblem& f) {
  if (data == nullptr || f.empty) return nullptr;
  const View view = array_view(name, data, sizeof(T), count);
  check_pointer(view, alignof(T), pointers);
  f.extents.add(view, false);
  return data;
}

}  // namespace

void make_decode_problem(const fmha_decode_params* params, Pointers pointers, DecodeProblem& problem) {
  (void)check_struct_size("params", params, kDecodeVersions);
  const fmha_decode_params& p = *params;
  check_reserved("reserved", p.reserved);
  const CallOptions options = make_call_options(p.kernel, p.flags);
  problem.candidate = options.candidate;
  problem.checks_memory = options.checks_memory;
  if (p.num_splits < 0 || p.num_splits > DecodeProblem::kMostSplits) {
    raise(FMHA_INVALID_ARGUMENT, "num_splits = %" PRId32 ": expected 0 (the library's choice) to %" PRId32,
          p.num_splits, DecodeProblem::kMostSplits);
  }
  problem.splits = p.num_splits;
  problem.lse_base2 = is_base2(p.lse_base);
  FwdProblem& f = problem.fwd;
  make_fwd_problem_of(Pass::kDecode, p.fwd, pointers, f);
  problem.seqlen_new = p.seqlen_new;
  if (p.seqlen_new < 0 || p.seqlen_new > f.seqlen_k) {
    raise(FMHA_INVALID_ARGUMENT, "seqlen_new = %" PRId32 ": expected 0 to fwd->seqlen_k = %" PRId64,
          p.seqlen_new, f.seqlen_k);
  }
  set_cache(p.cache, pointers, false, f, problem.cache);
  problem.leftpad_k = array("leftpad_k", p.leftpad_k, f.batch, pointers, f);
  problem.sinks = array("sinks", p.sinks, f.nhead_q, pointers, f);
  problem.workspace = {p.workspace, p.workspace_bytes};
}

void rebind(const fmha_decode_params& p, DecodeProblem& problem) {
  Rebinder r(problem.fwd.extents);
  rebind_fwd_of(*p.fwd, problem.fwd, r);
  rebind_cache(*p.cache, problem.cache, r);
  r.array(problem.leftpad_k, p.leftpad_k);
  r.array(problem.sinks, p.sinks);
  problem.workspace = {p.workspace, p.workspace_bytes};
}

void check_overlaps(const DecodeProblem& problem) {
  const FwdProblem& f = problem.fwd;
  for (const View* written : {&f.o, &f.lse}) {
    if (written->touched) check_no_self_overlap(*written);
  }
  f.extents.check_overlaps();
}

}  // namespace fmha

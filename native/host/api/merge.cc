// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the merge of partial outputs.
#include "problem/merge.h"

#include <tuple>

#include "api/no_workspace.h"
#include "origins/hip/merge_pack.h"
#include "select/merge.h"

namespace fmha {
namespace {

struct Merge
    : NoWorkspace<MergeProblem, check_merge_limits, choose_merge, plan_merge, hip_merge::rows_per_block> {
  using Params = fmha_merge_params;
  using Structs = std::tuple<fmha_merge_params>;
  static constexpr Family kFamily = Family::kMerge;
  static constexpr auto* make_problem = make_merge_problem;

  static std::tuple<const fmha_merge_params*> structs_of(const Params& p) { return {&p}; }
  static uint64_t number(const Params& p) { return number_of({p.parts, p.batch, p.seqlen, p.nhead, p.hdim}); }
};
using MergeEntries = Entries<Merge>;

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_merge_supported(const fmha_merge_params* params) {
  return fmha::MergeEntries::supported(params);
}

fmha_status fmha_merge_kernel(const fmha_merge_params* params, fmha_kernel_info* info) {
  return fmha::MergeEntries::kernel(params, info);
}

fmha_status fmha_merge_extents(const fmha_merge_params* params, fmha_extent* extents, int32_t capacity,
                               int32_t* count) {
  return fmha::MergeEntries::extents(params, extents, capacity, count);
}

fmha_status fmha_merge_prepare(const fmha_merge_params* params) {
  return fmha::MergeEntries::prepare(params);
}

fmha_status fmha_merge(const fmha_merge_params* params, void* stream) {
  return fmha::MergeEntries::run(params, stream);
}

}  // extern "C"

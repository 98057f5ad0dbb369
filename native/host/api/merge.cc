// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the merge of partial outputs.
#include "problem/merge.h"

#include <tuple>

#include "api/entries.h"
#include "origins/hip/merge_pack.h"
#include "select/merge.h"

namespace fmha {
namespace {

struct Merge {
  using Params = fmha_merge_params;
  using Problem = MergeProblem;
  using Structs = std::tuple<fmha_merge_params>;
  struct Offers {};
  using Choice = Chosen;

  static constexpr Family kFamily = Family::kMerge;
  static constexpr const char* kWorkspaceQuery = nullptr;
  static constexpr bool kDoesWithoutWorkspace = false;

  static std::tuple<const fmha_merge_params*> structs_of(const Params& p) { return {&p}; }
  static uint64_t number(const Params& p) { return number_of({p.parts, p.batch, p.seqlen, p.nhead, p.hdim}); }

  static constexpr auto* make_problem = make_merge_problem;
  static void ask(const Problem& p, Offers& /*offers*/) { check_merge_limits(p); }
  static const Extents& extents(const Problem& p) { return p.extents; }

  static Choice choose(const Problem& p, const Offers& /*offers*/, const Target& target, bool counted) {
    return choose_merge(p, target, counted);
  }
  static void plan(const Choice& choice, const Problem& p, const Target& /*target*/, Plan& plan) {
    plan_merge(*choice.kernel, p, plan);
  }

  static const Chosen* chosen(const Choice& choice) { return &choice; }
  static TileInfo tile(const Kernel& k, const Problem& p) {
    return {static_cast<int32_t>(hip_merge::rows_per_block(k, p)), 0, ""};
  }
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

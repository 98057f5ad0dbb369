// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the backward pass.
#include "problem/bwd.h"

#include <tuple>

#include "api/entries.h"
#include "select/bwd.h"

namespace fmha {
namespace {

struct Bwd {
  using Params = fmha_bwd_params;
  using Problem = BwdProblem;
  using Structs = std::tuple<fmha_bwd_params, fmha_fwd_params>;
  using Offers = BwdOffers;
  using Choice = BwdKernels;

  static constexpr Family kFamily = Family::kBwd;
  static constexpr const char* kWorkspaceQuery = "fmha_bwd_workspace_bytes";
  static constexpr bool kDoesWithoutWorkspace = false;

  static std::tuple<const fmha_bwd_params*, const fmha_fwd_params*> structs_of(const Params& p) {
    return {&p, p.fwd};
  }
  static uint64_t number(const Params& p) { return number_of(*p.fwd); }

  static constexpr auto* make_problem = make_bwd_problem;
  static constexpr auto* ask = ask_bwd_origins;
  static constexpr auto* choose = choose_bwd;
  static const Extents& extents(const Problem& p) { return p.fwd.extents; }

  static void plan(const Choice& choice, const Problem& p, const Target& target, Plan& plan) {
    plan_bwd(choice, p, target, plan);
  }

  static const Chosen* chosen(const Choice& choice) { return &choice.chosen; }
  static TileInfo tile(const Kernel& k, const Problem& /*problem*/) {
    return {k.bwd.tile_m, k.bwd.tile_n, k.bwd.pipeline};
  }
};
using BwdEntries = Entries<Bwd>;

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_bwd_supported(const fmha_bwd_params* params) { return fmha::BwdEntries::supported(params); }

fmha_status fmha_bwd_kernel(const fmha_bwd_params* params, fmha_kernel_info* info) {
  return fmha::BwdEntries::kernel(params, info);
}

fmha_status fmha_bwd_workspace_bytes(const fmha_bwd_params* params, int64_t* bytes) {
  return fmha::BwdEntries::workspace_bytes(params, bytes);
}

fmha_status fmha_bwd_extents(const fmha_bwd_params* params, fmha_extent* extents, int32_t capacity,
                             int32_t* count) {
  return fmha::BwdEntries::extents(params, extents, capacity, count);
}

fmha_status fmha_bwd_prepare(const fmha_bwd_params* params) { return fmha::BwdEntries::prepare(params); }

fmha_status fmha_bwd(const fmha_bwd_params* params, void* stream) {
  return fmha::BwdEntries::run(params, stream);
}

}  // extern "C"

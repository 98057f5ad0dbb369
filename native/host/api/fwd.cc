// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the forward pass.
#include "problem/fwd.h"

#include <tuple>

#include "api/entries.h"
#include "select/fwd.h"

namespace fmha {
namespace {

struct Fwd {
  using Params = fmha_fwd_params;
  using Problem = FwdProblem;
  using Structs = std::tuple<fmha_fwd_params>;
  using Offers = FwdOffers;
  struct Choice {
    Chosen chosen;
    hip_fwd::Division division;
  };

  static constexpr Family kFamily = Family::kFwd;
  static constexpr const char* kWorkspaceQuery = "fmha_fwd_workspace_bytes";
  static constexpr bool kDoesWithoutWorkspace = true;

  static std::tuple<const fmha_fwd_params*> structs_of(const Params& p) { return {&p}; }
  static uint64_t number(const Params& p) { return number_of(p); }

  static constexpr auto* make_problem = make_fwd_problem;
  static constexpr auto* ask = ask_fwd_origins;
  static const Extents& extents(const Problem& p) { return p.extents; }

  static Choice choose(const Problem& p, const Offers& offers, const Target& target, bool counted) {
    const Chosen chosen = choose_fwd(p, offers, target, counted);
    return {chosen, divide_fwd(*chosen.kernel, p, target)};
  }
  static void plan(const Choice& choice, const Problem& p, const Target& target, Plan& plan) {
    plan_fwd(*choice.chosen.kernel, p, choice.division, target, plan);
  }

  static const Chosen* chosen(const Choice& choice) { return &choice.chosen; }
  static TileInfo tile(const Kernel& k, const Problem& /*problem*/) {
    return {k.fwd.tile_m, k.fwd.tile_n, k.fwd.pipeline};
  }
};
using FwdEntries = Entries<Fwd>;

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_fwd_supported(const fmha_fwd_params* params) { return fmha::FwdEntries::supported(params); }

fmha_status fmha_fwd_kernel(const fmha_fwd_params* params, fmha_kernel_info* info) {
  return fmha::FwdEntries::kernel(params, info);
}

fmha_status fmha_fwd_workspace_bytes(const fmha_fwd_params* params, int64_t* bytes) {
  return fmha::FwdEntries::workspace_bytes(params, bytes);
}

fmha_status fmha_fwd_extents(const fmha_fwd_params* params, fmha_extent* extents, int32_t capacity,
                             int32_t* count) {
  return fmha::FwdEntries::extents(params, extents, capacity, count);
}

fmha_status fmha_fwd_prepare(const fmha_fwd_params* params) { return fmha::FwdEntries::prepare(params); }

fmha_status fmha_prepare(const fmha_fwd_params* params) { return fmha::FwdEntries::prepare(params); }

fmha_status fmha_fwd(const fmha_fwd_params* params, void* stream) {
  return fmha::FwdEntries::run(params, stream);
}

}  // extern "C"

// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the quantiser.
#include "problem/quantize.h"

#include <tuple>

#include "api/entries.h"
#include "origins/hip/quantize_pack.h"
#include "select/quantize.h"

namespace fmha {
namespace {

struct Quantize {
  using Params = fmha_quantize_params;
  using Problem = QuantizeProblem;
  using Structs = std::tuple<fmha_quantize_params>;
  struct Offers {};
  using Choice = Chosen;

  static constexpr Family kFamily = Family::kQuantize;
  static constexpr const char* kWorkspaceQuery = "fmha_quantize_workspace_bytes";
  static constexpr bool kDoesWithoutWorkspace = false;

  static std::tuple<const fmha_quantize_params*> structs_of(const Params& p) { return {&p}; }
  static uint64_t number(const Params& p) {
    return number_of({p.batch, p.seqlen, p.nhead, p.hdim, p.scale_unit});
  }

  static constexpr auto* make_problem = make_quantize_problem;
  static void ask(const Problem& p, Offers& /*offers*/) { check_quantize_limits(p); }
  static const Extents& extents(const Problem& p) { return p.extents; }

  static Choice choose(const Problem& p, const Offers& /*offers*/, const Target& target, bool counted) {
    return choose_quantize(p, target, counted);
  }
  static void plan(const Choice& choice, const Problem& p, const Target& target, Plan& plan) {
    plan_quantize(*choice.kernel, p, target, plan);
  }

  static const Chosen* chosen(const Choice& choice) { return &choice; }
  static TileInfo tile(const Kernel& k, const Problem& p) {
    return {static_cast<int32_t>(hip_quantize::rows_at_once(k, p)), 0, ""};
  }
};
using QuantizeEntries = Entries<Quantize>;

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_quantize_supported(const fmha_quantize_params* params) {
  return fmha::QuantizeEntries::supported(params);
}

fmha_status fmha_quantize_kernel(const fmha_quantize_params* params, fmha_kernel_info* info) {
  return fmha::QuantizeEntries::kernel(params, info);
}

fmha_status fmha_quantize_workspace_bytes(const fmha_quantize_params* params, int64_t* bytes) {
  return fmha::QuantizeEntries::workspace_bytes(params, bytes);
}

fmha_status fmha_quantize_extents(const fmha_quantize_params* params, fmha_extent* extents, int32_t capacity,
                                  int32_t* count) {
  return fmha::QuantizeEntries::extents(params, extents, capacity, count);
}

fmha_status fmha_quantize_prepare(const fmha_quantize_params* params) {
  return fmha::QuantizeEntries::prepare(params);
}

fmha_status fmha_quantize(const fmha_quantize_params* params, void* stream) {
  return fmha::QuantizeEntries::run(params, stream);
}

}  // extern "C"

// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of attention over a KV cache.
#include "problem/decode.h"

#include <tuple>

#include "api/entries.h"
#include "select/decode.h"

namespace fmha {
namespace {

struct Decode {
  using Params = fmha_decode_params;
  using Problem = DecodeProblem;
  using Structs = std::tuple<fmha_decode_params, fmha_fwd_params, fmha_cache>;
  struct Offers {};
  using Choice = Chosen;

  static constexpr Family kFamily = Family::kDecode;
  static constexpr const char* kWorkspaceQuery = "fmha_decode_workspace_bytes";
  static constexpr bool kDoesWithoutWorkspace = false;

  static std::tuple<const fmha_decode_params*, const fmha_fwd_params*, const fmha_cache*> structs_of(
      const Params& p) {
    return {&p, p.fwd, p.cache};
  }
  static uint64_t number(const Params& p) { return number_of(*p.fwd); }

  static constexpr auto* make_problem = make_decode_problem;
  static void ask(const Problem& /*problem*/, Offers& /*offers*/) {}
  static const Extents& extents(const Problem& p) { return p.fwd.extents; }

  static Choice choose(const Problem& p, const Offers& /*offers*/, const Target& target, bool counted) {
    return choose_decode(p, target, counted);
  }
  static void plan(const Choice& choice, const Problem& p, const Target& target, Plan& plan) {
    plan_decode(*choice.kernel, p, target, plan);
  }

  static const Chosen* chosen(const Choice& choice) { return &choice; }
  static TileInfo tile(const Kernel& k, const Problem& /*problem*/) {
    return {k.decode.tile_m, k.decode.tile_n, "waves"};
  }
};
using DecodeEntries = Entries<Decode>;

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_decode_supported(const fmha_decode_params* params) {
  return fmha::DecodeEntries::supported(params);
}

fmha_status fmha_decode_kernel(const fmha_decode_params* params, fmha_kernel_info* info) {
  return fmha::DecodeEntries::kernel(params, info);
}

fmha_status fmha_decode_workspace_bytes(const fmha_decode_params* params, int64_t* bytes) {
  return fmha::DecodeEntries::workspace_bytes(params, bytes);
}

fmha_status fmha_decode_extents(const fmha_decode_params* params, fmha_extent* extents, int32_t capacity,
                                int32_t* count) {
  return fmha::DecodeEntries::extents(params, extents, capacity, count);
}

fmha_status fmha_decode_prepare(const fmha_decode_params* params) {
  return fmha::DecodeEntries::prepare(params);
}

fmha_status fmha_decode(const fmha_decode_params* params, void* stream) {
  return fmha::DecodeEntries::run(params, stream);
}

}  // extern "C"

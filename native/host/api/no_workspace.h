// SPDX-License-Identifier: MIT OR Apache-2.0
// The traits that append and merge share, for api/entries.h: families without a workspace or offers of
// origins.
#pragma once

#include <cstdint>

#include "api/entries.h"

namespace fmha {

template <typename P, auto kCheckLimits, auto kChoose, auto kPlan, auto kRowsPerBlock>
struct NoWorkspace {
  using Problem = P;
  struct Offers {};
  using Choice = Chosen;

  static constexpr const char* kWorkspaceQuery = nullptr;
  static constexpr bool kDoesWithoutWorkspace = false;

  static void ask(const Problem& p, Offers& /*offers*/) { kCheckLimits(p); }
  static const Extents& extents(const Problem& p) { return p.extents; }
  static Choice choose(const Problem& p, const Offers& /*offers*/, const Target& target, bool counted) {
    return kChoose(p, target, counted);
  }
  static void plan(const Choice& choice, const Problem& p, const Target& /*target*/, Plan& plan) {
    kPlan(*choice.kernel, p, plan);
  }
  static const Chosen* chosen(const Choice& choice) { return &choice; }
  static TileInfo tile(const Kernel& k, const Problem& p) {
    return {static_cast<int32_t>(kRowsPerBlock(k, p)), 0, ""};
  }
};

}  // namespace fmha

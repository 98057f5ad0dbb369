// SPDX-License-Identifier: MIT OR Apache-2.0
// The numbers of the hardware that the profile rests on: those of a card of archs.toml, each with where it is
// from. A launch is modelled on the card that is played, but that of gfx90a on an MI300X, so that records
// compare.
#pragma once

#include <algorithm>

#include "archs.h"
#include "core/card.h"

namespace fmha::emu {

inline const Card& profile_card() {
  return device_arch().isa == Isa::kCdna2 ? card_of(kDefaultArch) : device_card();
}

// The same for every card.
inline constexpr uint64_t kLineBytes = kCards[0].line_bytes.value;
inline constexpr uint64_t kLdsBankBytes = kCards[0].lds_bank_bytes.value;
static_assert(std::ranges::all_of(kCards, [](const Card& c) {
  return c.line_bytes.value == kLineBytes && c.lds_bank_bytes.value == kLdsBankBytes;
}));

}  // namespace fmha::emu

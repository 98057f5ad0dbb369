// SPDX-License-Identifier: MIT OR Apache-2.0
// The numbers of the hardware that the profile rests on: those of a card of archs.toml, each with where it is
// from. A launch is modelled on an MI355X if that is played, and on an MI300X whatever else is, so that
// records compare.
#pragma once

#include "archs.h"
#include "hip/state.h"

namespace fmha::emu {

inline bool is_mi355x() { return device_arch().isa == Isa::kCdna4; }

inline const Card& profile_card() { return card_of(is_mi355x() ? Arch::kGfx950 : kDefaultArch); }

// Of every card that launches are modelled on.
inline constexpr uint64_t kLineBytes = card_of(kDefaultArch).line_bytes.value;
static_assert(card_of(Arch::kGfx950).line_bytes.value == kLineBytes);
inline constexpr uint64_t kLdsBankBytes = card_of(kDefaultArch).lds_bank_bytes.value;
static_assert(card_of(Arch::kGfx950).lds_bank_bytes.value == kLdsBankBytes);

}  // namespace fmha::emu

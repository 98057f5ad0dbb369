// SPDX-License-Identifier: MIT OR Apache-2.0
// The numbers of the hardware that the profile rests on: those of one card of archs.toml, each with where it
// is from. Every launch is modelled on this card, whichever arch is played, so that records compare.
#pragma once

#include "archs.h"

namespace fmha::emu {

inline constexpr const Card& kProfileCard = card_of(kDefaultArch);

}  // namespace fmha::emu

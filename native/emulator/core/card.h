// SPDX-License-Identifier: MIT OR Apache-2.0
// What the software device plays, chosen by $FMHA_EMU_ARCH and $FMHA_EMU_CARD: a card of archs.toml.
#pragma once

#include "archs.h"

namespace fmha::emu {

const Card& device_card();
const ArchInfo& device_arch();

}  // namespace fmha::emu

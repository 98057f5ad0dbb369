// SPDX-License-Identifier: MIT OR Apache-2.0
// The card of archs.toml that the software device plays; $FMHA_EMU_ARCH and $FMHA_EMU_CARD choose it.
#pragma once

#include "archs.h"

namespace fmha::emu {

const Card& device_card();
const ArchInfo& device_arch();

}  // namespace fmha::emu

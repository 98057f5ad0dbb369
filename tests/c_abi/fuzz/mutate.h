// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "bytes.h"
#include "device.h"
#include "fmha_rocm.h"

namespace fmha::fuzz {

// Sets one field to something a caller might get wrong, or to anything at all.
void mutate(Bytes& bytes, const Device& device, fmha_fwd_params& params);

}  // namespace fmha::fuzz

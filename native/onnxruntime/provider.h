// SPDX-License-Identifier: MIT OR Apache-2.0
// The provider of one session: which nodes it takes, and what runs in their place.
#pragma once

#include "engine/place.h"

namespace fmha::onnxruntime {

OrtEp* make_provider(const Place& place);
void release_provider(OrtEp* provider);

}  // namespace fmha::onnxruntime

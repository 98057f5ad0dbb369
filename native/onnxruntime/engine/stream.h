// SPDX-License-Identifier: MIT OR Apache-2.0
// A stream of a device, and the events by which streams and the host wait for it.
#pragma once

#include "engine/place.h"

namespace fmha::onnxruntime {

OrtSyncStreamImpl* make_stream(const Place& place);

}  // namespace fmha::onnxruntime

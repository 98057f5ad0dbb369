// SPDX-License-Identifier: MIT OR Apache-2.0
// ONNX Runtime's allocators and copies: a device's memory, and pinned memory of the host.
#pragma once

#include "engine/place.h"

namespace fmha::onnxruntime {

// Release it with release_allocator.
OrtAllocator* make_allocator(const Place& place, const OrtMemoryInfo* memory);
void release_allocator(OrtAllocator* allocator);

OrtDataTransferImpl* make_data_transfer();

}  // namespace fmha::onnxruntime

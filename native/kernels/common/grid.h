// SPDX-License-Identifier: MIT OR Apache-2.0
// A workgroup's place in a grid of (tiles, heads, batch). HIP promises 65535 workgroups in y and z. A larger
// batch turns the grid round, (batch, heads, tiles), and an argument of the kernel says so (host:
// plan/grid.h). It costs a few scalar instructions a workgroup, and no division.
#pragma once

#include <cstdint>

#include "common/device.h"

namespace fmha {

__device__ inline uint32_t grid_tile(int32_t turned) { return turned != 0 ? blockIdx.z : blockIdx.x; }
__device__ inline uint32_t grid_batch(int32_t turned) { return turned != 0 ? blockIdx.x : blockIdx.z; }
// How large the batch is.
__device__ inline uint32_t grid_batches(int32_t turned) { return turned != 0 ? gridDim.x : gridDim.z; }

}  // namespace fmha

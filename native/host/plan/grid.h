// SPDX-License-Identifier: MIT OR Apache-2.0
// The grid of kernels whose workgroups have a tile, a head and a batch element (device: common/grid.h).
#pragma once

#include "plan/plan.h"

namespace fmha {

// Tells whether a batch takes x, which has room for more than z; tiles are then z.
inline bool grid_is_turned(int64_t batch) { return batch > kMaxGridYZ; }

// The largest batch of a kernel with so many work-items in a workgroup.
constexpr int64_t most_batches(int64_t block_size) { return kMaxWorkItemsX / block_size; }

inline int64_t most_tiles(int64_t batch, int64_t block_size) {
  return grid_is_turned(batch) ? kMaxGridYZ : kMaxWorkItemsX / block_size;
}

// The counts are within the limits above, and heads within kMaxGridYZ.
inline Grid grid_of_tiles(int64_t tiles, int64_t heads, int64_t batch) {
  const auto number = [](int64_t count) { return static_cast<uint32_t>(count); };
  if (grid_is_turned(batch)) return {number(batch), number(heads), number(tiles)};
  return {number(tiles), number(heads), number(batch)};
}

}  // namespace fmha

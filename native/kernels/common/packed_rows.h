// SPDX-License-Identifier: MIT OR Apache-2.0
// The place of a packed sequence. The host has not seen the device's arrays that tell it. So, whatever they
// hold, no row lies outside the tensor, and no sequence is longer than the call says.
#pragma once

#include <cstdint>

#include "common/device.h"

namespace fmha {

struct PackedRows {
  int first, count;
};

// Sequence `b`. `starts` has the first row of each sequence, and the end of the last. `used` has the numbers
// of rows in use; nullptr: all are. There are `total` rows, and at most `most` in a sequence. A number out of
// range is taken for the nearest that is not.
__device__ inline PackedRows packed_rows(const int32_t* starts, const int32_t* used, int b, int total,
                                         int most) {
  const int first = min(max(starts[b], 0), total);
  const int count = min(min(max(starts[b + 1], first), total) - first, most);
  return {first, used == nullptr ? count : min(max(used[b], 0), count)};
}

}  // namespace fmha

// SPDX-License-Identifier: MIT OR Apache-2.0
// The random bytes of dropout, for kernels of ours: those that CK's forward kernels draw (BlockDropout), so
// that a backward kernel drops what forward dropped.
//
// P of a head is cut into squares of 32. Philox 4x32 with 7 rounds, keyed with the seed, gives 16 bytes for
// each square (the upper half of the counter) and each of 64 lanes (the lower half, beside offset and head).
// They are 16 rows of one column: rows 0 to 7 and 16 to 23 of lanes below 32, the others of lanes above.
#pragma once

#include <cstdint>

#include "common/device.h"

namespace fmha {

// Word `index`, 0 to 3, of a counter.
__device__ inline uint32_t philox_word(uint64_t seed, uint64_t low, uint32_t third, uint32_t fourth,
                                       int index) {
  uint32_t c0 = static_cast<uint32_t>(low), c1 = static_cast<uint32_t>(low >> 32), c2 = third, c3 = fourth;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 7; ++round, k0 += 0x9E3779B9U, k1 += 0xBB67AE85U) {
    const uint64_t x = uint64_t{c0} * 0xD2511F53U, y = uint64_t{c2} * 0xCD9E8D57U;
    c0 = static_cast<uint32_t>(y >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(y);
    c2 = static_cast<uint32_t>(x >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(x);
  }
  const uint32_t even = (index & 2) ? c2 : c0, odd = (index & 2) ? c3 : c1;
  return (index & 1) ? odd : even;
}

// The random numbers of one (batch, query head).
struct HeadRandom {
  uint64_t seed;
  uint64_t counter;  // of lane 0

  // The bytes of a column's rows row & ~3 to row | 3, the first one lowest.
  __device__ uint32_t four_rows(int row, int column) const {
    const int lane = ((row & 8) << 2) | (column & 31);
    const int word = ((row & 16) >> 3) | ((row & 4) >> 2);
    return philox_word(seed, counter + static_cast<uint64_t>(lane), static_cast<uint32_t>(row) >> 5,
                       static_cast<uint32_t>(column) >> 5, word);
  }
};

inline constexpr int kRandomLanes = 64;

}  // namespace fmha

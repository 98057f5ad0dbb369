// SPDX-License-Identifier: MIT OR Apache-2.0
// The probabilities that dropout keeps, for lanes that have eight keys of one row, as WMMA leaves them.
#pragma once

#include "common/device.h"
#include "hip/common/philox.h"
#include "hip/common/wmma.h"

namespace fmha {

// The elements of 16 rows by 16 keys that are kept. Random bytes come by column, eight rows to a lane: lane l
// draws those of key l % 16 and the eight rows of its half, and the lanes that have the rows ask for them.
struct Kept {
  HeadRandom random;
  int keep_at_most;
  int lane;

  // Eight random bytes, of rows row + 8 * (lane / 16) on and key column + lane % 16. Both are multiples
  // of 16.
  struct Draw {
    uint32_t words[2];
  };
  __device__ Draw draw(int row, int column) const {
    const int drawer = remade(lane), drawn_row = row + drawer / 16 * 8, drawn_column = column + drawer % 16;
    return {random.four_rows(drawn_row, drawn_column), random.four_rows(drawn_row + 4, drawn_column)};
  }

  // A bit for each of the lane's eight keys.
  __device__ uint32_t bits(const Draw& draw) const {
    // The lanes that drew for the lane's row and keys, and the byte of their words.
    const int asker = remade(lane), from = (asker & 8) * 2 + asker / 16 * 8, shift = (asker & 3) * 8;
    uint32_t mask = 0;
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      const uint32_t low = ask(draw.words[0], from + i), high = ask(draw.words[1], from + i);
      const uint32_t byte = ((asker & 4) != 0 ? high : low) >> shift & 0xff;
      mask |= static_cast<uint32_t>(static_cast<int>(byte) <= keep_at_most) << i;
    }
    return mask;
  }

 private:
  __device__ static uint32_t ask(uint32_t word, int from) {
    return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(from * 4, static_cast<int>(word)));
  }
};

}  // namespace fmha

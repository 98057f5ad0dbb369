// SPDX-License-Identifier: MIT OR Apache-2.0
// What becomes of the scores of hip/fwd_wmma.h, a lane's eight keys of one row at a time: softcap, a bias,
// ALiBi; and which probabilities dropout keeps.
#pragma once

#include <hip/hip_runtime.h>

#include "args/fwd_wmma.h"
#include "hip/philox.h"
#include "hip/wmma_tiles.h"

namespace fmha {

enum class WmmaBias { kNone, kElementwise, kAlibi };

inline constexpr float kLog2eOfScores = 1.4426950408889634F;

// softcap * tanh(scale * dot / softcap), in units of log2.
struct Softcap {
  float inner, outer;

  __device__ void begin(float scale, float softcap) {
    inner = 2 * kLog2eOfScores * scale / softcap;
    outer = softcap * kLog2eOfScores;
  }
  __device__ float operator()(float dot) const {
    const float e = __builtin_amdgcn_exp2f(dot * inner);
    return __builtin_fmaf(__builtin_amdgcn_rcpf(e + 1), -2 * outer, outer);
  }
};

// Rows of a bias of any stride, so that elements come one by one.
template <typename T>
struct BiasRows {
  Resource from;
  uint32_t begin;  // of the lane's row

  // Of `rows` rows that begin at `base` the lane has row `row`.
  __device__ void set(const T* base, uint32_t row_elements, int rows, int columns, int row) {
    from = resource(base, ((rows - 1) * row_elements + columns) * sizeof(T));
    begin = row < rows ? row * row_elements * sizeof(T) : kNowhere;
  }
  __device__ float at(int column) const {
    return to_float(
        __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b16(from, begin + column * sizeof(T), 0, 0)));
  }
};

// Which of 16 rows by 16 keys are kept. Random bytes come by column, eight rows to a lane: lane l draws those
// of key l % 16 and the eight rows of its half, and the lanes that have the rows ask for them.
struct Kept {
  HeadRandom random;
  int keep_at_most;
  int lane;

  __device__ void begin(const FwdWmmaParams& p, int64_t head, int lane_of_wave) {
    const uint64_t seed = p.philox ? p.philox[0] : p.philox_seed;
    const uint64_t offset = p.philox ? p.philox[1] : p.philox_offset;
    random = {seed, offset + static_cast<uint64_t>(head) * kRandomLanes};
    keep_at_most = p.keep_at_most;
    lane = lane_of_wave;
  }

  // A bit for each of the lane's eight keys. `row` is the first of the 16, `column` too: multiples of 16.
  __device__ uint32_t operator()(int row, int column) const {
    const int drawer = remade(lane), drawn_row = row + drawer / 16 * 8, drawn_column = column + drawer % 16;
    const uint32_t first = random.four_rows(drawn_row, drawn_column);
    const uint32_t second = random.four_rows(drawn_row + 4, drawn_column);
    // Which lanes drew for the lane's row and keys, and which byte of their words.
    const int from = (drawer & 8) * 2 + drawer / 16 * 8, shift = (drawer & 3) * 8;
    uint32_t mask = 0;
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      const uint32_t a = ask(first, from + i), b = ask(second, from + i);
      const uint32_t byte = ((drawer & 4) != 0 ? b : a) >> shift & 0xff;
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

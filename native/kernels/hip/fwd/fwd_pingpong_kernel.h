// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels of hip/fwd/fwd_pingpong.h: a line of a translation unit makes one.
#pragma once

#include "hip/fwd/fwd_pingpong.h"

namespace fmha {

// Facts of an instance for the host. native/tools/catalogue/report.py reads them out of the code object.
struct PingpongFacts {
  int32_t tile_m, tile_n, tile_nv, hdim_q, block_size, blocks_per_cu;
};

}  // namespace fmha

// FMHA_FWD_PINGPONG_KERNEL(symbol, type, type of O, hdims of the tile, mask, mover, score, waves, shares): a
// kernel and its facts
#define FMHA_FWD_PINGPONG_KERNEL(entry, type, o_type, hdim_q, hdim_v, mask, mover, score, waves, shares) \
  using entry##_type = fmha::Pingpong<fmha::type, fmha::o_type, hdim_q, hdim_v, mask, fmha::mover,       \
                                      fmha::PingpongScore::score, waves, shares>;                        \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                   \
  const fmha::PingpongFacts entry##_facts = {                                                            \
      entry##_type::kTileM,    entry##_type::kTileN,     hdim_v, hdim_q,                                 \
      64 * (waves) * (shares), entry##_type::kWorkgroups};                                               \
  extern "C" __global__ __launch_bounds__(64 * (waves) * (shares),                                       \
                                          entry##_type::kWavesOfSimd) void entry(entry##_type::Params) { \
    entry##_type::run();                                                                                 \
  }

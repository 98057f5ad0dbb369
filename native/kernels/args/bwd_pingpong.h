// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of our own backward kernels for Instinct (hip/bwd/bwd_pingpong.h, hip/bwd/bwd_wide.h,
// hip/bwd/bwd_halves.h), which follow `dot` (args/bwd.h) and write the gradients themselves.
#pragma once

#include <cstdint>

#include "args/bwd_fp32.h"

namespace fmha {

// A workgroup does a tile of 256, 128 or 64 keys of a key head, or as many rows of a query head. Grid: (XCDs,
// tiles of all key heads of an XCD, key_parts + query heads of a group). The device deals workgroups out to
// its XCDs in turn, so that each XCD has all tiles of its key heads, and then those of the first query head
// of each group, of the second, and so on.
struct BwdPingpongParams {
  BwdFp32Params problem;  // bias, dropout and numbers of tiles mean nothing
  int32_t tiles;          // of a head: of keys, or of queries, if these are more
  // Workgroups that divide the query heads of a key tile's group: they write float32 dk and dv, by (batch,
  // key head, part), for others to add up. 1: they write them as the problem says.
  int32_t key_parts;
  int32_t heads_first;  // all heads' longest tiles come first; else a head's tiles lie one after another
};

}  // namespace fmha

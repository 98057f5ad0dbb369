// SPDX-License-Identifier: MIT OR Apache-2.0
// The fields of the kernels of attention over a KV cache in the table of kernels.
#pragma once

#include <cstdint>

namespace fmha {

// Each takes any cache of its type and layout, mask, lengths and features, packed queries or not.
struct DecodeRow {
  int16_t hdim_q;  // of its tile: the problem's are these or less, multiples of hdim_step
  int16_t hdim_v;
  int16_t hdim_step;
  int16_t tile_m;  // rows of a workgroup, which are query heads of a group times tokens
  int16_t tile_n;  // keys that a workgroup takes at once
  DType cache_dtype;
  bool vectors;  // a vectorised cache: see fmha_cache
  bool latent;   // only a cache whose values are the first dims of its keys
};

}  // namespace fmha

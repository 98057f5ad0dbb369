// SPDX-License-Identifier: MIT OR Apache-2.0
// The fields of a forward kernel in the table of kernels.
#pragma once

#include <cstdint>

#include "catalogue/enums.h"

namespace fmha {

struct FwdRow {
  DType o_dtype;
  int16_t hdim_q;  // of its tile: the problem's are these or, if hdim_step is not 0, less
  int16_t hdim_v;
  int16_t hdim_step;  // 0: head dims exactly those; n: any multiple of n up to those
  bool group;         // varlen: packed sequences
  bool mask;          // the generic mask: causal and windows are run-time values of it
  bool pad;           // any seqlen_k; without, a positive multiple of tile_n. Any seqlen_q either way
  Bias bias;
  bool softcap;
  bool dropout;
  const char* pipeline;      // the origin's name of it: "qr_async", ...
  int16_t tile_m;            // query rows a workgroup
  int16_t tile_n;            // keys a main-loop step
  int16_t tile_nv;           // columns of V a workgroup
  bool causal;               // its mask is causal from bottom-right, and that only
  int16_t compute_units[2];  // of the devices that it is for; 0: any
};

}  // namespace fmha

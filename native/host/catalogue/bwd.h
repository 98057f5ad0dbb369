// SPDX-License-Identifier: MIT OR Apache-2.0
// The fields of the kernels of the backward pass in the table of kernels.
#pragma once

#include <cstdint>

#include "catalogue/enums.h"

namespace fmha {

// The kernel of dQ, dK and dV. Each takes any lengths.
struct BwdRow {
  int16_t hdim_q;  // of its tile: the problem's are these or, if hdim_step is not 0, less
  int16_t hdim_v;
  int16_t hdim_step;   // 0: head dims exactly those; n: any multiple of n up to those
  int16_t hdim_least;  // no head dims below this
  bool equal_hdims;    // it is told one head dim: the problem's two are the same
  BwdMask mask;        // the only mask that it does; kAny: all, as run-time values
  BwdLayout layout;    // the only layout that it takes: batches, or packed sequences; kAny: both
  bool alibi;          // at most one of these three, unless they are optional
  bool bias;           // elementwise
  bool softcap;
  bool dbias;  // the gradient of the bias too
  bool dropout;
  bool optional;         // it does without these features too: they are run-time values
  bool whole;            // it writes dq, dk and dv as they are asked for: nothing is added up after it
  bool divides_groups;   // if workgroups are few, several share a group's query heads
  const char* pipeline;  // the origin's name of it
  int16_t tile_m;        // query rows a step
  int16_t tile_n;        // keys of a workgroup's tile
  int16_t slot_bytes;    // of an argument, of kernels that come prebuilt
};

// The kernels before and after it.
struct BwdPartsRow {
  PartKind kind;
  int16_t per_block;  // of a workgroup: rows (dot), eights of elements (sum)
};

}  // namespace fmha

// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of AITER's forward kernels (native/kernels/prebuilt/fwd.toml). Each argument has 16 bytes;
// strides are in bytes.
#pragma once

#include <cstdint>

#include "args/aiter_slot.h"

namespace fmha {

struct AiterFwdParams {
  using Pointer = AiterSlot<const void*>;
  using Number = AiterSlot<uint32_t>;

  Pointer o;
  Pointer q;
  Pointer k;
  Pointer v;
  Pointer lse;
  AiterSlot<float> scale;  // on scores; natural exponentials
  Number seqlen_q;
  Number q_row;
  Number q_tile;  // 256 rows
  Number q_head;
  Number q_batch;
  Number nhead_ratio;  // query heads of a key head
  Number k_row;
  Number k_head;
  Number k_batch;
  Number order;  // how a causal kernel deals its tiles out
  Number stores_lse;
  Number seqlen_k;
  Number hdim_q;
  Number hdim_v;
  Number nhead_q;
  Number v_row;
  Number v_head;
  Number v_batch;
  Number o_row;
  Number o_head;
  Number o_batch;
  Pointer cu_q;  // of packed sequences: first row of each, and the end
  Pointer cu_k;
  Number lse_head;
  Pointer cu_q_rows;  // the same of the rows in memory, which could be more
  Pointer cu_k_rows;
};
static_assert(sizeof(AiterFwdParams) == 32 * 16);

}  // namespace fmha

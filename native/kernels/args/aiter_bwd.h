// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of AITER's backward kernels, which take the place of `main` in args/bwd.h: their
// D is that of `dot`, and what they add to is the one dq_acc, which `sum` makes dQ of. They write dK and dV
// of each query head, in q's dtype.
//
// A workgroup does a tile of keys of a sequence, for one query head; with a causal mask two tiles, one from
// each end, whose work together is the same for all. Grid: (tiles or pairs of them, nhead_q, batch).
//
// Where a packed sequence has no queries they leave dK and dV as they are: `sum` zeroes both before.
//
// Every argument has a slot of eight bytes; of the kernels written for gfx950, of 16 (AiterBwdWideParams).
// Strides and sizes are unsigned and in bytes, and the offset of a (batch, head) is computed in 32 bits.
#pragma once

#include <cstdint>

#include "args/aiter_slot.h"

namespace fmha {

template <typename Pointer>
struct AiterBwdTensors {
  Pointer dq_acc;  // zeroed; (batch, nhead_q, seqlen_q, hdim), or packed (nhead_q, total_q, hdim); float32
  Pointer dk;
  Pointer dv;
  Pointer q;
  Pointer k;
  Pointer v;
  Pointer dout;
  Pointer lse;  // (batch, nhead_q, seqlen_q), or packed (nhead_q, total_q), contiguous float32; so is d
  Pointer d;
};

// int32, of packed sequences.
template <typename Pointer>
struct AiterBwdStarts {
  Pointer cu_q;  // first row of each sequence, and the end
  Pointer cu_k;
  Pointer cu_q_slots;  // the same of the room that each has; here it has no more
  Pointer cu_k_slots;
};

template <typename Number>
struct AiterBwdStrides {
  Number nhead;
  Number batch;
  Number row;
};

struct AiterBwdInt {
  AiterBwdInt(uint32_t number) : value(number) {}  // NOLINT(google-explicit-constructor): reads like a number

  uint32_t value;
  uint32_t unused = 0;
};

struct AiterBwdFloat {
  AiterBwdFloat(float number) : value(number) {}  // NOLINT(google-explicit-constructor)

  float value;
  uint32_t unused = 0;
};

// For tensors (batch, seqlen, nhead, hdim).
struct AiterBwdBatchParams {
  using Strides = AiterBwdStrides<AiterBwdInt>;

  AiterBwdTensors<const void*> tensors;
  AiterBwdFloat scale;  // softmax_scale
  AiterBwdFloat log2e;
  AiterBwdInt nhead_ratio_qk;
  AiterBwdInt seqlen_q;
  AiterBwdInt seqlen_k;
  AiterBwdInt hdim;
  AiterBwdInt nhead_q;
  Strides q;
  Strides k;
  Strides v;
  Strides dout;
  Strides dk;
  Strides dv;
};
static_assert(sizeof(AiterBwdBatchParams) == 272);

// For packed sequences.
struct AiterBwdGroupParams {
  struct Strides {
    AiterBwdInt nhead;
    AiterBwdInt row;
  };

  AiterBwdTensors<const void*> tensors;
  AiterBwdStarts<const void*> starts;
  AiterBwdFloat scale;
  AiterBwdFloat log2e;
  AiterBwdInt nhead_ratio_qk;
  AiterBwdInt lse_stride_nhead;  // and d's
  AiterBwdInt total_k;
  Strides q;
  Strides k;
  Strides v;
  Strides dout;
  Strides dk;
  Strides dv;
  AiterBwdInt hdim;
};
static_assert(sizeof(AiterBwdGroupParams) == 248);

// For both, by the kernels written for gfx950.
struct AiterBwdWideParams {
  using Pointer = AiterSlot<const void*>;
  using Number = AiterSlot<uint32_t>;
  using Strides = AiterBwdStrides<Number>;

  AiterBwdTensors<Pointer> tensors;
  AiterSlot<float> scale;
  AiterSlot<float> log2e;
  Number seqlen_q;
  Number k_tile;  // of all rows of a tile
  Strides q;
  Number nhead_ratio_qk;
  Strides k;
  Number dk_row;
  Number seqlen_k;
  Number hdim_q;
  Number hdim_v;
  Number nhead_q;
  Strides v;
  Strides dout;
  Number dk_head;
  Number dk_batch;
  Strides dv;
  Number lse_head;  // of packed sequences, and d's
  AiterBwdStarts<Pointer> starts;
  Number most_queries;  // of a sequence
  Number window[2];     // of kernels with one
};
static_assert(sizeof(AiterBwdWideParams) == 44 * 16);

}  // namespace fmha

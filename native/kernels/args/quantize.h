// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of the kernel that makes 8-bit floats of 16 bits (see args/fwd.h).
#pragma once

#include <cstdint>

namespace fmha {

// Strides by (batch, seqlen, nhead), in elements.
struct QuantizeStrides {
  int64_t batch;
  int64_t nhead;
  int64_t row;
};

struct QuantizeScaleStrides {
  int64_t batch;
  int64_t nhead;  // from one group of heads that share a scale to the next
  int64_t block;
};

enum class QuantizeWay : int32_t {
  kWrite,    // the scales are known, or there are none
  kOwn,      // a chunk has a scale of its own
  kTickets,  // several chunks share a scale
};

// A chunk is `tokens` tokens of a group of heads of a batch element, the last one of a group of heads maybe
// fewer; chunks are numbered by batch element, group of heads, token. Grid, in x: chunks; kTickets: twice as
// many items as there are, each of `per_item` chunks that share a scale, first to look for the largest, then
// to write.
struct QuantizeParams {
  const void* x;
  void* out;
  float* descale;      // kWrite: read, nullptr: there are none
  uint32_t* counters;  // kTickets, zeroed: of tickets; then, 64 bytes each, a scale's largest and count
  QuantizeStrides x_strides;
  QuantizeStrides out_strides;
  QuantizeScaleStrides descale_strides;
  int32_t seqlen;
  int32_t heads;            // that share a scale
  int32_t groups_of_heads;  // of a batch element
  int32_t tokens;
  int32_t chunks_of_heads;  // of a group of heads
  uint32_t chunks;          // that share a scale; kTickets
  uint32_t per_item;
  uint32_t items;   // that share a scale, ceil(chunks / per_item)
  uint32_t scales;  // how many there are
  uint32_t lag;     // scales whose largest numbers are looked for before anything is written
  QuantizeWay way;
  int32_t hdim;         // a multiple of 8
  int32_t lanes_shift;  // log2 of the lanes of a row
  int32_t hadamard;     // rows are rotated; the head dim is a power of two
  float factor;         // on a rotated element, 1 / sqrt(hdim); else 1
  int32_t reserved;
};

}  // namespace fmha

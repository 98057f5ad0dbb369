// SPDX-License-Identifier: MIT OR Apache-2.0
// The rows and keys that a workgroup of hip/decode/decode.h does, and the numbers that apply to all of them.
#pragma once

#include "args/decode.h"
#include "common/grid.h"
#include "common/packed_rows.h"
#include "hip/common/window.h"
#include "hip/decode/decode_place.h"

namespace fmha {

// Scores of keys that lie together, or dims of O.
using DecodeRun = __attribute__((ext_vector_type(kDecodeRun))) float;

// Facts of an instance for the host. native/tools/catalogue/report.py reads them out of the code object.
struct DecodeFacts {
  int32_t block_size, tile_m, tile_n, hdim_q, hdim_v;
};

// The kernel's arguments, at an address that the compiler takes for another one each time: it would load them
// all at the beginning, keep them until the end, and spill.
__device__ inline const DecodeParams& decode_arguments() {
  auto* address = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(address));
  return *reinterpret_cast<const DecodeParams*>(address);
}

// A row is a token and a query head of the key head's group, token by token.
struct DecodeWork {
  __device__ explicit DecodeWork(const DecodeParams& params) : p(params) {}

  // False: there is no such row.
  __device__ bool find(int most_rows) {
    const int b = batch();
    const uint32_t tile = grid_tile(p.turned);
    split = tile % p.splits;
    first_row = static_cast<int>(tile / p.splits) * most_rows;
    q_base = 0;
    seqlen_q = p.seqlen_q;
    if (p.cu_q != nullptr) {
      const PackedRows q = packed_rows(p.cu_q, nullptr, b, p.total_q, p.total_q);
      q_base = q.first;
      seqlen_q = q.count;
    }
    rows = min(seqlen_q, p.seqlen_q) * p.nhead_ratio;
    if (first_row >= rows) return false;
    end_k = length_k(b);
    place.last_page = p.pages - 1;
    place.page = place.listed(p.batch_index ? p.batch_index[b] : b);
    place.page_shift = p.page_shift;
    place.table = nullptr;
    if (p.table != nullptr) place.table = p.table + begin_of_list(b);
    begin_k = p.first_k ? within(p.first_k[b], 0, end_k) : 0;
    return true;
  }

  // Blocks of keys that any of the rows sees: this split's.
  __device__ void find_range(int most_rows, int block_keys) {
    place.from = first_seen(token_of(first_row));
    place.to = last_seen(token_of(min(first_row + most_rows, rows) - 1));
    const int from = place.from / block_keys;
    const int blocks = place.to < place.from ? 0 : place.to / block_keys - from + 1;
    const int each = (blocks + p.splits - 1) / p.splits;
    first_block = from + split * each;
    last_block = from + min(split * each + each, blocks);
  }

  // The sequence, asked for anew each time: it would take a register.
  __device__ uint32_t batch() const { return grid_batch(p.turned); }

  // A row's token and query head within the group.
  __device__ int token_of(int row) const { return row / p.nhead_ratio; }
  __device__ int head_of(int row, int token) const {
    return row - token * p.nhead_ratio + static_cast<int>(blockIdx.y) * p.nhead_ratio;
  }

  // The key at a token's own place; the keys that its rows see, both included.
  __device__ int own(int token) const { return token + diagonal_of(false, seqlen_q, end_k); }
  __device__ int first_seen(int token) const {
    return p.window_left < 0 ? begin_k : max(begin_k, window().first(token));
  }
  __device__ int last_seen(int token) const {
    return p.window_right < 0 ? end_k - 1 : min(end_k - 1, window().last(token));
  }

  // ---- Scales of an 8-bit cache. Those of keys are multiplied to scores, those of values to P: P, which is
  // rounded, to a fraction of `unit`, the power of two above the largest so far, and O at the end to unit.

  __device__ void find_scales(bool widens, float& unit) {
    scale = p.scale;
    unit = 1;
    if (!widens) return;
    if (p.scale_per_page) {
      unit = p.v_scale != nullptr ? 0 : 1;
      return;
    }
    if (p.k_scale != nullptr) scale *= p.k_scale[scale_at(p.k_scale_strides, batch())];
    if (p.v_scale != nullptr) unit = p.v_scale[scale_at(p.v_scale_strides, batch())];
  }

  // Returns the scales of a lane's keys at `at` of a tile, and that of one key.
  __device__ DecodeRun page_scales(const float* scales, const ScaleStrides& s, int at) const {
    DecodeRun run;
    _Pragma("unroll") for (int i = 0; i < kDecodeRun; ++i) run[i] = page_scale(scales, s, at + i);
    return run;
  }
  __device__ float page_scale(const float* scales, const ScaleStrides& s, int at) const {
    return scales[scale_at(s, place.page_of(place.within(at)))];
  }

  // The power of two above the largest scale of values so far: `unit`, if that is still it.
  __device__ static float unit_for(float most, float unit) {
    constexpr uint32_t kExponent = 0x7f800000, kOne = 0x00800000;
    if (most == unit) return unit;
    return __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, most) & kExponent) + kOne);
  }

  const DecodeParams& p;
  DecodePlace place;
  int64_t q_base;
  int split, seqlen_q, begin_k, end_k;
  int rows, first_row;          // of the workgroup's sequence and key head; of its tiles
  int first_block, last_block;  // of this split
  float scale;                  // of scores

 private:
  __device__ Window window() const {
    return {diagonal_of(false, seqlen_q, end_k), p.window_left, p.window_right};
  }

  __device__ static int within(int x, int least, int most) { return min(max(x, least), most); }

  // From 0 to seqlen_k, which is no less than seqlen_new.
  __device__ int length_k(int b) const {
    int before = 0;
    if (p.used_k != nullptr) {
      before = p.used_k[b];
    } else if (p.cu_k != nullptr) {
      before = static_cast<int>(static_cast<uint32_t>(p.cu_k[b + 1]) - static_cast<uint32_t>(p.cu_k[b]));
    } else {
      return p.seqlen_k;
    }
    return within(before, -p.seqlen_new, p.seqlen_k - p.seqlen_new) + p.seqlen_new;
  }

  // Returns where in the table the sequence's pages begin. Where pages follow one another for all sequences,
  // there may be fewer than its length asks for: end_k is then less.
  __device__ int64_t begin_of_list(int b) {
    if (p.indptr == nullptr) return b * p.table_stride;
    const int begin = within(p.indptr[b], 0, p.indices), end = within(p.indptr[b + 1], begin, p.indices);
    end_k = static_cast<int>(min(int64_t{end_k}, int64_t{end - begin} << p.page_shift));
    return begin;
  }

  __device__ static int64_t scale_at(const ScaleStrides& s, int64_t page) {
    return page * s.page + blockIdx.y * s.nhead;
  }
};

}  // namespace fmha

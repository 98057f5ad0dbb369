// SPDX-License-Identifier: MIT OR Apache-2.0
// The rows of hip/bwd/bwd_side.h in memory: which ones a workgroup owns, where it walks, and what it writes.
#pragma once

#include "args/bwd_pingpong.h"
#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/common/eights.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// A workgroup does a tile of a key head, or of one of its query heads.
struct BwdPlace {
  int tile, head_k, batch;

  __device__ explicit BwdPlace(const BwdPingpongParams& p) {
    const int heads = gridDim.y / p.tiles, inner = p.heads_first ? heads : p.tiles;
    const int slow = blockIdx.y / inner, fast = blockIdx.y % inner;
    tile = p.heads_first ? slow : fast;
    const int head_of_all = blockIdx.x * heads + (p.heads_first ? fast : slow);
    const int nhead_k = p.problem.nhead_q / p.problem.nhead_ratio_qk;
    batch = head_of_all / nhead_k;
    head_k = head_of_all % nhead_k;
  }
};

// A workgroup's own kTile rows of a head, from `first` on: of keys or of queries.
template <bool kKeys, int kTile>
struct BwdTask {
  BwdSequence sequence;
  int head;  // of keys: of parts of key heads
  int first;

  __device__ explicit BwdTask(const BwdPingpongParams& p) {
    const BwdPlace place(p);
    const int z = static_cast<int>(blockIdx.z);
    sequence = uniform(sequence_of(p.problem, place.batch));
    if constexpr (kKeys) {
      head = place.head_k * p.key_parts + z;
      first = place.tile * kTile;
    } else {
      head = place.head_k * p.problem.nhead_ratio_qk + z - p.key_parts;
      // With a causal mask the last tile has most keys: it begins first.
      first = ((sequence.seqlen_q - 1) / kTile - place.tile) * kTile;
    }
  }
  __device__ bool exists() const {
    return kKeys ? first < sequence.seqlen_k : first >= 0 && sequence.seqlen_q > 0;
  }
};

// Rows of 16 bits of a (batch, head). Past `rows` there are none.
struct MatrixRows {
  const uint8_t* base;
  int64_t nhead_bytes;
  uint32_t row_bytes;
  int rows;
  int bytes;  // of a row's head dim

  // So many rows from `from` on: their strides may be any, 0 too.
  __device__ static Resource of(const uint8_t* from, int count, uint32_t row_bytes, int bytes) {
    // All lanes have the same number, whatever the compiler computes it with.
    return resource(from, __builtin_amdgcn_readfirstlane(count > 0 ? (count - 1) * row_bytes + bytes : 0));
  }
  __device__ const uint8_t* row(int i) const { return base + static_cast<int64_t>(i) * row_bytes; }
};

// Q or K (kSecond: dO or V) of a head.
template <bool kKeys, bool kSecond>
__device__ MatrixRows matrix(const BwdFp32Params& p, const BwdSequence& s, int head) {
  const auto of = [&](const void* data, const BwdStrides& strides, int64_t first, int rows, int hdim) {
    return MatrixRows{reinterpret_cast<const uint8_t*>(
                          rows_of(static_cast<const uint16_t*>(data), strides, s, first, head)),
                      strides.nhead * 2, static_cast<uint32_t>(strides.row * 2), rows, hdim * 2};
  };
  if constexpr (kKeys) {
    return kSecond ? of(p.v, p.v_strides, s.first_k, s.seqlen_k, p.hdim_v)
                   : of(p.k, p.k_strides, s.first_k, s.seqlen_k, p.hdim_q);
  } else {
    return kSecond ? of(p.dout, p.dout_strides, s.first_q, s.seqlen_q, p.hdim_v)
                   : of(p.q, p.q_strides, s.first_q, s.seqlen_q, p.hdim_q);
  }
}

// Numbers, one a row, as LSE and D are.
__device__ inline MatrixRows row_vector(const float* data, const BwdStrides& strides, const BwdSequence& s,
                                        int head) {
  const float* first = rows_of(data, {strides.batch, strides.nhead, 1}, s, s.first_q, head);
  return {reinterpret_cast<const uint8_t*>(first), strides.nhead * 4, 4, s.seqlen_q, 4};
}

// Blocks of kRows rows of two tensors, one after another, of one head after another. Past the last one there
// are no rows.
template <int kRows>
class BlockWalk {
 public:
  __device__ BlockWalk() = default;
  __device__ BlockWalk(const MatrixRows& first, const MatrixRows& second, const RowRange& range, int blocks)
      : a(first, range), b(second, range), left_(first.rows - range.begin), blocks_(blocks) {
    of_head_ = left_;
    behind_ = left_ - (range.end - range.begin);
  }

  struct Tensor {
    uint32_t row_bytes;
    int bytes;  // of a row's head dim

    __device__ Tensor() = default;
    __device__ Tensor(const MatrixRows& m, const RowRange& range)
        : row_bytes(m.row_bytes), bytes(m.bytes), at_(m.row(range.begin)) {
      step_ = int64_t{kRows} * row_bytes;
      to_next_head_ = m.nhead_bytes - (range.end - range.begin - kRows) * static_cast<int64_t>(row_bytes);
    }
    __device__ Resource rows(int count) const { return MatrixRows::of(at_, count, row_bytes, bytes); }

   private:
    friend BlockWalk;
    __device__ void next(bool same_head) { at_ += same_head ? step_ : to_next_head_; }

    const uint8_t* at_;
    int64_t step_, to_next_head_;  // to the next block
  };
  Tensor a, b;

  // The rows of the block.
  __device__ int count() const { return blocks_ > 0 ? min(left_, kRows) : 0; }

  __device__ void next() {
    --blocks_;
    left_ -= kRows;
    const bool same_head = left_ > behind_;
    a.next(same_head);
    b.next(same_head);
    left_ = same_head ? left_ : of_head_;
  }

 private:
  int left_, of_head_,
      behind_;  // rows of the head from here on, from its first block on, and behind its last
  int blocks_;  // from here on
};

// A wave's 32 own rows: chunk 2 * i + lane / 32 of row lane % 32, each. For products of 16 rows: first chunk
// 4 * i + lane / 16 of row lane % 16, each, and then of the other 16 rows.
template <int kHdim, int kRows>
struct OwnRows {
  static constexpr int kChunks = 64 / kRows, kOfTile = kHdim / 8 / kChunks;
  Dwords4 x[kHdim / 16];

  // The workgroup owns so many rows from `first` on; the wave has those from `row` on, of them, and dims.
  __device__ void load(const MatrixRows& m, int first, int own, int row, int dim, int lane) {
    const int left = min(m.rows - first, own);
    const Resource from = MatrixRows::of(m.row(first), left, m.row_bytes, m.bytes);
    const uint32_t begin = (row + lane % kRows) * m.row_bytes;
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      const int column = (kChunks * (i % kOfTile) + lane / kRows) * kChunk + dim * 2;
      const uint32_t tile = begin + i / kOfTile * kRows * m.row_bytes;
      x[i] = __builtin_amdgcn_raw_buffer_load_b128(from, column < m.bytes ? tile + column : kNowhere, 0, 0);
    }
  }
};

// The gradient of so many own rows from `first` on.
template <typename E>
class OwnGradient {
 public:
  __device__ OwnGradient(E* data, int64_t row, int first, int rows, int own, int hdim)
      : row_bytes_(row * sizeof(E)), hdim_(hdim) {
    to_ = resource(data + first * row, min(rows - first, own) * row_bytes_);
  }

  // A lane's 16 of 32 dims of a row from `first` on, turned: element i is dim + (i & 8) * 2 + (i & 7).
  __device__ void write(const Float16& x, float factor, int row, int dim, bool accumulate) const {
    _Pragma("unroll") for (int i = 0; i < 16; i += 8) {
      const int first_dim = dim + i * 2;
      const uint32_t at = first_dim < hdim_ ? row * row_bytes_ + first_dim * sizeof(E) : kNowhere;
      Float8 y;
      _Pragma("unroll") for (int j = 0; j < 8; ++j) y[j] = x[i + j] * factor;
      if (accumulate) {
        const auto before = load_eight<E>(to_, at);
        _Pragma("unroll") for (int j = 0; j < 8; ++j) {
          y[j] = __builtin_fmaf(x[i + j], factor, to_float(before.x[j]));
        }
      }
      store_eight<E>(y, to_, at);
    }
  }

 private:
  Resource to_;
  uint32_t row_bytes_;
  int hdim_;
};

// A float32 as three bf16, whose sum it is, and a zero: for kMinusThree.
__device__ inline Dwords2 three_parts(float x) {
  constexpr uint32_t kHigh = 0xffff0000;
  const auto high = __builtin_bit_cast(uint32_t, x) & kHigh;
  const float rest = x - __builtin_bit_cast(float, high);
  const auto middle = __builtin_bit_cast(uint32_t, rest) & kHigh;
  const auto low = __builtin_bit_cast(uint32_t, rest - __builtin_bit_cast(float, middle));
  return {high_halves(high, middle), low >> 16};
}
inline constexpr Dwords2 kMinusThree = {0xbf80bf80, 0x0000bf80};

}  // namespace fmha

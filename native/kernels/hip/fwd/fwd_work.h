// SPDX-License-Identifier: MIT OR Apache-2.0
// The part of a forward problem that a workgroup of our own kernels does.
//
// Where the last round of workgroups would leave compute units idle, the keys of the last row tiles are
// divided among workgroups, which leave O and LSE of their part, float32, to the kernel that merges them
// (host/select/fwd_split.h decides).
#pragma once

#include "args/fwd_pingpong.h"
#include "common/device.h"
#include "common/packed_rows.h"
#include "hip/common/window.h"

namespace fmha {

// A workgroup's share: kTileM rows of a sequence and head, and the keys that they see. kTwoOrders: a launch
// says what follows in its grid, a head's tiles or a tile's heads.
template <int kTileM, bool kTwoOrders>
struct FwdWork {
  int tile, head, batch;
  int seqlen_q, seqlen_k;
  int64_t first_q, first_k;  // rows of packed sequences in front of this one
  int diagonal;              // row i is at column i + diagonal
  int first_block, blocks;   // of keys
  int part;                  // of the keys; -1: it does all of them
  int head_of_batch;

  __device__ Window window(const PingpongParams& p) const {
    return {diagonal, p.window_left, p.window_right};
  }

  // False: there is no such row.
  __device__ bool find(const PingpongParams& p, int tile_n, bool hides) {
    if (kTwoOrders && p.heads_first) {
      head_of_batch = blockIdx.x * gridDim.y + blockIdx.y;
      find_tile(blockIdx.z, gridDim.z, p.parts, hides);
    } else {
      head_of_batch = blockIdx.x * gridDim.z + blockIdx.z;
      find_tile(blockIdx.y, gridDim.y, p.parts, hides);
    }
    batch = head_of_batch / p.nhead_q;
    head = head_of_batch - batch * p.nhead_q;
    find_lengths(p);
    if (tile * kTileM >= seqlen_q) return false;
    find_blocks(p, tile_n);
    if (part >= 0) divide_blocks(part, p.parts.count);
    return true;
  }

  // Leaves the i-th of so many parts of the keys.
  __device__ void divide_blocks(int i, int count) {
    const int begin = blocks * i / count;
    blocks = blocks * (i + 1) / count - begin;
    first_block += begin;
  }

 private:
  __device__ void find_tile(int at, int tiles, const PingpongParts& parts, bool hides) {
    part = -1;
    if (parts.count > 1) {
      tiles /= parts.count;
      part = at % parts.count;
      at /= parts.count;
    }
    // With a causal mask the last tile has most keys: it begins first.
    tile = parts.first_tile + (hides ? tiles - 1 - at : at);
  }

  __device__ void find_lengths(const PingpongParams& p) {
    seqlen_q = p.seqlen_q;
    seqlen_k = p.seqlen_k;
    first_q = first_k = 0;
    if (p.cu_q != nullptr) {
      const PackedRows q = packed_rows(p.cu_q, p.used_q, batch, p.total_q, p.seqlen_q);
      const PackedRows k = packed_rows(p.cu_k, p.used_k, batch, p.total_k, p.seqlen_k);
      first_q = q.first;
      seqlen_q = q.count;
      first_k = k.first;
      seqlen_k = k.count;
    }
    diagonal = diagonal_of(p.top_left, seqlen_q, seqlen_k);
  }

  __device__ void find_blocks(const PingpongParams& p, int tile_n) {
    const int row = tile * kTileM;
    const int last_row = (row + kTileM < seqlen_q ? row + kTileM : seqlen_q) - 1;
    const RowRange seen = window(p).seen_by(row, last_row, seqlen_k);
    first_block = seen.begin / tile_n;
    blocks = seen.begin < seen.end ? (seen.end - 1) / tile_n + 1 - first_block : 0;
  }
};

}  // namespace fmha

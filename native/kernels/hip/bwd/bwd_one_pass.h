// SPDX-License-Identifier: MIT OR Apache-2.0
// dQ, dK and dV in five products, with dQ added up in memory: for gfx942 and head dims up to 128, where
// hip/bwd/bwd_pingpong.h takes seven (docs/kernels/bwd_one_pass.md).
//
// A workgroup of eight waves owns 256 keys of a key head, and walks over the rows of all query heads of its
// group, 32 at a time, as the workgroups of keys in hip/bwd/bwd_pingpong.h do. dS of all 256 keys goes
// through LDS: a wave makes dQ of 16 dims of it, and adds that to float32 sums in memory. So a workgroup adds
// to each sum only once, and no sum is made across waves.
//
// Between two barriers, for block n:
//
//   until all have stored dS     S and dP; loads of n + 1; P and dS; dV and dK
//   until all have turned n + 1  dQ; one group of waves turns its part before that, the other one after it
//
// Waves are in two groups of four, and each SIMD has one of either. One group's products come first
// (s_setprio), so that it makes P and dS while the other one is at its products.
//
// dQ takes K turned: its dims by its keys. All of that would take LDS 64 KB. So a workgroup turns its keys
// at the beginning and puts them in memory, as its products take them: a wave loads 8 KB a block, from the
// L2, which its registers hold only during dQ.
//
//   budget, head dim 128
//   registers: sums              128
//     own rows                   64
//     S and dP                   32
//     operands                   12
//   LDS: rows, turned, dS        2 * 16 KB, 16 KB, 16 KB
//   a SIMD, of a block
//     matrix cycles              5248
#pragma once

#include "args/bwd_one_pass.h"
#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/bwd/bwd_pingpong_gfx942.h"
#include "hip/bwd/bwd_side.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// Clang has no builtin for this. It adds to where `at` lies.
__device__ float buffer_atomic_add(float x, Resource to, int at, int at_scalar,
                                   int aux) __asm("llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f32");

// A workgroup's 256 keys.
template <typename T, int kHdim, BwdScore kScore>
class BwdOnePass : BwdSide<T, kHdim, kScore, true, 8> {
  using Side = BwdSide<T, kHdim, kScore, true, 8>;
  using Blocks = BwdBlocks<kHdim, 2, 1>;
  static_assert(kHdim == 128);  // eight waves make dQ of 16 dims each; the workspace and the sum know it
  using Side::at, Side::rows_walk, Side::wave, Side::lane, Side::load_row_sums, Side::split_row_sums;
  using Side::kSteps, Side::kTiles, Side::kSums, Side::walked_head;
  using Side::own_a, Side::own_b, Side::s, Side::dp, Side::lse_parts, Side::d_parts, Side::sums,
      Side::probabilities, Side::ds;
  static constexpr int kPairs = kTiles, kPairsOfSums = kSums * kPairs;
  static constexpr int kSlopes = Blocks::kBytes;  // dS in LDS
  static constexpr int kRowOfSlopes = 512;
  // K turned, of a wave.
  static constexpr int kChunksOfKeys = 8, kBytesOfKeys = kChunksOfKeys * 64 * kChunk;

 public:
  using Side::kOwnRows, Side::kThreads, Side::blocks, Side::end;
  static constexpr int kLdsBytes = kSlopes + 32 * kRowOfSlopes;

  __device__ BwdOnePass(const BwdOnePassParams& params, const BwdTask<true, kOwnRows>& task)
      : Side(params.both, task), one(params) {}

  __device__ void begin(LdsByte* memory) {
    lds = memory;
    this->begin_with(tiles, memory);
    group = wave / 4;
    turn_keys();
  }

  __device__ void walk() {
    load_rows(0);
    load_row_sums(0);
    wait_for_loads<0>();
    split_row_sums(0);
    pingpong_barrier();
    tiles.turn(0);
    wait_for_lds();
    read_first_rows(0);
    barrier_beside_reads();
    for (int n = 0; n < blocks; ++n) {
      scores(n);
      weigh(n);
      read_first<0>(n);
      run_steps<0, kPairs>(n);
      load_row_sums(n + 1);
      load_keys<0, kFirstKeys>();
      run_steps<kPairs, kPairsOfSums>(n);
      load_keys<kFirstKeys, kKeysAhead>();
      wait_for_lds();
      wait_for_loads<kKeysAhead>();  // rows of n + 1
      barrier_beside_reads();
      if (group == 0) tiles.turn(n + 1);
      make_dq(n + 1);
      if (group == 1) tiles.turn(n + 1);
      wait_for_lds();
      read_first_rows(n + 1);
      barrier_beside_reads();
    }
  }

 private:
  // Loads of K turned that are asked for during dK, and before dQ: registers are too few for all.
  static constexpr int kFirstKeys = 4, kKeysAhead = 4;
  static_assert(kKeysAhead + 4 == kChunksOfKeys);
  static constexpr int kSumsOfBlock = 32 * kHdim, kSumsOfWave = kSumsOfBlock / 8;

  __device__ void load_rows(int n) {
    const int count = rows_walk.count();
    const auto &a = rows_walk.a, &b = rows_walk.b;
    tiles.load(n, a.rows(count), b.rows(count), a.row_bytes, b.row_bytes, a.bytes, b.bytes);
    rows_walk.next();
  }

  // ---- K turned: dims 16 * wave + lane % 16, keys 32 * i + lane / 16 * 8 on.

  __device__ Resource turned_keys() const {
    const int64_t workgroup = (int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    return resource(one.turned_k + (workgroup * 8 + wave) * kBytesOfKeys, kBytesOfKeys);
  }

  __device__ void turn_keys() {
    const int key = wave * 32 + lane % 32;
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      lds_store(lds + key * 256 + ((2 * i + lane / 32) ^ (key & 7)) * 16, own_a.x[i]);
    }
    pingpong_barrier();
    const Resource to = turned_keys();
    const int dim = wave * 16 + lane % 16;
    _Pragma("nounroll") for (int c = 0; c < kChunksOfKeys; ++c) {
      Dwords4 x;
      _Pragma("unroll") for (int j = 0; j < 8; j += 2) {
        uint32_t two[2];
        _Pragma("unroll") for (int e = 0; e < 2; ++e) {
          const int k = c * 32 + lane / 16 * 8 + j + e;
          two[e] = lds_load<uint16_t>(lds + k * 256 + ((dim / 8) ^ (j + e)) * 16 + dim % 8 * 2);
        }
        x[j / 2] = two[0] | two[1] << 16;
      }
      __builtin_amdgcn_raw_buffer_store_b128(x, to, c * 1024 + lane * 16, 0, 0);
    }
    wait_for_loads<0>();
    pingpong_barrier();
  }

  template <int i, int end>
  __device__ void load_keys() {
    const int from = remade(lane) * 16;
    const Resource keys = turned_keys();
    _Pragma("unroll") for (int c = i; c < end; ++c) {
      turned_k[c] = __builtin_amdgcn_raw_buffer_load_b128(keys, from, c * 1024, 0);
    }
    __builtin_amdgcn_sched_barrier(0);
  }

  // ---- S, dP, dV, dK.

  template <int i>
  static constexpr int kTensorOfSum = i < kPairs ? 1 : 0;
  template <int i>
  static constexpr int kStepOfSum = 1 - i % kPairs / (kTiles / 2);
  template <int i>
  static constexpr int kTileOfSum = i % (kTiles / 2) * 2;

  template <int i>
  __device__ Pair read(int n) const {
    constexpr int tensor = kTensorOfSum<i>, step = kStepOfSum<i>, t = kTileOfSum<i>;
    return {tiles.dims(n, tensor, step, t), tiles.dims(n, tensor, step, t + 1)};
  }

  template <int i>
  __device__ void multiply_pair_of(const Pair& x) {
    constexpr int sum = kTensorOfSum<i>, step = kStepOfSum<i>, t = kTileOfSum<i>;
    multiply_pair<T>(x, sum == 0 ? ds[step] : probabilities[step], sums[sum][t], sums[sum][t + 1]);
  }

  template <int i, int end>
  __device__ void steps(int n) {
    if constexpr (i < end) {
      if constexpr (i + 1 < end || i + 1 == kPairs) ring[(i + 1) % 2] = read<i + 1>(n);
      __builtin_amdgcn_sched_barrier(0);
      multiply_pair_of<i>(ring[i % 2]);
      __builtin_amdgcn_sched_barrier(0);
      steps<i + 1, end>(n);
    }
  }
  template <int from>
  __device__ void read_first(int n) {
    ring[from % 2] = read<from>(n);
    __builtin_amdgcn_sched_barrier(0);
  }
  template <int from, int end>
  __device__ void run_steps(int n) {
    steps<from, end>(n);
    __builtin_amdgcn_sched_barrier(0);
  }

  // There are registers for three operands: dO's are read when Q's are not needed any more.
  __device__ void read_first_rows(int n) {
    of_s = tiles.rows(n, 0, 0);
    of_dp = tiles.rows(n, 1, 0);
    __builtin_amdgcn_sched_barrier(0);
  }
  template <int step>
  __device__ void score_steps(int n) {
    if constexpr (step < kSteps) {
      Dwords4 next_of_s, next_of_dp;
      if constexpr (step + 1 < kSteps) next_of_s = tiles.rows(n, 0, step + 1);
      __builtin_amdgcn_sched_barrier(0);
      s = multiply32<T>(low_half(of_s), low_half(own_a.x[step]), s);
      dp = multiply32<T>(low_half(of_dp), low_half(own_b.x[step]), dp);
      s = multiply32<T>(high_half(of_s), high_half(own_a.x[step]), s);
      __builtin_amdgcn_sched_barrier(0);
      if constexpr (step + 1 < kSteps) next_of_dp = tiles.rows(n, 1, step + 1);
      __builtin_amdgcn_sched_barrier(0);
      dp = multiply32<T>(high_half(of_dp), high_half(own_b.x[step]), dp);
      __builtin_amdgcn_sched_barrier(0);
      if constexpr (step + 1 < kSteps) {
        of_s = next_of_s;
        of_dp = next_of_dp;
      }
      score_steps<step + 1>(n);
    }
  }

  __device__ void scores(int n) {
    if (group == 0) {
      __builtin_amdgcn_s_setprio(2);
    } else {
      __builtin_amdgcn_s_setprio(1);
    }
    s = dp = Float16{};
    if constexpr (kScore != BwdScore::kSoftcap) s = multiply32<Bf16>(lse_parts, kMinusThree, s);
    dp = multiply32<Bf16>(d_parts, kMinusThree, dp);
    __builtin_amdgcn_sched_barrier(0);
    score_steps<0>(n);
    __builtin_amdgcn_s_setprio(0);
  }

  __device__ void weigh(int n) {
    load_rows(n + 1);
    this->cap();
    this->hide(at);
    this->make_weights(this->first_column(at));
    // Here they are rounded, and not where they are used.
    asm volatile("" : "+v"(probabilities[0]), "+v"(probabilities[1]), "+v"(ds[0]), "+v"(ds[1]));
    drop_absent();
    const int sequence = this->s_.index;
    block_of_dq = (int64_t{sequence} * this->p.nhead_q + walked_head) * one.row_blocks + at / 32;
    this->next_block(n);
    store_slopes();
  }

  // Keys behind the last are zeros, and so are their scores: P may be infinite, and dS times K no number.
  __device__ void drop_absent() {
    const int present = this->own_count - this->first - this->wave_rows();
    if (present >= 32) return;
    const bool absent = remade(lane) % 32 >= present;
    _Pragma("unroll") for (int i = 0; i < 8; ++i) ds[i / 4][i % 4] = absent ? 0 : ds[i / 4][i % 4];
  }

  // ---- dS in LDS, 512 bytes a row: 32 chunks of eight keys.

  __device__ void store_slopes() {
    const int l = remade(lane), half = l / 32;
    LdsByte* to = lds + kSlopes + half * 8 * kRowOfSlopes + ((wave * 4 + l % 32 / 8) ^ (half << 2)) * kChunk +
                  l % 8 * 2;
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      LdsByte* row = flipped(to, i * kChunk) + i * kRowOfSlopes;
      _Pragma("unroll") for (int high = 0; high < 2; ++high) {
        const uint32_t x = ds[high][i / 2];
        lds_store(row + high * 16 * kRowOfSlopes, static_cast<uint16_t>(i % 2 ? x >> 16 : x));
      }
    }
    __builtin_amdgcn_sched_barrier(0);
  }

  __device__ Pair read_slopes(const LdsByte* from, int c) const {
    const LdsByte* at_chunk = flipped(from, c * 4 * kChunk);
    return {lds_load<Dwords4>(at_chunk), lds_load<Dwords4>(at_chunk + 16 * kRowOfSlopes)};
  }

  // Rows of a result are rows of dS, and its columns are dims.
  __device__ void make_dq(int next) {
    const int l = remade(lane), row = l % 16;
    const LdsByte* from =
        lds + kSlopes + row * kRowOfSlopes + ((l / 16) ^ (row & 7) ^ (row >> 3 << 2)) * kChunk;
    Float4 dq[2] = {};
    Pair slopes[2] = {read_slopes(from, 0), {}};
    __builtin_amdgcn_s_setprio(1);
    _Pragma("unroll") for (int c = 0; c < kChunksOfKeys; ++c) {
      if (c + 1 < kChunksOfKeys) slopes[(c + 1) % 2] = read_slopes(from, c + 1);
      __builtin_amdgcn_sched_barrier(0);
      const Pair& x = slopes[c % 2];
      dq[0] = multiply<T>(low_half(x.x[0]), low_half(turned_k[c]), dq[0]);
      dq[1] = multiply<T>(low_half(x.x[1]), low_half(turned_k[c]), dq[1]);
      dq[0] = multiply<T>(high_half(x.x[0]), high_half(turned_k[c]), dq[0]);
      dq[1] = multiply<T>(high_half(x.x[1]), high_half(turned_k[c]), dq[1]);
      if (c == 0) load_keys<kKeysAhead, kKeysAhead + 1>();
      if (c == 1) load_keys<kKeysAhead + 1, kKeysAhead + 2>();
      if (c == 2) load_keys<kKeysAhead + 2, kKeysAhead + 3>();
      if (c == 3) load_keys<kKeysAhead + 3, kKeysAhead + 4>();
      __builtin_amdgcn_sched_barrier(0);
    }
    __builtin_amdgcn_s_setprio(0);
    split_row_sums(next);
    const Resource to =
        resource(one.dq_sums + block_of_dq * kSumsOfBlock + wave * kSumsOfWave, kSumsOfWave * sizeof(float));
    const float factor = this->p.scale;
    _Pragma("unroll") for (int t = 0; t < 2; ++t) {
      _Pragma("unroll") for (int j = 0; j < 4; ++j) {
        buffer_atomic_add(dq[t][j] * factor, to, l * 4 + (t * 4 + j) * 256, 0, 0);
      }
    }
    __builtin_amdgcn_sched_barrier(0);
  }

  const BwdOnePassParams& one;
  LdsByte* lds;
  int group;
  int64_t block_of_dq;
  Blocks tiles;
  Pair ring[2];
  Dwords4 of_s, of_dp;
  Dwords4 turned_k[kChunksOfKeys];
};

template <typename Side>
__device__ void run_one_pass(LdsByte* lds) {
  const auto& p = *reinterpret_cast<const BwdOnePassParams*>(__builtin_amdgcn_kernarg_segment_ptr());
  const BwdTask<true, Side::kOwnRows> task(p.both);
  if (!task.exists()) return;
  Side side(p, task);
  side.begin(lds);
  if (side.blocks > 0) side.walk();
  side.end();
}

}  // namespace fmha

// FMHA_BWD_ONE_PASS_KERNEL(symbol, type, head dim, score): a kernel and its facts.
#define FMHA_BWD_ONE_PASS_KERNEL(entry, type, hdim, score)                                                \
  using entry##_side = fmha::BwdOnePass<fmha::type, hdim, fmha::BwdScore::score>;                         \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                    \
  const fmha::BwdFp32Facts entry##_facts = {32,   entry##_side::kOwnRows, hdim,                           \
                                            hdim, entry##_side::kThreads, 1};                             \
  extern "C" __global__ __launch_bounds__(entry##_side::kThreads, 2) void entry(fmha::BwdOnePassParams) { \
    __shared__ __attribute__((aligned(256))) uint8_t lds[entry##_side::kLdsBytes];                        \
    fmha::run_one_pass<entry##_side>((fmha::LdsByte*)(lds)); /* NOLINT: changes address spaces */         \
  }

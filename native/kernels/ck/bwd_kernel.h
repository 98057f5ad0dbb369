// SPDX-License-Identifier: MIT OR Apache-2.0
// dK and dV of a tile of keys for one (batch, query head), and what it adds to dQ. The algorithm and its
// tuning are CK's pipeline (ck_tile::BlockFmhaBwdDQDKDVPipeline); this file makes an instance of it from a
// row of catalogue/bwd.toml, in place of CK's kernel, which needs an instance for each of batches and packed
// sequences, masked or not, and each type of dK and dV. See args/bwd.h for what comes before and after.
#pragma once

#include <hip/hip_runtime.h>

#include "args/bwd.h"
#include "ck/fixes.h"
// After it.
#include "ck/bwd_dbias.h"
#include "ck/bwd_scores.h"
#include "ck/in_row.h"
#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha.hpp"
#include "common/packed_rows.h"

namespace fmha {

using ck_tile::index_t;

// One instance. The mask, lengths, packed sequences and the type of dk and dv are run-time values.
struct BwdTraits {
  index_t block[9];      // kM0, kN0, kK0 to kK4, head dim of q and k, of v; as CK's generator lists them
  index_t waves_s[3];    // of a workgroup, in the products that give S and dP
  index_t waves_dkv[3];  // dK and dV
  index_t waves_dq[3];
  index_t mfma_s[3];  // M, N, K of a wave's tile, for S and dP
  index_t mfma_dkv[3];
  index_t hdim_step = 8;  // head dims: any multiple of it up to the tile's; 0: only the tile's
  bool alibi = false;     // at most one of these three
  bool bias = false;
  bool softcap = false;
  bool dropout = false;
  bool dbias = false;  // with `bias`: its gradient too
};

template <typename T, BwdTraits X>
struct CkBwdProblem {
  static constexpr index_t kDqK = ck_tile::min(X.mfma_s[2], X.block[6]);
  using Block = ck_tile::sequence<X.block[0], X.block[1], X.block[2], X.block[3], X.block[4], X.block[5],
                                  X.block[6], X.block[7], X.block[8]>;
  using WavesS = ck_tile::sequence<X.waves_s[0], X.waves_s[1], X.waves_s[2]>;
  using WavesDkv = ck_tile::sequence<X.waves_dkv[0], X.waves_dkv[1], X.waves_dkv[2]>;
  using WavesDq = ck_tile::sequence<X.waves_dq[0], X.waves_dq[1], X.waves_dq[2]>;
  using MfmaS = ck_tile::sequence<X.mfma_s[0], X.mfma_s[1], X.mfma_s[2]>;
  using MfmaDkv = ck_tile::sequence<X.mfma_dkv[0], X.mfma_dkv[1], X.mfma_dkv[2]>;
  using MfmaDq = ck_tile::sequence<X.mfma_s[0], X.mfma_s[1], kDqK>;
  using Shape = ck_tile::TileFmhaBwdShape<Block, WavesS, MfmaS, WavesDkv, MfmaDkv, WavesS, MfmaS, WavesDkv,
                                          MfmaDkv, WavesDq, MfmaDq>;
  using Mask = ck_tile::SimplifiedGenericAttentionMask<true>;
  using Dropout = ck_tile::BlockDropoutBwd<X.dropout, /*IsWG32=*/X.mfma_s[0] == 32, /*IsStoreRandval=*/false>;
  // What changes a score one by one is called as CK's ALiBi is: see ck/bwd_scores.h.
  static constexpr auto kBias = X.alibi || X.bias || X.softcap ? ck_tile::BlockAttentionBiasEnum::ALIBI
                                                               : ck_tile::BlockAttentionBiasEnum::NO_BIAS;
  using Traits = ck_tile::TileFmhaBwdTraits<X.hdim_step, X.hdim_step, kBias, /*kHasBiasGrad=*/false,
                                            /*kBlockPerCu=*/1>;
  using Problem = ck_tile::BlockFmhaBwdPipelineProblem<
      /*Q=*/T, /*K=*/T, /*V=*/T, /*Gemm=*/T, /*LSE=*/float, /*Acc=*/float, /*D=*/float, /*Bias=*/T,
      /*RandVal=*/uint8_t, /*O=*/T, /*dO=*/T, /*dQ=*/T, /*dK=*/T, /*dV=*/T, /*dBias=*/T, Shape,
      /*kIsGroupMode=*/false, /*kIsDeterministic=*/false, Mask, Dropout, /*kUseTrLoad=*/false, Traits>;
};

template <typename T, BwdTraits X>
struct BwdInstance {
  using P = CkBwdProblem<T, X>;
  using PlainPolicy = ck_tile::BlockFmhaBwdPipelineDefaultPolicy;
  using Policy =
      std::conditional_t<X.softcap, CappedPolicy, std::conditional_t<X.dbias, BiasedPolicy, PlainPolicy>>;
  using Pipeline = ck_tile::BlockFmhaBwdDQDKDVPipeline<typename P::Problem, Policy>;
  static constexpr index_t kBlockSize = Pipeline::kBlockSize;
  static constexpr index_t kBlockPerCu = Pipeline::kBlockPerCu;
  static constexpr index_t kM0 = Pipeline::kM0;
  static constexpr index_t kN0 = Pipeline::kN0;
  static constexpr index_t kHdimQ = Pipeline::kQKHeaddim;
  static constexpr index_t kHdimV = Pipeline::kVHeaddim;

  CK_TILE_DEVICE static void run() {
    __shared__ char lds[Pipeline::GetSmemSize()];
    const BwdKernelParams& p = arguments();
    const Sequence sequence = sequence_of(p);
    const index_t n0 = (p.round * gridDim.x + blockIdx.x) * kN0;
    if (n0 < sequence.seqlen_k) key_tile(p, sequence, n0, lds);
  }

 private:
  // The kernel's arguments, at an address that the compiler takes for another one each time: it would load
  // them all at the beginning, keep them until the end, and spill up to 137 SGPRs.
  CK_TILE_DEVICE static const BwdKernelParams& arguments() {
    auto* address = __builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(address));
    return *reinterpret_cast<const BwdKernelParams*>(address);
  }

  // A sequence of the batch: its lengths, and the first of its rows.
  struct Sequence {
    index_t seqlen_q, seqlen_k;
    int64_t batch;  // 0 of packed sequences
    int64_t first_q, first_k;
  };

  CK_TILE_DEVICE static Sequence sequence_of(const BwdKernelParams& p) {
    const index_t b = blockIdx.z;
    if (p.cu_q == nullptr) return {p.seqlen_q, p.seqlen_k, b, 0, 0};
    const PackedRows q = packed_rows(p.cu_q, p.used_q, b, p.total_q, p.seqlen_q);
    const PackedRows k = packed_rows(p.cu_k, p.used_k, b, p.total_k, p.seqlen_k);
    return {q.count, k.count, 0, q.first, k.first};
  }

  template <typename E>
  CK_TILE_DEVICE static E* rows_of(E* data, const BwdStrides& s, const Sequence& sequence, int64_t first,
                                   index_t head) {
    return data + sequence.batch * s.batch + head * s.nhead + first * s.row;
  }

  // Rows by head dims, of which those of the tile beyond `hdim` are 0.
  template <ck_tile::memory_operation_enum Write, index_t kRows, index_t kTile, index_t kVector, typename E>
  CK_TILE_DEVICE static auto window(E* data, index_t rows, index_t hdim, int64_t stride, index_t first) {
    const auto view = ck_tile::make_naive_tensor_view<ck_tile::address_space_enum::global, Write>(
        data, ck_tile::make_tuple(rows, hdim), ck_tile::make_tuple(static_cast<index_t>(stride), 1),
        ck_tile::number<kVector>{}, ck_tile::number<1>{});
    constexpr auto kLengths = ck_tile::make_tuple(ck_tile::number<kRows>{}, ck_tile::number<kTile>{});
    const auto padded =
        ck_tile::pad_tensor_view(view, kLengths, ck_tile::sequence<false, (X.hdim_step > 0)>{});
    return ck_tile::make_tile_window(padded, kLengths, {first, 0});
  }

  template <index_t kRows, index_t kTile, index_t kVector>
  CK_TILE_DEVICE static auto input(const void* data, const BwdStrides& s, const Sequence& sequence,
                                   int64_t first_row, index_t head, index_t rows, index_t hdim,
                                   index_t first) {
    const T* begin = rows_of(static_cast<const T*>(data), s, sequence, first_row, head);
    const auto plain =
        window<ck_tile::memory_operation_enum::set, kRows, kTile, kVector>(begin, rows, hdim, s.row, first);
    if constexpr (X.hdim_step == 0) {
      return plain;
    } else {
      return in_row(plain);
    }
  }

  CK_TILE_DEVICE static auto of_rows(const float* data, const BwdStrides& s, const Sequence& sequence,
                                     index_t head) {
    const auto view = ck_tile::make_naive_tensor_view_packed<ck_tile::address_space_enum::global>(
        rows_of(data, s, sequence, sequence.first_q, head), ck_tile::make_tuple(sequence.seqlen_q),
        ck_tile::number<kM0>{});
    return ck_tile::make_tile_window(view, ck_tile::make_tuple(ck_tile::number<kM0>{}), {0});
  }

  CK_TILE_DEVICE static auto position_encoding(const BwdKernelParams& p, const Sequence& sequence,
                                               index_t head) {
    if constexpr (X.alibi) {
      const float slope = p.alibi[static_cast<int64_t>(blockIdx.z) * p.alibi_stride_batch + head];
      const bool top_left = p.mask_type == static_cast<int32_t>(kTopLeft);
      return BwdAlibi{-slope * ck_tile::log2e_v<float>, top_left ? 0 : sequence.seqlen_k - sequence.seqlen_q};
    } else if constexpr (X.bias) {
      const T* data =
          rows_of(static_cast<const T*>(p.bias), p.bias_strides, sequence, sequence.first_q, head);
      const BwdBias<T> bias = {data, static_cast<index_t>(p.bias_strides.row), sequence.seqlen_q,
                               sequence.seqlen_k};
      if constexpr (X.dbias) {
        return with_grad(p, sequence, head, bias);
      } else {
        return bias;
      }
    } else if constexpr (X.softcap) {
      return BwdSoftcap{p.softcap * ck_tile::log2e_v<float>};
    } else {
      return ck_tile::EmptyPositionEncoding<float>{};
    }
  }

  CK_TILE_DEVICE static auto with_grad(const BwdKernelParams& p, const Sequence& sequence, index_t head,
                                       const BwdBias<T>& bias) {
    const int64_t size = p.dbias_adds ? sizeof(float) : sizeof(T);
    const BwdStrides& s = p.dbias_strides;
    const BwdStrides bytes = {s.batch * size, s.nhead * size, s.row * size};
    char* data = rows_of(static_cast<char*>(p.dbias), bytes, sequence, sequence.first_q, head);
    return BwdBiasAndGrad<T>{
        bias, {data, p.dbias_adds != 0, X.dropout ? p.rp_keep : 1.0F}, static_cast<index_t>(bytes.row)};
  }

  // The factor on the product of Q and K.
  CK_TILE_DEVICE static float factor(const BwdKernelParams& p) {
    const float scale = p.scale * ck_tile::log2e_v<float>;
    return X.softcap ? 2.0F * scale / p.softcap : scale;
  }

  CK_TILE_DEVICE static auto dropout_of(const BwdKernelParams& p, index_t head) {
    using Dropout = typename P::Dropout;
    if constexpr (X.dropout) {
      const uint64_t seed = p.philox ? p.philox[0] : p.philox_seed;
      const uint64_t offset = p.philox ? p.philox[1] : p.philox_offset;
      return Dropout{static_cast<index_t>(blockIdx.z),    head, p.nhead_q, seed, offset, p.rp_keep,
                     static_cast<uint8_t>(p.keep_at_most)};
    } else {
      return Dropout{};
    }
  }

  static constexpr auto kTopLeft = ck_tile::GenericAttentionMaskEnum::MASK_FROM_TOP_LEFT;

  CK_TILE_DEVICE static auto mask_of(const BwdKernelParams& p, const Sequence& sequence) {
    return ck_tile::make_generic_attention_mask_from_lr_window<typename P::Mask>(
        p.window_left, p.window_right, sequence.seqlen_q, sequence.seqlen_k,
        p.mask_type == static_cast<int32_t>(kTopLeft));
  }

  CK_TILE_DEVICE static void key_tile(const BwdKernelParams& p, const Sequence& s, index_t n0, char* lds) {
    const index_t head = blockIdx.y, head_k = head / p.nhead_ratio_qk;
    const auto mask = mask_of(p, s);
    const auto q = input<kM0, kHdimQ, Pipeline::kAlignmentQ>(p.q, p.q_strides, s, s.first_q, head, s.seqlen_q,
                                                             p.hdim_q, 0);
    const auto k = input<kN0, kHdimQ, Pipeline::kAlignmentK>(p.k, p.k_strides, s, s.first_k, head_k,
                                                             s.seqlen_k, p.hdim_q, n0);
    const auto v = input<kN0, kHdimV, Pipeline::kAlignmentV>(p.v, p.v_strides, s, s.first_k, head_k,
                                                             s.seqlen_k, p.hdim_v, n0);
    const auto dout = input<kM0, kHdimV, Pipeline::kAlignmentOGrad>(p.dout, p.dout_strides, s, s.first_q,
                                                                    head, s.seqlen_q, p.hdim_v, 0);
    float* dq_acc = rows_of(p.dq_acc, p.dq_acc_strides, s, s.first_q, head) + blockIdx.x * p.dq_acc_copy;
    const auto dq =
        window<ck_tile::memory_operation_enum::atomic_add, kM0, kHdimQ, Pipeline::kAlignmentQGrad>(
            dq_acc, s.seqlen_q, p.hdim_q, p.dq_acc_strides.row, 0);
    const auto none =
        ck_tile::make_null_tile_window(ck_tile::make_tuple(ck_tile::number<kM0>{}, ck_tile::number<kN0>{}));
    auto dropout = dropout_of(p, head);
    const auto [begin, end] = mask.GetTileRangeAlongY(n0, ck_tile::number<kM0>{}, ck_tile::number<kN0>{});
    if (end <= begin) return store_nothing(p, s, n0);
    const auto [dk, dv] =
        Pipeline{}(lds, q, k, v, none, none, dout, of_rows(p.lse, p.lse_strides, s, head),
                   of_rows(p.d, p.d_strides, s, head), dq, none, mask, position_encoding(p, s, head), p.scale,
                   factor(p), p.rp_keep, p.scale * p.rp_keep, dropout);
    const BwdKernelParams& again = arguments();
    store(again, sequence_of(again), n0, dk, dv);
  }

  template <typename Dk, typename Dv>
  CK_TILE_DEVICE static void store(const BwdKernelParams& p, const Sequence& s, index_t n0, const Dk& dk,
                                   const Dv& dv) {
    if (p.float_dkv) {
      store_as<float>(p, s, n0, dk, dv);
    } else {
      store_as<T>(p, s, n0, dk, dv);
    }
  }

  template <typename Out, typename Dk, typename Dv>
  CK_TILE_DEVICE static void store_as(const BwdKernelParams& p, const Sequence& s, index_t n0, const Dk& dk,
                                      const Dv& dv) {
    const index_t head = blockIdx.y;
    constexpr auto kSet = ck_tile::memory_operation_enum::set;
    auto dk_window = window<kSet, kN0, kHdimQ, Pipeline::kAlignmentKGrad>(
        rows_of(static_cast<Out*>(p.dk), p.dk_strides, s, s.first_k, head), s.seqlen_k, p.hdim_q,
        p.dk_strides.row, n0);
    auto dv_window = window<kSet, kN0, kHdimV, Pipeline::kAlignmentVGrad>(
        rows_of(static_cast<Out*>(p.dv), p.dv_strides, s, s.first_k, head), s.seqlen_k, p.hdim_v,
        p.dv_strides.row, n0);
    ck_tile::store_tile(dk_window, ck_tile::cast_tile<Out>(dk));
    ck_tile::store_tile(dv_window, ck_tile::cast_tile<Out>(dv));
  }

  // Keys that no row sees. CK's pipeline returns sums that it has not set.
  CK_TILE_DEVICE static void store_nothing(const BwdKernelParams& p, const Sequence& s, index_t n0) {
    using Policy = ck_tile::BlockFmhaBwdPipelineDefaultPolicy;
    auto dk = Policy::template GetSGradTQTBlockGemm<typename P::Problem>().MakeCBlockTile();
    auto dv = Policy::template GetPTOGradTBlockGemm<typename P::Problem>().MakeCBlockTile();
    ck_tile::clear_tile(dk);
    ck_tile::clear_tile(dv);
    store(p, s, n0, dk, dv);
  }
};

// Facts of an instance for the host. native/tools/catalogue/report.py reads them out of the code object.
struct BwdFacts {
  int32_t tile_m, tile_n, hdim_q, hdim_v, block_size, blocks_per_cu;
};

}  // namespace fmha

// FMHA_BWD_KERNEL(symbol, type of q, k, v, dout, {traits}): one kernel and its facts.
#define FMHA_BWD_KERNEL(entry, type, ...)                                                                    \
  using entry##_instance = fmha::BwdInstance<ck_tile::type, fmha::BwdTraits __VA_ARGS__>;                    \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                       \
  const fmha::BwdFacts entry##_facts = {entry##_instance::kM0,        entry##_instance::kN0,                 \
                                        entry##_instance::kHdimQ,     entry##_instance::kHdimV,              \
                                        entry##_instance::kBlockSize, entry##_instance::kBlockPerCu};        \
  extern "C" __global__ __launch_bounds__(entry##_instance::kBlockSize,                                      \
                                          entry##_instance::kBlockPerCu) void entry(fmha::BwdKernelParams) { \
    entry##_instance::run();                                                                                 \
  }

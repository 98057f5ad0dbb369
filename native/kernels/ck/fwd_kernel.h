// SPDX-License-Identifier: MIT OR Apache-2.0
// Forward attention, one (batch, query head, block of query rows) a workgroup. The algorithm and its tuning
// are CK's (ck_tile::FmhaFwdKernel); this file makes an instance of it from a row of catalogue/fwd.toml, and
// turns our arguments into CK's. It is compiled only for the device: the build writes translation units of
// FMHA_FWD_KERNEL lines, one a kernel (native/tools/catalogue/origins/ck_fwd.py).
#pragma once

#include <hip/hip_runtime.h>

#include "args/fwd.h"
#include "ck/fixes.h"
#include "ck/in_row.h"
#include "ck_tile/core.hpp"
#include "ck_tile/ops/epilogue.hpp"
#include "ck_tile/ops/fmha.hpp"
#include "common/packed_rows.h"

namespace ck_tile {

// CK has one name for the 8-bit float of whichever arch is compiled for; a row of the catalogue says which it
// is.
#if CK_TILE_USE_OCP_FP8
using fp8fn_t = fp8_t;
#else
using fp8fnuz_t = fp8_t;
#endif

}  // namespace ck_tile

namespace fmha {

using ck_tile::index_t;

enum class CkBias { kNone, kElementwise, kAlibi };
enum class PipelineKind { kQrAsync, kQr };

// One instance. Run-time values that cost nothing are not here: windows and the alignment of the mask,
// whether the LSE is stored, seqlens, smaller head dims.
struct FwdTraits {
  PipelineKind pipeline;
  index_t block[6];            // kM0, kN0, kK0, kN1, kK1, head dim of q and k, as CK's generator lists them
  index_t waves;               // side by side along the rows
  index_t mfma[3];             // M, N, K of the wave's tile
  index_t blocks_per_cu = -1;  // for which registers are budgeted; -1: CK's choice
  bool k_ahead = false;        // K two slices ahead (native/tools/compile/ck_overlay.py)
  index_t hdim_step = 8;       // head dims: any multiple of it up to the tile's; 0: only the tile's
  bool group = false;
  bool mask = false;
  bool pad = false;  // any seqlen_k; without, a positive multiple of kN0
  CkBias bias = CkBias::kNone;
  bool softcap = false;
  bool dropout = false;
};

template <typename Q>
constexpr bool is_fp8 = std::is_same_v<Q, ck_tile::fp8_t>;

// The part that kernels of the family share: CK's problem, from ours.
template <typename Q, typename O, FwdTraits T>
struct CkFwdProblem {
  using Block = ck_tile::sequence<T.block[0], T.block[1], T.block[2], T.block[3], T.block[4], T.block[5]>;
  using Waves = ck_tile::sequence<T.waves, 1, 1>;
  using WaveTile = ck_tile::sequence<T.mfma[0], T.mfma[1], T.mfma[2]>;
  using Shape = ck_tile::TileFmhaShape<Block, Waves, WaveTile, Waves, WaveTile, /*IsVLayoutRowMajor=*/true>;
  using Mask = ck_tile::SimplifiedGenericAttentionMask<T.mask>;
  using Variant =
      ck_tile::ComposedAttention<T.softcap * ck_tile::LOGITS_SOFT_CAP, CK_TILE_FMHA_FWD_FAST_EXP2>;
  static constexpr auto kBias = T.bias == CkBias::kElementwise
                                    ? ck_tile::BlockAttentionBiasEnum::ELEMENTWISE_BIAS
                                : T.bias == CkBias::kAlibi ? ck_tile::BlockAttentionBiasEnum::ALIBI
                                                           : ck_tile::BlockAttentionBiasEnum::NO_BIAS;
  // The asynchronous pipeline exists only with padded head dims, which cost it nothing.
  static constexpr bool kPadHeadDim = T.hdim_step != 0 || T.pipeline == PipelineKind::kQrAsync;
  // Any seqlen_q either way, which costs nothing.
  using Traits =
      ck_tile::TileFmhaTraits</*kPadSeqLenQ=*/true, /*kPadSeqLenK=*/T.pad, kPadHeadDim, kPadHeadDim,
                              T.softcap, kBias, /*kHasBiasGrad=*/false, /*kStoreLSE=*/true, T.dropout,
                              /*kDoFp8StaticQuant=*/is_fp8<Q>, T.blocks_per_cu,
                              /*kSkipMinSeqlenQ=*/false>;
  using Problem =
      ck_tile::BlockFmhaPipelineProblem</*Q=*/Q, /*K=*/Q, /*V=*/Q, /*Sacc=*/float, /*Softmax=*/float,
                                        /*Bias=*/std::conditional_t<is_fp8<Q>, float, Q>, /*RandVal=*/uint8_t,
                                        /*LSE=*/float, /*P=*/Q, /*Oacc=*/float, O, Shape,
                                        /*kIsGroupMode=*/false, Variant, Mask, /*kUseTrLoad=*/false, Traits>;
};

// The one of three LDS buffers that each slice of K, then of V, passes in a step. For head dims of 96 and
// 192 CK's order puts V's first slice in the buffer from which other waves still read K's last slice, with no
// barrier between. An order is right if V[0] is not K[last]; if V[last] is neither K[0] nor K[1], which are
// loaded for the next step; and if no two neighbours are the same.
template <bool KAhead>
struct AsyncPolicy : ck_tile::BlockFmhaPipelineQRKSVSAsyncDefaultPolicy {
  using Base = ck_tile::BlockFmhaPipelineQRKSVSAsyncDefaultPolicy;
  static constexpr bool kAhead = KAhead;  // read by what ck_overlay.py adds to the pipeline
  template <typename Problem>
  CK_TILE_HOST_DEVICE static constexpr auto GetLdsBufferSequence() {
    using Shape = typename Problem::BlockFmhaShape;
    constexpr index_t kSlicesOfK = Shape::kQKHeaddim / Shape::kK0;
    constexpr index_t kSlicesOfV = Shape::kN0 / Shape::kK1;
    if constexpr (kSlicesOfK == 3 && kSlicesOfV == 4) {
      return ck_tile::sequence<1, 2, 0, /*V*/ 2, 1, 2, 0>{};
    } else if constexpr (kSlicesOfK == 6 && kSlicesOfV == 4) {
      return ck_tile::sequence<1, 2, 0, 1, 2, 0, /*V*/ 2, 1, 2, 0>{};
    } else {
      return Base::template GetLdsBufferSequence<Problem>();
    }
  }
};

template <PipelineKind Kind, bool KAhead, typename Problem>
struct CkPipeline;
template <bool KAhead, typename Problem>
struct CkPipeline<PipelineKind::kQrAsync, KAhead, Problem>
    : ck_tile::BlockFmhaPipelineQRKSVSAsync<Problem, AsyncPolicy<KAhead>> {};
template <typename Problem>
struct CkPipeline<PipelineKind::kQr, false, Problem> : ck_tile::BlockFmhaPipelineQRKSVS<Problem> {
  // With padded head dims CK loads and stores element by element. Our head dims are multiples of 8 elements,
  // whole vectors, so that checking a vector's first element checks them all.
  using Policy = typename ck_tile::BlockFmhaPipelineQRKSVS<Problem>::Policy;
  static constexpr index_t kAlignmentQ = Policy::template GetAlignmentQ<Problem>();
  static constexpr index_t kAlignmentK = Policy::template GetAlignmentK<Problem>();
  static constexpr index_t kAlignmentV = Policy::template GetAlignmentV<Problem>();
  static constexpr index_t kAlignmentO = Policy::template GetAlignmentO<Problem>();
};

// Our additions to CK's pipeline: loads that stay in their rows, and a run-time choice whether the LSE is
// stored, so that one instance serves both. CK decides at compile time; an empty buffer makes the hardware
// drop the stores. Compared with an instance without LSE that costs no register and no instruction in the
// loop, and 49 instructions after it.
template <typename Base, FwdTraits T>
struct FwdPipeline : Base {
  // Rows of K and V beyond seqlen_k are beyond their buffers and need no check of ours. Rows of the bias and
  // of the random values are not, and CK has one switch for all.
  static constexpr bool kPadSeqLenK = T.pad && (T.bias == CkBias::kElementwise || T.dropout);

  // As CK's kernel calls it without element functions ...
  template <typename Q, typename K, typename V, typename Bias, typename RandVal, typename Lse, typename Mask,
            typename... Rest>
    requires requires(Mask mask) { Mask::IsMasking; }
  CK_TILE_DEVICE auto operator()(const Q& q, const K& k, const V& v, const Bias& bias, RandVal& randval,
                                 Lse& lse, Mask mask, Rest&&... rest) const {
    drop_stores_to_null(lse);
    if constexpr (T.pipeline == PipelineKind::kQrAsync && (T.mask || T.pad)) {
      if (sees_no_key(q, mask)) return no_key(lse);
    }
    return Base::operator()(q_rows_of(q), rows_of(k), rows_of(v), bias_rows_of(bias), randval, lse, mask,
                            static_cast<Rest&&>(rest)...);
  }

  // ... and with them (fp8).
  template <typename Q, typename Fq, typename K, typename Fk, typename V, typename Fv, typename Bias,
            typename Fbias, typename RandVal, typename Lse, typename... Rest>
  CK_TILE_DEVICE auto operator()(const Q& q, const Fq& fq, const K& k, const Fk& fk, const V& v, const Fv& fv,
                                 const Bias& bias, const Fbias& fbias, RandVal& randval, Lse& lse,
                                 Rest&&... rest) const {
    drop_stores_to_null(lse);
    return Base::operator()(q_rows_of(q), fq, rows_of(k), fk, rows_of(v), fv, bias_rows_of(bias), fbias,
                            randval, lse, static_cast<Rest&&>(rest)...);
  }

 private:
  // If head dims are the tile's, no row ends within it: without the check, d128 without a mask has 359 VALU
  // instructions in the loop, with it 407.
  template <typename Window>
  CK_TILE_DEVICE static auto rows_of(const Window& window) {
    if constexpr (T.hdim_step == 0) {
      return window;
    } else {
      return in_row(window);
    }
  }

  // True if no row of the tile sees a key. CK checks this too, but after it has begun to load Q by asm: the
  // compiler reuses the registers while those loads are still in flight.
  template <typename Window, typename Mask>
  CK_TILE_DEVICE static bool sees_no_key(const Window& q, Mask mask) {
    const auto row = q.get_window_origin().at(ck_tile::number<0>{});
    const auto [begin, end] =
        mask.GetTileRangeAlongX(row, ck_tile::number<Base::kM0>{}, ck_tile::number<Base::kN0>{});
    return ck_tile::integer_divide_ceil(end - begin, Base::kN0) <= 0;
  }

  // O and LSE of such a tile.
  template <typename Lse>
  CK_TILE_DEVICE static auto no_key(Lse& lse_window) {
    using Problem = typename Base::Problem;
    using Policy = typename Base::Policy;
    using Scores = decltype(Policy::template GetQKBlockGemm<Problem>().MakeCBlockTile());
    const auto max = [](auto a, auto b) { return ck_tile::max(a, b); };
    using RowMax = decltype(ck_tile::block_tile_reduce<float>(Scores{}, ck_tile::sequence<1>{}, max, 0.0f));
    auto lse = ck_tile::make_static_distributed_tensor<float>(RowMax{}.get_tile_distribution());
    ck_tile::set_tile(lse, -ck_tile::numeric<float>::infinity());
    ck_tile::store_tile(lse_window, lse);
    auto o = decltype(Policy::template GetKVBlockGemm<Problem>().MakeCBlockTile()){};
    ck_tile::clear_tile(o);
    return o;
  }

  // The asynchronous pipeline loads Q by its own asm, which checks.
  template <typename Window>
  CK_TILE_DEVICE static auto q_rows_of(const Window& q) {
    if constexpr (T.pipeline == PipelineKind::kQrAsync) {
      return q;
    } else {
      return rows_of(q);
    }
  }

  template <typename Window>
  CK_TILE_DEVICE static auto bias_rows_of(const Window& bias) {
    if constexpr (T.bias == CkBias::kElementwise) {
      return in_row(bias);
    } else {
      return bias;
    }
  }

  template <typename Lse>
  CK_TILE_DEVICE static void drop_stores_to_null(Lse& lse) {
    auto& buffer = lse.bottom_tensor_view_.buf_;
    if (buffer.p_data_ == nullptr) buffer.buffer_size_ = 0;
  }
};

template <typename Q, typename O, FwdTraits T>
struct FwdInstance {
  using P = CkFwdProblem<Q, O, T>;
  using Pipeline = FwdPipeline<CkPipeline<T.pipeline, T.k_ahead, typename P::Problem>, T>;
  using Epilogue = ck_tile::Default2DEpilogue<
      ck_tile::Default2DEpilogueProblem<float, O, P::Traits::kPadSeqLenQ, P::Traits::kPadHeadDimV>>;
  using Kernel = ck_tile::FmhaFwdKernel<Pipeline, Epilogue>;
  using Kargs = typename Kernel::Kargs;
  static constexpr index_t kBlockSize = Kernel::kBlockSize;
  static constexpr index_t kBlockPerCu = Kernel::kBlockPerCu;

  // A vector that begins within a row must end within it.
  static_assert(T.hdim_step == 0 ||
                (T.hdim_step % Pipeline::kAlignmentQ == 0 && T.hdim_step % Pipeline::kAlignmentK == 0 &&
                 T.hdim_step % Pipeline::kAlignmentV == 0 && T.hdim_step % Pipeline::kAlignmentO == 0));
  static_assert(!T.group || T.pad, "the lengths of group mode are not known to be multiples of anything");

  CK_TILE_DEVICE static void run(const FwdKernelParams& p) {
    Kargs args{};
    set_common(args, p);
    set_lse(args, p);
    if constexpr (T.mask) set_mask(args, p);
    if constexpr (T.bias == CkBias::kElementwise) set_bias(args, p);
    if constexpr (T.bias == CkBias::kAlibi) set_alibi(args, p);
    if constexpr (T.softcap) {
      args.logits_soft_cap = p.softcap;
      args.logits_soft_cap_rcp = 1.0f / p.softcap;
    }
    if constexpr (T.dropout) set_dropout(args, p);
    if constexpr (is_fp8<Q>) {
      args.scale_p = p.scale_p;
      args.scale_o = p.scale_o;
    }
    if constexpr (T.group) {
      if (!set_sequence(args, p)) return;
    } else {
      set_batch(args, p);
    }
    Kernel{}(args);
  }

 private:
  CK_TILE_DEVICE static void set_common(Kargs& args, const FwdKernelParams& p) {
    args.q_ptr = p.q;
    args.k_ptr = p.k;
    args.v_ptr = p.v;
    args.o_ptr = p.o;
    args.seqlen_q = p.seqlen_q;
    args.seqlen_k = p.seqlen_k;
    // Taken from the host even where the head dim is known here: with a constant, clang 19 moves buffer
    // descriptors into vector registers, and the pipeline's asm does not assemble.
    args.hdim_q = p.hdim_q;
    args.hdim_v = p.hdim_v;
    args.num_head_q = p.nhead_q;
    args.nhead_ratio_qk = p.nhead_ratio_qk;
    args.scale_s = p.scale_log2e;
    args.stride_q = p.stride_q;
    args.stride_k = p.stride_k;
    args.stride_v = p.stride_v;
    args.stride_o = p.stride_o;
    args.nhead_stride_q = p.nhead_stride_q;
    args.nhead_stride_k = p.nhead_stride_k;
    args.nhead_stride_v = p.nhead_stride_v;
    args.nhead_stride_o = p.nhead_stride_o;
  }

  CK_TILE_DEVICE static void set_batch(Kargs& args, const FwdKernelParams& p) {
    args.batch_stride_q = p.batch_stride_q;
    args.batch_stride_k = p.batch_stride_k;
    args.batch_stride_v = p.batch_stride_v;
    args.batch_stride_o = p.batch_stride_o;
    args.batch_stride_lse = p.lse ? p.batch_stride_lse : 0;
    if constexpr (T.bias == CkBias::kElementwise) args.batch_stride_bias = p.batch_stride_bias;
    if constexpr (T.dropout) args.batch_stride_randval = p.batch_stride_randval;
  }

  // Makes the workgroup's packed sequence a batch, each entry of which has its address and lengths. CK's own
  // group mode would believe the arrays whatever they hold. Returns false if the tile has no row.
  CK_TILE_DEVICE static bool set_sequence(Kargs& args, const FwdKernelParams& p) {
    const auto [tile, tile_of_v, head, b] = Kernel::GetTileIndex(args);
    const PackedRows q = packed_rows(p.cu_q, p.used_q, b, p.total_q, p.seqlen_q);
    if (q.count <= static_cast<index_t>(tile) * Pipeline::kM0) return false;
    const PackedRows k = packed_rows(p.cu_k, p.used_k, b, p.total_k, p.seqlen_k);
    args.seqlen_q = q.count;
    args.seqlen_k = k.count;
    args.q_ptr = row_of<Q>(p.q, q.first, p.stride_q);
    args.k_ptr = row_of<Q>(p.k, k.first, p.stride_k);
    args.v_ptr = row_of<Q>(p.v, k.first, p.stride_v);
    args.o_ptr = row_of<O>(p.o, q.first, p.stride_o);
    if (p.lse != nullptr) args.lse_ptr = p.lse + q.first;
    if constexpr (T.bias == CkBias::kElementwise) args.bias_ptr = row_of<Q>(p.bias, q.first, p.stride_bias);
    if constexpr (T.dropout) args.rand_val_ptr = row_of<uint8_t>(p.randval, q.first, p.stride_randval);
    return true;
  }

  template <typename E>
  CK_TILE_DEVICE static const E* row_of(const void* data, int64_t row, index_t stride) {
    return static_cast<const E*>(data) + row * stride;
  }
  template <typename E>
  CK_TILE_DEVICE static E* row_of(void* data, int64_t row, index_t stride) {
    return static_cast<E*>(data) + row * stride;
  }

  CK_TILE_DEVICE static void set_lse(Kargs& args, const FwdKernelParams& p) {
    // Without an LSE the strides are zero, so that every workgroup sees the null pointer itself.
    args.lse_ptr = p.lse;
    args.nhead_stride_lse = p.lse ? p.nhead_stride_lse : 0;
  }

  CK_TILE_DEVICE static void set_mask(Kargs& args, const FwdKernelParams& p) {
    args.window_size_left = p.window_left;
    args.window_size_right = p.window_right;
    args.mask_type = static_cast<ck_tile::GenericAttentionMaskEnum>(p.mask_type);
  }

  CK_TILE_DEVICE static void set_bias(Kargs& args, const FwdKernelParams& p) {
    args.bias_ptr = p.bias;
    args.stride_bias = p.stride_bias;
    args.nhead_stride_bias = p.nhead_stride_bias;
  }

  CK_TILE_DEVICE static void set_alibi(Kargs& args, const FwdKernelParams& p) {
    args.alibi_slope_ptr = p.alibi;
    args.alibi_slope_stride = p.batch_stride_alibi;
  }

  CK_TILE_DEVICE static void set_dropout(Kargs& args, const FwdKernelParams& p) {
    args.rp_undrop = p.rp_keep;
    args.p_undrop_in_uint8_t = static_cast<uint8_t>(p.keep_at_most);
    args.is_store_randval = p.randval != nullptr;
    args.rand_val_ptr = p.randval;
    args.stride_randval = p.stride_randval;
    args.nhead_stride_randval = p.nhead_stride_randval;
    args.is_drop_seed_offset_from_host = p.philox == nullptr;
    if (p.philox != nullptr) {
      args.drop_seed.ptr = p.philox;
      args.drop_offset.ptr = p.philox + 1;
    } else {
      args.drop_seed.val = p.philox_seed;
      args.drop_offset.val = p.philox_offset;
    }
  }
};

// Facts of an instance for the host. native/tools/catalogue/report.py reads them out of the code object.
struct FwdFacts {
  int32_t tile_m, tile_n, tile_nv, hdim_q, block_size, blocks_per_cu;
};

}  // namespace fmha

// FMHA_FWD_KERNEL(symbol, type of q, k and v, type of o, {traits}): one kernel and its facts.
#define FMHA_FWD_KERNEL(entry, q_type, o_type, ...)                                                          \
  using entry##_instance = fmha::FwdInstance<ck_tile::q_type, ck_tile::o_type, fmha::FwdTraits __VA_ARGS__>; \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                       \
  const fmha::FwdFacts entry##_facts = {                                                                     \
      entry##_instance::Pipeline::kM0, entry##_instance::Pipeline::kN0,                                      \
      entry##_instance::Pipeline::kN1, entry##_instance::Pipeline::kQKHeaddim,                               \
      entry##_instance::kBlockSize,    entry##_instance::kBlockPerCu};                                       \
  extern "C" __global__ __launch_bounds__(                                                                   \
      entry##_instance::kBlockSize, entry##_instance::kBlockPerCu) void entry(fmha::FwdKernelParams p) {     \
    entry##_instance::run(p);                                                                                \
  }

// SPDX-License-Identifier: MIT OR Apache-2.0
// Forward attention, one (batch, query head, block of query rows) a workgroup. Compiled once per row of
// catalogue.toml, device side only, with these macros:
//
//   FMHA_ENTRY    symbol of the kernel
//   FMHA_DTYPE    fp16_t or bf16_t (of ck_tile): type of q, k, v and o
//   FMHA_HDIM     head dim of q, k and v, exactly
//   FMHA_MASK     1: CK's generic mask; causal, its alignment and windows are run-time values. 0: none
//   FMHA_PAD      1: any seqlen_k. 0: seqlen_k a positive multiple of the key tile. Any seqlen_q either way
//
// The algorithm and all of its tuning are CK's (ck_tile::FmhaFwdKernel); this file chooses the instance as
// CK's own generator does for gfx9, and turns our arguments into CK's.
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 4  // rta_asm, replaced just below
#define CK_TILE_FMHA_FWD_FAST_EXP2 1         // base-2 exponentials: half the instructions of the main loop

#include "ck_tile/core/numeric/bfloat16.hpp"

// Two functions of CK are replaced by specialisations of ours, each declared before CK first uses it.
namespace ck_tile {

// float to bf16 to nearest, ties away from zero: one add an element. CK's own way to round like that is an
// asm volatile that stops the scheduler (519 VALU instructions in the d128 loop against 359 here). The add
// may carry into the exponent, as rounding should; it cannot make a NaN finite, since those that reach it
// (from bf16 inputs, or the hardware's own 0x7fc00000) have nothing in the low half.
template <>
CK_TILE_HOST_DEVICE constexpr uint16_t float_to_bf16_raw<bf16_rounding_mode::rta_asm>(
    float value, constant<bf16_rounding_mode::rta_asm>) {
  return static_cast<uint16_t>((ck_tile::bit_cast<uint32_t>(value) + 0x8000u) >> 16);
}

}  // namespace ck_tile

#include "ck_tile/core/arch/amd_buffer_addressing_builtins.hpp"

namespace ck_tile {

// A load from memory to LDS, whose address comes from M0. The hardware wants one wait state between a scalar
// write of M0 and this load; the compiler keeps it for its own instructions, not for CK's asm, which left it
// out in five of twelve kernels. One s_nop a load: 32 of some 4000 cycles of a d128 step.
template <>
CK_TILE_DEVICE void async_buffer_load_dwordxn_v<1, false>(void* smem, int32x4_t rsrc, index_t voffset,
                                                          index_t /*soffset*/, index_t ioffset,
                                                          index_t /*flag*/, bool_constant<false>) {
  asm volatile("s_nop 0\n\tbuffer_load_dword %1, %2, 0 offen offset:%3 lds"
               : "=r"(smem)  // so that what reads smem stays behind the load
               : "v"(voffset), "s"(rsrc), "n"(ioffset)
               : "memory");
}

}  // namespace ck_tile

#include <hip/hip_runtime.h>

#include "ck_tile/core.hpp"
#include "ck_tile/ops/epilogue.hpp"
#include "ck_tile/ops/fmha.hpp"
#include "params.h"

namespace {

using DType = ck_tile::FMHA_DTYPE;
constexpr bool kPad = FMHA_PAD;
constexpr ck_tile::index_t kHdim = FMHA_HDIM;

// Tiles as CK chooses them for gfx9: four waves side by side along the rows, 32x32x16 MFMA.
template <ck_tile::index_t Hdim>
struct TileOf;
template <>  // kM0, kN0, kK0, kN1, kK1, hdim
struct TileOf<64> {
  using Block = ck_tile::sequence<128, 64, 32, 64, 32, 64>;
};
template <>
struct TileOf<128> {
  using Block = ck_tile::sequence<128, 128, 32, 128, 32, 128>;
};
using Waves = ck_tile::sequence<4, 1, 1>;
using WaveTile = ck_tile::sequence<32, 32, 16>;
using Shape = ck_tile::TileFmhaShape<TileOf<kHdim>::Block, Waves, WaveTile, Waves, WaveTile,
                                     /*IsVLayoutRowMajor=*/true>;

// The async pipeline wants the padded form for all but seqlen_k, where it costs nothing.
using Traits = ck_tile::TileFmhaTraits</*kPadSeqLenQ=*/true, /*kPadSeqLenK=*/kPad, /*kPadHeadDimQ=*/true,
                                       /*kPadHeadDimV=*/true, /*kHasLogitsSoftCap=*/false,
                                       ck_tile::BlockAttentionBiasEnum::NO_BIAS, /*kHasBiasGrad=*/false,
                                       /*kStoreLSE=*/true, /*kHasDropout=*/false, /*kDoFp8StaticQuant=*/false,
                                       /*kBlockPerCu: CK's choice=*/-1, /*kSkipMinSeqlenQ=*/false>;
using Mask = ck_tile::SimplifiedGenericAttentionMask<FMHA_MASK>;
using Variant = ck_tile::ComposedAttention<0, CK_TILE_FMHA_FWD_FAST_EXP2>;
using Problem =
    ck_tile::BlockFmhaPipelineProblem</*Q=*/DType, /*K=*/DType, /*V=*/DType, /*Sacc=*/float,
                                      /*Softmax=*/float, /*Bias=*/DType, /*RandVal=*/uint8_t, /*LSE=*/float,
                                      /*P=*/DType, /*Oacc=*/float, /*O=*/DType, Shape, /*kIsGroupMode=*/false,
                                      Variant, Mask, /*kUseTrLoad=*/false, Traits>;

// Decides at run time whether the LSE is stored, so that one instance serves both. CK's pipeline stores it
// whenever it was compiled to; a buffer of no elements makes the hardware drop those stores. Against an
// instance without LSE: not an instruction more in the loop, no register more, 49 instructions after it.
template <typename Pipeline>
struct OptionalLse : Pipeline {
  template <typename Q, typename K, typename V, typename Bias, typename RandVal, typename Lse,
            typename... Rest>
  CK_TILE_DEVICE auto operator()(const Q& q, const K& k, const V& v, const Bias& bias, RandVal& randval,
                                 Lse& lse, Rest&&... rest) const {
    auto& buffer = lse.bottom_tensor_view_.buf_;
    if (buffer.p_data_ == nullptr) buffer.buffer_size_ = 0;
    return Pipeline::operator()(q, k, v, bias, randval, lse, static_cast<Rest&&>(rest)...);
  }
};

using Pipeline = OptionalLse<ck_tile::BlockFmhaPipelineQRKSVSAsync<Problem>>;
using Epilogue = ck_tile::Default2DEpilogue<
    ck_tile::Default2DEpilogueProblem<float, DType, Traits::kPadSeqLenQ, Traits::kPadHeadDimV>>;
using Kernel = ck_tile::FmhaFwdKernel<Pipeline, Epilogue>;

template <typename Kargs>  // a template, since Kargs has these members in masked instances alone
CK_TILE_DEVICE void set_mask(Kargs& args, const fmha::FwdKernelParams& p) {
  if constexpr (Kernel::kHasMask) {
    args.window_size_left = p.window_left;
    args.window_size_right = p.window_right;
    args.mask_type = static_cast<ck_tile::GenericAttentionMaskEnum>(p.mask_type);
  }
}

}  // namespace

// What the host must know of this instance, read out of the code object by the build
// (native/tools/report.py).
extern "C" __device__ __attribute__((used, visibility("protected")))
const int32_t fmha_kernel_facts[4] = {Pipeline::kM0, Pipeline::kN0, Pipeline::kN1, Kernel::kBlockSize};

extern "C" __global__ __launch_bounds__(Kernel::kBlockSize,
                                        Kernel::kBlockPerCu) void FMHA_ENTRY(fmha::FwdKernelParams p) {
  Kernel::Kargs args{};
  args.q_ptr = p.q;
  args.k_ptr = p.k;
  args.v_ptr = p.v;
  args.o_ptr = p.o;
  args.seqlen_q = p.seqlen_q;
  args.seqlen_k = p.seqlen_k;
  // Taken from the host though FMHA_HDIM is known here: with a constant, clang 19 moves buffer descriptors
  // into vector registers, and the pipeline's asm does not assemble.
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
  args.batch_stride_q = p.batch_stride_q;
  args.batch_stride_k = p.batch_stride_k;
  args.batch_stride_v = p.batch_stride_v;
  args.batch_stride_o = p.batch_stride_o;
  // Without an LSE the strides are zero, so that every workgroup sees the null pointer itself.
  args.lse_ptr = p.lse;
  args.nhead_stride_lse = p.lse ? p.nhead_stride_lse : 0;
  args.batch_stride_lse = p.lse ? p.batch_stride_lse : 0;
  set_mask(args, p);
  Kernel{}(args);
}

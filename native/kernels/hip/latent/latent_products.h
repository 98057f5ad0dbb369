// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of hip/latent/latent.h that add up in VGPRs. O takes all AGPRs, and the compiler, which has all
// products in the same registers, would exchange some of O for the scores in each block.
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

#if defined(__gfx950__)
#define FMHA_LATENT_FP16 "v_mfma_f32_32x32x16_f16"
#define FMHA_LATENT_BF16 "v_mfma_f32_32x32x16_bf16"
#define FMHA_LATENT_WAIT "s_nop 11"
#elif defined(__gfx942__)
#define FMHA_LATENT_FP16 "v_mfma_f32_32x32x8_f16"
#define FMHA_LATENT_BF16 "v_mfma_f32_32x32x8_bf16"
#define FMHA_LATENT_WAIT "s_nop 10"
#else
#define FMHA_LATENT_FP16 "v_mfma_f32_32x32x8f16"
#define FMHA_LATENT_BF16 "v_mfma_f32_32x32x8bf16_1k"
#define FMHA_LATENT_WAIT "s_nop 15\n\ts_nop 2"
#endif

// The compiler does not know that these are products: until `wait_for_sum` the sum is for nothing else.
// The first one's sum is new, and waits for operands that were copied just before.
template <typename T, typename Operand>
__device__ inline void sum_in_vgprs(Operand a, Operand b, Float16& sum, bool first) {
  if constexpr (__is_same(T, Fp16)) {
    if (first) {
      asm volatile("s_nop 1\n\t" FMHA_LATENT_FP16 " %0, %1, %2, 0" : "=&v"(sum) : "v"(a), "v"(b));
    } else {
      asm volatile(FMHA_LATENT_FP16 " %0, %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b));
    }
  } else {
    if (first) {
      asm volatile("s_nop 1\n\t" FMHA_LATENT_BF16 " %0, %1, %2, 0" : "=&v"(sum) : "v"(a), "v"(b));
    } else {
      asm volatile(FMHA_LATENT_BF16 " %0, %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b));
    }
  }
}

// a (32 x 16) times b (16 x 32), as multiply_one has it.
template <typename T>
__device__ inline void multiply_in_vgprs(Dwords4 a, Dwords4 b, Float16& sum, bool first) {
#if defined(__gfx950__)
  sum_in_vgprs<T>(a, b, sum, first);
#else
  sum_in_vgprs<T>(low_half(a), low_half(b), sum, first);
  sum_in_vgprs<T>(high_half(a), high_half(b), sum, false);
#endif
}

// As long as the next to read or write the sum must wait.
__device__ inline void wait_for_sum(Float16& sum) { asm volatile(FMHA_LATENT_WAIT : "+v"(sum)); }

#undef FMHA_LATENT_FP16
#undef FMHA_LATENT_BF16
#undef FMHA_LATENT_WAIT

}  // namespace fmha

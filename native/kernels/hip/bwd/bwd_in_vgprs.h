// SPDX-License-Identifier: MIT OR Apache-2.0
// Matrix instructions whose results vector instructions read, of kernels whose other sums fill the AGPRs.
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// As multiply32 and multiply, with a result in VGPRs. The compiler does not know that it comes late: see
// wait_for_scores. Nor does it know that operands which vector instructions have just made come late: the
// first product waits for those. It must not make one of two equal ones, and copy its result.
#define FMHA_MULTIPLY_IN_VGPRS(instruction)                                               \
  if (first) {                                                                            \
    decltype(c) d;                                                                        \
    asm volatile("s_nop 1\n\t" instruction " %0, %1, %2, 0" : "=&v"(d) : "v"(a), "v"(b)); \
    return d;                                                                             \
  }                                                                                       \
  asm(instruction " %0, %1, %2, %0" : "+v"(c) : "v"(a), "v"(b));                          \
  return c
template <typename T>
__device__ inline Float16 multiply_in_vgprs(Dwords2 a, Dwords2 b, Float16 c, bool first = false) {
  if constexpr (__is_same(T, Fp16)) {
    FMHA_MULTIPLY_IN_VGPRS("v_mfma_f32_32x32x8_f16");
  } else {
    FMHA_MULTIPLY_IN_VGPRS("v_mfma_f32_32x32x8_bf16");
  }
}
template <typename T>
__device__ inline Float4 multiply_in_vgprs(Dwords2 a, Dwords2 b, Float4 c, bool first = false) {
  if constexpr (__is_same(T, Fp16)) {
    FMHA_MULTIPLY_IN_VGPRS("v_mfma_f32_16x16x16_f16");
  } else {
    FMHA_MULTIPLY_IN_VGPRS("v_mfma_f32_16x16x16_bf16");
  }
}
#if defined(__gfx950__)
template <typename T>
__device__ inline Float16 multiply_in_vgprs(Dwords4 a, Dwords4 b, Float16 c, bool first = false) {
  if constexpr (__is_same(T, Fp16)) {
    FMHA_MULTIPLY_IN_VGPRS("v_mfma_f32_32x32x16_f16");
  } else {
    FMHA_MULTIPLY_IN_VGPRS("v_mfma_f32_32x32x16_bf16");
  }
}
#endif
#undef FMHA_MULTIPLY_IN_VGPRS

// Until the last result of multiply_in_vgprs is there.
__device__ inline void wait_for_scores() {
  asm volatile("s_nop 11" ::: "memory");
  __builtin_amdgcn_sched_barrier(0);
}

}  // namespace fmha

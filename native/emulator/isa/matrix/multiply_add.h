// SPDX-License-Identifier: MIT OR Apache-2.0
// Vectors of the host, and the fused multiply-add of the matrix instructions.
#pragma once

#include <immintrin.h>

#include <cstring>

namespace fmha::emu::FMHA_EMU_LEVEL {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRegisterCount = 32;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kRegisterCount = 16;
#else
constexpr int kVectorBytes = 16, kRegisterCount = 16;
#endif

// The host multiplies and adds with one rounding.
#if defined(__FMA__)
constexpr bool kFused = true;
#else
constexpr bool kFused = false;
#endif

template <class T, int Count>
struct VectorOf {
  typedef T type __attribute__((vector_size(Count * sizeof(T))));
};
template <class T, int Count>
using Vector = typename VectorOf<T, Count>::type;

// a * b + c, rounded once. Below AVX2 there is no such instruction: f32 holds the product of two f16 or fp8
// exactly; of bf16 and xf32, double holds product and sum well enough to round once more without harm (the
// product has at most 22 bits, so no sum of it and an f32 that rounds in double is half way between two f32);
// f32 and f64 go to libm.
template <class In, class V>
[[gnu::always_inline]] inline V multiply_add(V a, V b, V c) {
  using T = decltype(a[0] + a[0]);
  if constexpr (static_cast<T>(0.5) == 0) {
    return a * b + c;  // integers
  } else {
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
      return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
    if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
      return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#endif
#if defined(__FMA__)
    if constexpr (sizeof(V) == 32 && sizeof(T) == 4)
      return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
    if constexpr (sizeof(V) == 32 && sizeof(T) == 8)
      return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
    if constexpr (sizeof(V) == 16) return (V)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#endif
    if constexpr (In::kExactProduct) return a * b + c;
    V r;
    for (unsigned i = 0; i < sizeof(V) / sizeof(T); ++i) {
      if constexpr (sizeof(T) == 8) {
        r[i] = __builtin_fma(a[i], b[i], c[i]);
      } else if constexpr (In::kSignificantBits > 11) {
        r[i] = __builtin_fmaf(a[i], b[i], c[i]);
      } else {
        r[i] = static_cast<float>(static_cast<double>(a[i]) * static_cast<double>(b[i]) +
                                  static_cast<double>(c[i]));
      }
    }
    return r;
  }
}

template <class V, class T>
[[gnu::always_inline]] inline V splat(T x) {
  int bits = 0;
  if constexpr (sizeof(T) == 4) std::memcpy(&bits, &x, 4);
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4) return (V)_mm512_set1_epi32(bits);
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32 && sizeof(T) == 4) return (V)_mm256_set1_epi32(bits);
#endif
  if constexpr (sizeof(V) == 16 && sizeof(T) == 4) return (V)_mm_set1_epi32(bits);
  V v;
  for (unsigned i = 0; i < sizeof(V) / sizeof(T); ++i) v[i] = x;
  return v;
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL

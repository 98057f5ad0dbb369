// SPDX-License-Identifier: MIT OR Apache-2.0
// The element types of our own memory-bound kernels: eight at a time, computed in float32.
#pragma once

#include "common/device.h"

namespace fmha {

using Fp16 = _Float16;
using Bf16 = __bf16;
using Fp32 = float;

// 8-bit floats, as their bits: e4m3fnuz, and OCP's e4m3fn. An arch's instructions know one of them at most.
struct Fp8 {
  uint8_t bits;
};
struct Fp8fn {
  uint8_t bits;
};
#if defined(__gfx942__)
#define FMHA_HAS_FP8 1
using ArchFp8 = Fp8;
inline constexpr float kLargestFp8 = 240;
#elif defined(__gfx950__) || defined(__GFX12__)
#define FMHA_HAS_FP8 1
using ArchFp8 = Fp8fn;
inline constexpr float kLargestFp8 = 448;
#else
using ArchFp8 = void;
#endif

inline constexpr int kPerThread = 8;  // elements, 16 bytes of 16 bits: head dims are multiples of it

template <typename T>
struct alignas(kPerThread * sizeof(T) < 16 ? 8 : 16) Eight {
  T x[kPerThread];
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(_Float16 x) { return static_cast<float>(x); }
__device__ inline float to_float(__bf16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(__builtin_bit_cast(uint16_t, x)) << 16);
}

// To nearest, ties to even.
__device__ inline void round_to(float& out, float x) { out = x; }
__device__ inline void round_to(_Float16& out, float x) { out = static_cast<_Float16>(x); }
__device__ inline void round_to(__bf16& out, float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = x != x ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
  out = __builtin_bit_cast(__bf16, static_cast<uint16_t>(rounded >> 16));
}

// The same number, of which the compiler does not know that it is: what is computed of it in a loop it would
// compute once, and keep in registers that are needed.
template <typename I>
__device__ inline I remade(I x) {
  asm volatile("" : "+v"(x));
  return x;
}

// The same of a number that all lanes have.
template <typename I>
__device__ inline I remade_scalar(I x) {
  asm volatile("" : "+s"(x));
  return x;
}

}  // namespace fmha

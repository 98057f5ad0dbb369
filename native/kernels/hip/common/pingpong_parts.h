// SPDX-License-Identifier: MIT OR Apache-2.0
// The parts that hip/fwd/fwd_pingpong.h and hip/bwd/bwd_pingpong.h share: matrix instructions, barriers, and
// tiles of rows in LDS.
#pragma once

#include "common/device.h"
#include "hip/common/memory.h"
#include "hip/common/products.h"

namespace fmha {

using Float16 = __attribute__((ext_vector_type(16))) float;

// a (32 x 8, or of 8-bit floats 16) times b (8 x 32), added to c. A lane has row lane % 32 of a and columns
// lane / 32 * 4 on; the same of b with rows and columns exchanged; column lane % 32 of c, and in element 4 *
// i + j row 8 * i + lane / 32 * 4 + j.
template <typename T>
__device__ inline Float16 multiply32(Dwords2 a, Dwords2 b, Float16 c) {
  if constexpr (sizeof(T) == 1) {
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(__builtin_bit_cast(int64_t, a),
                                                      __builtin_bit_cast(int64_t, b), c, 0, 0, 0);
  } else if constexpr (__is_same(T, Fp16)) {
    return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(Half4, a), __builtin_bit_cast(Half4, b), c,
                                                0, 0, 0);
  } else {
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(Short4, a),
                                                    __builtin_bit_cast(Short4, b), c, 0, 0, 0);
  }
}

#if defined(__gfx950__)
// a (32 x 16) times b (16 x 32): a lane has columns lane / 32 * 8 on.
template <typename T>
__device__ inline Float16 multiply32(Dwords4 a, Dwords4 b, Float16 c) {
  if constexpr (__is_same(T, Fp16)) {
    using Half8 = __attribute__((ext_vector_type(8))) _Float16;
    return __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(Half8, a), __builtin_bit_cast(Half8, b),
                                                  c, 0, 0, 0);
  } else {
    using Bfloat8 = __attribute__((ext_vector_type(8))) __bf16;
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(Bfloat8, a),
                                                   __builtin_bit_cast(Bfloat8, b), c, 0, 0, 0);
  }
}
#endif

__device__ inline Dwords2 low_half(Dwords4 x) { return {x[0], x[1]}; }
__device__ inline Dwords2 high_half(Dwords4 x) { return {x[2], x[3]}; }

// Two numbers, to nearest, ties to even.
template <typename T>
__device__ inline uint32_t rounded_to_even(float low, float high) {
#if defined(__gfx950__)
  return rounded_pair<T>(low, high);
#else
  if constexpr (__is_same(T, Bf16)) return high_halves(bits_to_even(low), bits_to_even(high));
  T both[2];
  round_to(both[0], low);
  round_to(both[1], high);
  return __builtin_bit_cast(uint32_t, both);
#endif
}

// Clang has no builtin for this. `to` is the first lane's, the same in all lanes; the others' `bytes`, 4 or
// on gfx950 16, follow in their order.
__device__ void load_to_lds(Resource from, LdsByte* to, int bytes, int at, int at_scalar, int offset,
                            int aux) __asm("llvm.amdgcn.raw.ptr.buffer.load.lds");

// The same, of which the compiler does not know that it writes LDS: it would make the next access of LDS wait
// for it. All of the address is the lane's: a scalar part need not count where addresses are checked.
template <int kBytes>
__device__ inline void load_to_lds_unseen(Resource from, LdsByte* to, uint32_t at) {
  const auto place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to));
  if constexpr (kBytes == 4) {
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tbuffer_load_dword %1, %2, 0 offen lds" ::"s"(place), "v"(at),
                 "s"(from)
                 : "memory");
  } else {
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tbuffer_load_dwordx4 %1, %2, 0 offen lds" ::"s"(place),
                 "v"(at), "s"(from)
                 : "memory");
  }
}

// Until no more than so many of the wave's loads are on their way.
template <int kLeft>
__device__ inline void wait_for_loads() {
  static_assert(kLeft < 16, "the counter's higher bits lie elsewhere");
  constexpr int kOtherCounters = 0x0f70;  // as high as they go
  __builtin_amdgcn_s_waitcnt(kOtherCounters | kLeft);
  __builtin_amdgcn_sched_barrier(0);
}

// Between phases, for waves whose stores to LDS are there: the fences are the compiler's, and reads that go
// on across the barrier are not waited for.
__device__ inline void barrier_beside_reads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "singlethread");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "singlethread");
  __builtin_amdgcn_sched_barrier(0);
}

// Between phases: what was stored is in LDS. On gfx950 only loads write LDS, and waves wait for those.
__device__ inline void pingpong_barrier() {
#if defined(__gfx950__)
  barrier_beside_reads();
#else
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
  __builtin_amdgcn_sched_barrier(0);
#endif
}

// Until the wave's accesses of LDS are over.
__device__ inline void wait_for_lds() {
  constexpr int kNoneLeft = 0xc07f;  // the other counters as high as they go
  __builtin_amdgcn_s_waitcnt(kNoneLeft);
  __builtin_amdgcn_sched_barrier(0);
}

struct Pair {
  Dwords4 x[2];
};

#if defined(__gfx950__)
// a (32 x 64) times b (64 x 32) of 8-bit floats, added to c: a lane has columns lane / 32 * 32 on.
__device__ inline Float16 multiply_fp8(const Pair& a, Dwords4 b, Dwords4 e, Float16 c) {
  const auto eight = [](Dwords4 low, Dwords4 high) {
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
  };
  constexpr int kE4m3 = 0, kNoScale = 0;
  return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(eight(a.x[0], a.x[1]), eight(b, e), c, kE4m3, kE4m3,
                                                         0, kNoScale, 0, kNoScale);
}
#endif

// Each of a (32 x 16) times one of b and e (16 x 32), added to c and d, which may be the same. The order of
// the 16 columns does not matter, as long as both sides agree: two products of eight take four of each half
// of the lanes. 8-bit floats have twice as many columns; on gfx950 all of them are of one product, c.
template <typename T>
__device__ inline void multiply_two(const Pair& a, Dwords4 b, Dwords4 e, Float16& c, Float16& d) {
#if defined(__gfx950__)
  if constexpr (sizeof(T) == 1) {
    c = multiply_fp8(a, b, e, c);
  } else {
    c = multiply32<T>(a.x[0], b, c);
    d = multiply32<T>(a.x[1], e, d);
  }
#else
  c = multiply32<T>(low_half(a.x[0]), low_half(b), c);
  d = multiply32<T>(low_half(a.x[1]), low_half(e), d);
  c = multiply32<T>(high_half(a.x[0]), high_half(b), c);
  d = multiply32<T>(high_half(a.x[1]), high_half(e), d);
#endif
}

template <typename T>
__device__ inline Float16 multiply_one(Dwords4 a, Dwords4 b, Float16 c) {
#if defined(__gfx950__)
  return multiply32<T>(a, b, c);
#else
  return multiply32<T>(high_half(a), high_half(b), multiply32<T>(low_half(a), low_half(b), c));
#endif
}

template <typename T>
__device__ inline void multiply_pair(const Pair& a, Dwords4 b, Float16& c, Float16& d) {
  multiply_two<T>(a, b, b, c, d);
}

// The one of 32 keys, or dims, that is row r of a: so that a lane, which has eight columns of b's product in
// two times four elements, has eight that lie together, and reads them in 16 bytes.
__device__ constexpr int place_of_row(int r) { return (r & 16) | (r & 4) << 1 | (r & 8) >> 1 | (r & 3); }

// Tiles in LDS: rows of 16-byte chunks. Chunks are exchanged within a row, so that lanes that access a column
// of chunks find them in different banks.
//
// LDS gives a wave 16 bytes a lane to eight lanes at a time, from 32 banks, or on gfx950 to sixteen, from 64
// (native/emulator/model/profile_lds.h). Rows of 256 bytes fill 64 banks, and two of 128 bytes do.

// The address whose bits differ in `bits`: made when it is needed, it takes no register until then.
template <typename Byte>
__device__ inline Byte* flipped(Byte* at, uint32_t bits) {
  return reinterpret_cast<Byte*>(reinterpret_cast<uint32_t>(at) ^ bits);
}

}  // namespace fmha

// SPDX-License-Identifier: MIT OR Apache-2.0
// The read-modify-write operations of DS, MUBUF and FLAT: each takes what memory holds and the data, and
// returns what memory shall hold.
#pragma once

#include "valu_float.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

inline constexpr auto kAdd = [](auto old, auto x) { return old + x; };
inline constexpr auto kSub = [](auto old, auto x) { return old - x; };
inline constexpr auto kReverseSub = [](auto old, auto x) { return x - old; };
inline constexpr auto kAnd = [](auto old, auto x) { return old & x; };
inline constexpr auto kOr = [](auto old, auto x) { return old | x; };
inline constexpr auto kXor = [](auto old, auto x) { return old ^ x; };
inline constexpr auto kMin = [](auto old, auto x) { return x < old ? x : old; };
inline constexpr auto kMax = [](auto old, auto x) { return x > old ? x : old; };
inline constexpr auto kSwap = [](auto, auto x) { return x; };
inline constexpr auto kIncrement = [](auto old, auto x) { return old >= x ? decltype(old){0} : old + 1; };
inline constexpr auto kDecrement = [](auto old, auto x) { return old == 0 || old > x ? x : old - 1; };

inline u32 add_f16(u32 a, u32 b) {  // f32 holds enough of the sum that rounding twice does no harm
  constexpr u32 kNearestKeepDenormals = 0xf0;  // MODE
  const float sum = to_f32(f16{static_cast<u16>(a)}) + to_f32(f16{static_cast<u16>(b)});
  return to_f16(sum, Env(kNearestKeepDenormals)).raw;
}
inline u32 add_bf16(u32 a, u32 b) {
  const float sum = bits<float>(a << 16) + bits<float>(b << 16);
  const u32 s = raw(sum);
  return is_nan(sum) ? s >> 16 | 0x40 : (s + 0x7fff + (s >> 16 & 1)) >> 16;
}
inline constexpr auto kAddPkF16 = [](u32 old, u32 x) {
  return add_f16(old, x) | add_f16(old >> 16, x >> 16) << 16;
};
inline constexpr auto kAddPkBf16 = [](u32 old, u32 x) {
  return (add_bf16(old & 0xffff, x & 0xffff) & 0xffff) | add_bf16(old >> 16, x >> 16) << 16;
};

template <size_t kBytes> struct UnsignedOf { using type = u32; };
template <> struct UnsignedOf<8> { using type = u64; };
template <class T> using Unsigned = typename UnsignedOf<sizeof(T)>::type;

template <class T>
constexpr Type type_for() { return sizeof(T) == 8 ? Type::kI64 : Type::kI32; }

// A lane's value in registers.
template <class T>
FMHA_EMU_INLINE T read_lane(const u32* regs, int l) {
  Unsigned<T> x = regs[l];
  if constexpr (sizeof(T) == 8) x |= static_cast<u64>(regs[l + kLanes]) << 32;
  return bits<T>(x);
}
template <class T>
FMHA_EMU_INLINE void write_lane(u32* regs, int l, T value) {
  const Unsigned<T> x = bits<Unsigned<T>>(value);
  regs[l] = static_cast<u32>(x);
  if constexpr (sizeof(T) == 8) regs[l + kLanes] = static_cast<u32>(x >> 32);
}

// On memory that other threads of the host may be changing too. `p` is aligned.
template <class T, class Op>
FMHA_EMU_INLINE T atomic_apply(u8* p, Op op) {
  using U = Unsigned<T>;
  U* word = reinterpret_cast<U*>(p);
  U old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, bits<U>(static_cast<T>(op(bits<T>(old)))), true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
  return bits<T>(old);
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL

// SPDX-License-Identifier: MIT OR Apache-2.0
// The read-modify-write operations of DS, MUBUF and FLAT: each takes the old value and the data, and returns
// the new value.
#pragma once

#include "isa/vector/valu_float.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

inline constexpr auto kAdd = [](auto old, auto x) { return old + x; };
inline constexpr auto kSub = [](auto old, auto x) { return old - x; };
inline constexpr auto kReverseSub = [](auto old, auto x) { return x - old; };
inline constexpr auto kAnd = [](auto old, auto x) { return old & x; };
inline constexpr auto kOr = [](auto old, auto x) { return old | x; };
inline constexpr auto kXor = [](auto old, auto x) { return old ^ x; };
inline constexpr auto kMin = [](auto old, auto x) { return x < old ? x : old; };
inline constexpr auto kMax = [](auto old, auto x) { return x > old ? x : old; };
// gfx12's of floats, as its v_min_num: MODE has no say in them.
inline constexpr u32 kKeepDenormals = 0xf0;  // MODE
inline constexpr auto kMinNumber = [](auto old, auto x) {
  return min_num(x, old, Env(kKeepDenormals | 1u << Mode::kMinimumNumber));
};
inline constexpr auto kMaxNumber = [](auto old, auto x) {
  return max_num(x, old, Env(kKeepDenormals | 1u << Mode::kMinimumNumber));
};
inline constexpr auto kSwap = [](auto, auto x) { return x; };
inline constexpr auto kIncrement = [](auto old, auto x) { return old >= x ? decltype(old){0} : old + 1; };
inline constexpr auto kDecrement = [](auto old, auto x) { return old == 0 || old > x ? x : old - 1; };

inline constexpr auto kConditionalSub = [](u32 old, u32 x) { return old >= x ? old - x : old; };
inline constexpr auto kSubClamp = [](u32 old, u32 x) { return old >= x ? old - x : 0; };

inline u32 add_f16(u32 a, u32 b) {  // f32 holds enough of the sum that rounding twice does no harm
  const float sum = to_f32(f16{static_cast<u16>(a)}) + to_f32(f16{static_cast<u16>(b)});
  return to_f16(sum, Env(kKeepDenormals)).raw;
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

template <size_t kBytes>
struct UnsignedOf {
  using type = u32;
};
template <>
struct UnsignedOf<8> {
  using type = u64;
};
template <class T>
using Unsigned = typename UnsignedOf<sizeof(T)>::type;

template <class T>
constexpr Type type_for() {
  return sizeof(T) == 8 ? Type::kI64 : Type::kI32;
}

// The flags of a row.
template <class T>
constexpr RowFlags atomic_flags() {
  return kAtomic | (std::is_floating_point_v<T> ? RowFlags{kOfFloats} : 0);
}

// A lane's value in registers.
template <class T>
FMHA_EMU_INLINE T read_lane(const u32* regs, int l) {
  Unsigned<T> x = regs[l];
  if constexpr (sizeof(T) == 8) x |= static_cast<u64>(regs[l + kMostLanes]) << 32;
  return bits<T>(x);
}
template <class T>
FMHA_EMU_INLINE void write_lane(u32* regs, int l, T value) {
  const Unsigned<T> x = bits<Unsigned<T>>(value);
  regs[l] = static_cast<u32>(x);
  if constexpr (sizeof(T) == 8) regs[l + kMostLanes] = static_cast<u32>(x >> 32);
}

// Other threads of the host may change the same memory. `p` is aligned.
template <class T, class Op>
FMHA_EMU_INLINE T atomic_apply(u8* p, Op op) {
  using U = Unsigned<T>;
  U* word = reinterpret_cast<U*>(p);
  U old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, bits<U>(static_cast<T>(op(bits<T>(old)))), true,
                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return bits<T>(old);
}

// One lane of a memory atomic: data from its registers (compare-and-swap has a second value behind the
// first), the old value into `result` if that is not null.
template <class T, auto kOp>
FMHA_EMU_INLINE void atomic_lane(const u32* data, int l, u8* p, u32* result) {
  const T x = read_lane<T>(data, l);
  T old;
  if constexpr (requires(T t) { kOp(t, t, t); }) {
    const T y = read_lane<T>(data + sizeof(T) / 4 * kMostLanes, l);
    old = atomic_apply<T>(p, [=](T was) { return kOp(was, x, y); });
  } else {
    old = atomic_apply<T>(p, [=](T was) { return kOp(was, x); });
  }
  if (result) write_lane<T>(result, l, old);
}
inline constexpr auto kCompareSwap = [](auto old, auto x, auto compare) { return old == compare ? x : old; };

template <class T, auto kOp>
constexpr Type atomic_data_type() {
  constexpr bool kTwo = requires(T t) { kOp(t, t, t); };
  return kTwo ? (sizeof(T) == 8 ? Type::kB128 : Type::kI64) : type_for<T>();
}

// Faults if an atomic is misaligned; true if it is not.
template <class T>
FMHA_EMU_INLINE bool aligned(Wave& w, const Inst& inst, u64 address, int lane) {
  if (address % sizeof(T) == 0) [[likely]]
    return true;
  w.fault(inst, hipErrorMisalignedAddress, "lane %d: address 0x%llx of an atomic is not a multiple of %u",
          lane, static_cast<unsigned long long>(address), static_cast<unsigned>(sizeof(T)));
  return false;
}

// The atomics that MUBUF, FLAT, GLOBAL and SMEM share: ROW(name, type, operation).
#define FMHA_EMU_INTEGER_ATOMICS(ROW)  \
  ROW("swap", u32, kSwap)              \
  ROW("cmpswap", u32, kCompareSwap)    \
  ROW("add", u32, kAdd)                \
  ROW("sub", u32, kSub)                \
  ROW("smin", i32, kMin)               \
  ROW("umin", u32, kMin)               \
  ROW("smax", i32, kMax)               \
  ROW("umax", u32, kMax)               \
  ROW("and", u32, kAnd)                \
  ROW("or", u32, kOr)                  \
  ROW("xor", u32, kXor)                \
  ROW("inc", u32, kIncrement)          \
  ROW("dec", u32, kDecrement)          \
  ROW("swap_x2", u64, kSwap)           \
  ROW("cmpswap_x2", u64, kCompareSwap) \
  ROW("add_x2", u64, kAdd)             \
  ROW("sub_x2", u64, kSub)             \
  ROW("smin_x2", i64, kMin)            \
  ROW("umin_x2", u64, kMin)            \
  ROW("smax_x2", i64, kMax)            \
  ROW("umax_x2", u64, kMax)            \
  ROW("and_x2", u64, kAnd)             \
  ROW("or_x2", u64, kOr)               \
  ROW("xor_x2", u64, kXor)             \
  ROW("inc_x2", u64, kIncrement)       \
  ROW("dec_x2", u64, kDecrement)
// Atomics that RDNA's MUBUF, FLAT and GLOBAL have beside these.
#define FMHA_EMU_RDNA_ATOMICS(ROW)          \
  ROW("cmpswap_f32", float, kCompareSwap)   \
  ROW("min_f32", float, kMin)               \
  ROW("max_f32", float, kMax)               \
  ROW("min_num_f32", float, kMinNumber)     \
  ROW("max_num_f32", float, kMaxNumber)     \
  ROW("cond_sub_u32", u32, kConditionalSub) \
  ROW("sub_clamp_u32", u32, kSubClamp)
// Only MUBUF, FLAT and GLOBAL have these.
#define FMHA_EMU_MEMORY_ATOMICS(ROW) \
  FMHA_EMU_INTEGER_ATOMICS(ROW)      \
  ROW("add_f64", double, kAdd)       \
  ROW("min_f64", double, kMin)       \
  ROW("max_f64", double, kMax)

}  // namespace fmha::emu::FMHA_EMU_LEVEL

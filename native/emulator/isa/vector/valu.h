// SPDX-License-Identifier: MIT OR Apache-2.0
// The machinery of the vector ALU. A row's body is a lambda over one lane whose signature says everything:
//
//   op<[](u32 a, u32 b, u32 c) { return a + b + c; }>      v_add3_u32
//
// Each parameter is the next source operand, read as that type, except
//   Env       MODE, for what depends on it          Old<T>  what the destination holds (v_fmac)
//   Literal   the instruction's K (v_fmamk)         LaneId  the lane's number
//   bool      the lane's bit of the mask operand: src2 if it is scalar, else VCC
// The result's type says how it is written:
//   u16, f16  the low half, the high one cleared    Low<T>  the low half, the other kept
//   bool      a bit of a mask (v_cmp)               Carry<T>  a value, and a bit of the second destination
// EXEC, abs, neg, op_sel, SDWA, DPP, clamp and omod happen here: sources that have none of them are read in
// place, and with all lanes on the result is written in place, so the common case is one vectorised loop.
// Every lane reads and writes its own elements only; registers may therefore overlap in any way.
#pragma once

#include <xmmintrin.h>

#include <type_traits>
#include <utility>

#include "isa/vector/valu_float.h"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // "vectorize" below is a wish; branchy bodies stay scalar
#endif

namespace fmha::emu::FMHA_EMU_LEVEL {

template <class T>
struct Old {
  T value;
};
template <class T>
struct Low {
  T value;
};
template <class T>
struct Carry {
  T value;
  bool bit;
};
struct Literal {
  u32 value;
};
struct LaneId {
  u32 value;
};
struct Pair {
  u32 low, high;
};  // two registers, when no arithmetic type fits
struct FloatPair {
  float low, high;
};  // two registers, each of which is clamped and scaled
struct Quad {
  u32 word[4];
};

template <class F>
FMHA_EMU_INLINE void for_lanes(F f) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (int l = 0; l < kLanes; ++l) f(l);
}

// --- one lane's value in registers: dword j of a lane is at +kMostLanes * j ---
template <class T>
constexpr Type kTypeOf = Type::kI32;
template <>
inline constexpr Type kTypeOf<float> = Type::kF32;
template <>
inline constexpr Type kTypeOf<double> = Type::kF64;
template <>
inline constexpr Type kTypeOf<u64> = Type::kI64;
template <>
inline constexpr Type kTypeOf<i64> = Type::kI64;
template <>
inline constexpr Type kTypeOf<Pair> = Type::kI64;
template <>
inline constexpr Type kTypeOf<FloatPair> = Type::kPkF32;
template <>
inline constexpr Type kTypeOf<Quad> = Type::kB128;
template <>
inline constexpr Type kTypeOf<f16> = Type::kF16;
template <>
inline constexpr Type kTypeOf<u16> = Type::kI16;
template <>
inline constexpr Type kTypeOf<i16> = Type::kI16;
template <class T>
inline constexpr Type kTypeOf<Low<T>> = kTypeOf<T>;
template <class T>
inline constexpr Type kTypeOf<Carry<T>> = kTypeOf<T>;
template <>
inline constexpr Type kTypeOf<bf16> = Type::kBf16;
constexpr bool is_float(Type t) {
  return t == Type::kF16 || t == Type::kBf16 || t == Type::kF32 || t == Type::kF64;
}
constexpr bool is_16bit(Type t) { return is_half(t); }

template <class T>
FMHA_EMU_INLINE T load_lane(const u32* p, int l) {
  if constexpr (std::is_same_v<T, Pair>)
    return {p[l], p[kMostLanes + l]};
  else if constexpr (std::is_same_v<T, Quad>)
    return {{p[l], p[kMostLanes + l], p[2 * kMostLanes + l], p[3 * kMostLanes + l]}};
  else if constexpr (sizeof(T) == 8)
    return bits<T>(static_cast<u64>(p[kMostLanes + l]) << 32 | p[l]);
  else if constexpr (sizeof(T) == 4)
    return bits<T>(p[l]);
  else
    return bits<T>(static_cast<u16>(p[l]));
}
template <class T>
FMHA_EMU_INLINE void store_lane(u32* p, int l, T v) {
  if constexpr (std::is_same_v<T, Pair>) {
    p[l] = v.low;
    p[kMostLanes + l] = v.high;
  } else if constexpr (std::is_same_v<T, FloatPair>) {
    p[l] = bits<u32>(v.low);
    p[kMostLanes + l] = bits<u32>(v.high);
  } else if constexpr (std::is_same_v<T, Quad>) {
    for (int j = 0; j < 4; ++j) p[j * kMostLanes + l] = v.word[j];
  } else if constexpr (sizeof(T) == 8) {
    p[l] = static_cast<u32>(bits<u64>(v));
    p[kMostLanes + l] = static_cast<u32>(bits<u64>(v) >> 32);
  } else if constexpr (sizeof(T) == 4) {
    p[l] = bits<u32>(v);
  } else {
    p[l] = bits<u16>(v);
  }
}
template <class T>
FMHA_EMU_INLINE void store_lane(u32* p, int l, Low<T> v) {
  store_lane(p, l, v.value);
}

// --- the slow paths, in valu.cc ---
const u32* fetch_slow(Wave& w, const Inst& inst, int n, Type type);
const u32* fetch_packed_slow(Wave& w, const Inst& inst, int n, bool is_float);
void fetch_pair(Wave& w, const Inst& inst, int n, const u32** low, const u32** high);
const u32* fetch_mix(Wave& w, const Inst& inst, int n);
const u32* old_upper_half(Wave& w, const Inst& inst, int n);  // of the destination, in w.tmp[n]
void finish(Wave& w, const Inst& inst, Type type, bool keeps_other_half);
void finish_half(Wave& w, const Inst& inst, bool high);
void finish_packed(Wave& w, const Inst& inst, bool is_float);
[[gnu::cold]] void fault_modifier(Wave& w, const Inst& inst, const char* what);
[[gnu::cold]] void fault_clamped_dot(Wave& w, const Inst& inst);  // whose sum is of floats
u64 write_mask(Wave& w, const Inst& inst);                        // EXEC, less what DPP leaves out
u64 read_scalar(const Wave& w, const Operand& o);
void write_lanes(Wave& w, const Operand& o, u64 mask);  // to VCC, if `o` is no register

FMHA_EMU_INLINE const u32* aligned(const u32* p) {
  return static_cast<const u32*>(__builtin_assume_aligned(p, 64));
}
FMHA_EMU_INLINE u32* aligned(u32* p) { return static_cast<u32*>(__builtin_assume_aligned(p, 64)); }

FMHA_EMU_INLINE bool sources_plain(const Inst& inst) {
  return !(inst.neg | inst.abs | inst.op_sel) && inst.encoding <= Encoding::kVop3;
}
FMHA_EMU_INLINE bool result_plain(const Wave& w, const Inst& inst) {
  const u32 changes = inst.omod | static_cast<u8>(inst.clamp) | static_cast<u8>(inst.keeps_half);
  return all_active(w) && !(changes | (inst.op_sel & 8)) && inst.encoding <= Encoding::kVop3;
}

// Source n as lanes: in place if nothing modifies it, else in w.tmp[n].
template <class T>
FMHA_EMU_INLINE const u32* fetch(Wave& w, const Inst& inst, int n, bool plain) {
  const Operand& o = inst.src[n];
  if (plain && o.kind == OperandKind::kVgpr) return w.vgpr[o.index];
  if (plain && o.kind == OperandKind::kConst) return o.lanes;
  return fetch_slow(w, inst, n, kTypeOf<T>);
}

// --- masks: a bit a lane, or all ones or zeros a lane ---
FMHA_EMU_INLINE void spread_mask(u64 mask, u32* out) {
  for (int half = 0; half < kLanes / 32; ++half) {
    const u32 m = static_cast<u32>(mask >> (32 * half));
    for (u32 l = 0; l < 32; ++l) out[32 * half + l] = m & (1u << l) ? ~0u : 0u;
  }
}
// d = mask ? yes : no. All three may be the same.
FMHA_EMU_INLINE void select_lanes(u64 mask, const u32* yes, const u32* no, u32* d) {
  for (int half = 0; half < kLanes / 32; ++half) {
    const u32 m = static_cast<u32>(mask >> (32 * half));
    const u32 *y = yes + 32 * half, *n = no + 32 * half;
    u32* out = d + 32 * half;
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (u32 l = 0; l < 32; ++l) out[l] = m & (1u << l) ? y[l] : n[l];
  }
}
u64 pack_mask(const u32* lanes);  // the sign bits

FMHA_EMU_INLINE u64 mask_operand(const Wave& w, const Inst& inst) {
  return inst.src[2].kind == OperandKind::kSgpr && inst.src[2].dwords == kLanes / 32
             ? read_lanes(w, inst.src[2].index)
         : inst.src[2].kind == OperandKind::kNone || inst.src[2].kind == OperandKind::kVgpr
             ? vcc_mask(w)
             : read_scalar(w, inst.src[2]);
}

// --- the host's floating-point environment ---
// Dispatch sets MXCSR from MODE's f32 fields. While a HostFp lives, MXCSR follows the f64 and f16 fields: all
// of them for f64, only the rounding for f16, whose denormals are normal numbers in f32.
class HostFp {
 public:
  HostFp(u32 mode, bool denormals) {
    constexpr u32 kRound = 3, kDenorm = 3;
    const u32 round = mode >> Mode::kRound64 & kRound, keep = mode >> Mode::kDenorm64 & kDenorm;
    const bool same = round == (mode >> Mode::kRound32 & kRound) &&
                      (!denormals || keep == (mode >> Mode::kDenorm32 & kDenorm));
    if (same) [[likely]]
      return;
    saved_ = _mm_getcsr();
    switched_ = true;
    u32 v = (saved_ & ~kRoundMask) | kHostRound[round];
    if (denormals) v = (v & ~(kFlushOut | kFlushIn)) | (keep & 1 ? 0 : kFlushIn) | (keep & 2 ? 0 : kFlushOut);
    set(v);
  }
  ~HostFp() {
    if (switched_) set(saved_);
  }
  HostFp(const HostFp&) = delete;
  HostFp& operator=(const HostFp&) = delete;

 private:
  static constexpr u32 kRoundMask = 3u << 13, kFlushOut = 1u << 15, kFlushIn = 1u << 6;
  // MODE counts nearest, up, down, zero; MXCSR nearest, down, up, zero.
  static constexpr u32 kHostRound[4] = {0u << 13, 2u << 13, 1u << 13, 3u << 13};
  static void set(u32 v) {
    asm volatile("" ::: "memory");  // the lanes' loads and stores stay on their side
    _mm_setcsr(v);
    asm volatile("" ::: "memory");
  }
  u32 saved_ = 0;
  bool switched_ = false;
};

// --- signatures ---
template <class T>
struct Param {
  static constexpr bool kSource = true;
  FMHA_EMU_INLINE static const u32* prepare(Wave& w, const Inst& inst, int n, bool plain, u32*) {
    return fetch<T>(w, inst, n, plain);
  }
  FMHA_EMU_INLINE static T lane(const u32* p, int l, const Inst&, const Env&) { return load_lane<T>(p, l); }
};
template <>
struct Param<Env> {
  static constexpr bool kSource = false;
  FMHA_EMU_INLINE static const u32* prepare(Wave&, const Inst&, int, bool, u32*) { return nullptr; }
  FMHA_EMU_INLINE static Env lane(const u32*, int, const Inst&, const Env& e) { return e; }
};
template <>
struct Param<Literal> : Param<Env> {
  FMHA_EMU_INLINE static Literal lane(const u32*, int, const Inst& inst, const Env&) {
    return {static_cast<u32>(inst.imm)};
  }
};
template <>
struct Param<LaneId> : Param<Env> {
  FMHA_EMU_INLINE static LaneId lane(const u32*, int l, const Inst&, const Env&) {
    return {static_cast<u32>(l)};
  }
};
// The value to add to lies where the result goes; of a half, in the half that op_sel says.
template <class T>
struct Param<Old<T>> {
  static constexpr bool kSource = false;
  FMHA_EMU_INLINE static const u32* prepare(Wave& w, const Inst& inst, int n, bool, u32*) {
    if (is_half(kTypeOf<T>) && inst.op_sel & 8) [[unlikely]]
      return old_upper_half(w, inst, n);
    return w.vgpr[inst.dst.index];
  }
  FMHA_EMU_INLINE static Old<T> lane(const u32* p, int l, const Inst&, const Env&) {
    return {load_lane<T>(p, l)};
  }
};
template <>
struct Param<bool> {
  static constexpr bool kSource = false;
  FMHA_EMU_INLINE static const u32* prepare(Wave& w, const Inst& inst, int, bool, u32* mask) {
    spread_mask(mask_operand(w, inst), mask);
    return mask;
  }
  FMHA_EMU_INLINE static bool lane(const u32* p, int l, const Inst&, const Env&) { return p[l] != 0; }
};

template <class T>
struct Signature;
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> {
  using Result = R;
  static constexpr bool kUsesF64 = (std::is_same_v<A, double> || ...) || std::is_same_v<R, double>;
  static constexpr bool kUsesF32 = (std::is_same_v<A, float> || ...) || std::is_same_v<R, float>;
  static constexpr bool kUsesF16 = (std::is_same_v<A, f16> || ...) && !kUsesF64 && !kUsesF32;

  // The number of sources before parameter i.
  static constexpr int source_index(int i) {
    constexpr bool kIs[] = {Param<std::remove_cvref_t<A>>::kSource..., false};
    int n = 0;
    for (int j = 0; j < i; ++j) n += kIs[j];
    return n;
  }

  template <auto F, class Store, int... I>
  FMHA_EMU_INLINE static void lanes(Wave& w, const Inst& inst, u32* mask, Store store,
                                    std::integer_sequence<int, I...>) {
    const bool plain = sources_plain(inst);
    const Env env(w.mode);
    with_pointers<F>(inst, env, store,
                     Param<std::remove_cvref_t<A>>::prepare(w, inst, source_index(I), plain, mask)...);
  }
  template <auto F, class Store, class... P>
  FMHA_EMU_INLINE static void with_pointers(const Inst& inst, const Env& env, Store store, P... p) {
    const Env local = env;
    (void)local;
    for_lanes(
        [&](int l) { store(l, F(Param<std::remove_cvref_t<A>>::lane(aligned(p), l, inst, local)...)); });
  }
  template <auto F, class Store>
  FMHA_EMU_INLINE static void run(Wave& w, const Inst& inst, u32* mask, Store store) {
    lanes<F>(w, inst, mask, store, std::make_integer_sequence<int, sizeof...(A)>{});
  }
};
template <class T>
struct Signature<T&> : Signature<T> {};
template <auto F>
using SignatureOf = Signature<decltype(&std::remove_cvref_t<decltype(F)>::operator())>;

template <class T>
constexpr bool kIsLow = false;
template <class T>
inline constexpr bool kIsLow<Low<T>> = true;
template <class T>
constexpr bool kIsCarry = false;
template <class T>
inline constexpr bool kIsCarry<Carry<T>> = true;

// --- execution ---
template <auto F>
FMHA_EMU_INLINE void op_value(Wave& w, const Inst& inst) {
  using R = typename SignatureOf<F>::Result;
  alignas(64) u32 mask[kLanes];
  const bool direct = !kIsLow<R> && result_plain(w, inst);
  u32* d = aligned(direct ? w.vgpr[inst.dst.index] : w.tmp[3][0]);
  SignatureOf<F>::template run<F>(w, inst, mask, [&](int l, R r) { store_lane(d, l, r); });
  if (!direct) finish(w, inst, kTypeOf<R>, kIsLow<R>);
}

template <auto F>
FMHA_EMU_INLINE void op_carry(Wave& w, const Inst& inst) {
  using R = typename SignatureOf<F>::Result;
  alignas(64) u32 mask[kLanes], carry[kLanes];
  const bool direct = result_plain(w, inst);
  u32* d = aligned(direct ? w.vgpr[inst.dst.index] : w.tmp[3][0]);
  SignatureOf<F>::template run<F>(w, inst, mask, [&](int l, R r) {
    store_lane(d, l, r.value);
    carry[l] = r.bit ? ~0u : 0u;
  });
  const u64 active = write_mask(w, inst);
  if (!direct) finish(w, inst, kTypeOf<R>, false);
  write_lanes(w, inst.sdst, pack_mask(carry) & active);
}

template <auto F, bool kToExec>
FMHA_EMU_INLINE void op_compare(Wave& w, const Inst& inst) {
  alignas(64) u32 mask[kLanes], hit[kLanes];
  SignatureOf<F>::template run<F>(w, inst, mask, [&](int l, bool r) { hit[l] = r ? ~0u : 0u; });
  const u64 r = pack_mask(hit) & write_mask(w, inst);
  write_lanes(w, inst.dst, r);
  if (kToExec) write_lanes(w, kExecLo, r);
}

template <auto F, bool kToExec = false>
FMHA_EMU_INLINE void op_any(Wave& w, const Inst& inst) {
  using S = SignatureOf<F>;
  if constexpr (std::is_same_v<typename S::Result, bool>)
    op_compare<F, kToExec>(w, inst);
  else if constexpr (kIsCarry<typename S::Result>)
    op_carry<F>(w, inst);
  else
    op_value<F>(w, inst);
}

template <auto F, bool kToExec = false>
FMHA_EMU_INLINE void op_in_host_mode(Wave& w, const Inst& inst) {
  using S = SignatureOf<F>;
  if constexpr (S::kUsesF64 && !S::kUsesF32) {
    const HostFp host(w.mode, true);
    op_any<F, kToExec>(w, inst);
  } else if constexpr (S::kUsesF16) {
    const HostFp host(w.mode, false);
    op_any<F, kToExec>(w, inst);
  } else {
    op_any<F, kToExec>(w, inst);
  }
}

// `Saturating` is what an integer operation does under clamp: kFits where every result can be represented.
// Without it clamp is refused: the manuals say nothing of bits. omod is of floats; others ignore it.
struct Fits {};
constexpr Fits kFits;
template <auto F, auto Saturating = nullptr>
[[gnu::flatten]] void op(Wave& w, const Inst& inst) {
  using R = typename SignatureOf<F>::Result;
  if constexpr (!std::is_same_v<R, bool> && !is_float(kTypeOf<R>) && kTypeOf<R> != Type::kPkF32) {
    if (inst.clamp) [[unlikely]] {
      using Clamped = std::remove_cvref_t<decltype(Saturating)>;
      if constexpr (std::is_same_v<Clamped, std::nullptr_t>) {
        return fault_modifier(w, inst, "clamp");
      } else if constexpr (!std::is_same_v<Clamped, Fits>) {
        return op_in_host_mode<Saturating>(w, inst);
      }
    }
  }
  op_in_host_mode<F>(w, inst);
}

// A dot product of floats.
template <auto F>
[[gnu::flatten]] void float_dot(Wave& w, const Inst& inst) {
  if (inst.clamp) [[unlikely]]
    return fault_clamped_dot(w, inst);
  op_in_host_mode<F>(w, inst);
}

// v_cmp and v_cmpx.
template <auto F>
[[gnu::flatten]] void cmp(Wave& w, const Inst& inst) {
  op_in_host_mode<F>(w, inst);
}
template <auto F>
[[gnu::flatten]] void cmpx(Wave& w, const Inst& inst) {
  op_in_host_mode<F, true>(w, inst);
}

// f16 arithmetic done in f32: exact or, having more than twice the bits, rounded as if once.
template <auto F, class... A>
FMHA_EMU_INLINE f16 via_f32(const Env& e, A... a) {
  return to_f16(F(to_f32(a, e)...), e);
}
template <auto F>
constexpr auto half1 = [](const Env& e, f16 a) { return via_f32<F>(e, a); };
template <auto F>
constexpr auto half2 = [](const Env& e, f16 a, f16 b) { return via_f32<F>(e, a, b); };

}  // namespace fmha::emu::FMHA_EMU_LEVEL

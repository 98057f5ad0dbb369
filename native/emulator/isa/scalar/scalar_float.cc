// SPDX-License-Identifier: MIT OR Apache-2.0
// Floating point in the scalar ALU, which gfx12 has, and its 64-bit integers. Rounding and denormals are
// MODE's. A 16-bit result clears the upper half of its register.
#include "isa/scalar/scalar_control.h"
#include "isa/scalar/scalar_operand.h"
#include "isa/vector/valu.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

// Operands and results as registers hold them.
template <class T>
T value_of(const Wave& w, const Operand& o) {
  if constexpr (sizeof(T) == 8)
    return bits<T>(read64(w, o));
  else if constexpr (sizeof(T) == 4)
    return bits<T>(read32(w, o));
  else
    return bits<T>(static_cast<u16>(read32(w, o)));
}
template <class T>
void put(Wave& w, const Operand& o, T value) {
  if constexpr (sizeof(T) == 8)
    write64(w, o, bits<u64>(value));
  else if constexpr (sizeof(T) == 4)
    write32(w, o, bits<u32>(value));
  else
    write32(w, o, bits<u16>(value));
}

// D = F(mode, sources...), the types being F's. f16 is computed in f32 under its own rounding.
template <class T>
struct ScalarSignature;
template <class C, class R, class... A>
struct ScalarSignature<R (C::*)(const Env&, A...) const> {
  static constexpr bool kHalf = std::is_same_v<R, f16>;
  template <auto F, size_t... I>
  static R apply(Wave& w, const Inst& i, std::index_sequence<I...>) {
    const Env env(w.mode);
    return F(env, value_of<A>(w, i.src[I])...);
  }
  template <auto F>
  static void run(Wave& w, const Inst& i) {
    constexpr auto kIndex = std::make_index_sequence<sizeof...(A)>{};
    R r;
    if constexpr (kHalf) {
      const HostFp host(w.mode, false);
      r = apply<F>(w, i, kIndex);
    } else {
      r = apply<F>(w, i, kIndex);
    }
    if constexpr (std::is_same_v<R, bool>)
      w.scc = r;
    else
      put(w, i.dst, r);
  }
};
template <auto F>
void scalar(Wave& w, const Inst& i) {
  ScalarSignature<decltype(&std::remove_cvref_t<decltype(F)>::operator())>::template run<F>(w, i);
}

// f16 by way of f32.
template <auto F>
constexpr auto one16 = [](const Env& e, f16 a) { return to_f16(F(to_f32(a, e)), e); };
template <auto F>
constexpr auto two16 = [](const Env& e, f16 a, f16 b) { return to_f16(F(to_f32(a, e), to_f32(b, e)), e); };

// The result is a source too, or there is a literal.
void fmac32(Wave& w, const Inst& i) {
  put(w, i.dst, fma32(value_of<float>(w, i.src[0]), value_of<float>(w, i.src[1]), value_of<float>(w, i.dst)));
}
void fmac16(Wave& w, const Inst& i) {
  const HostFp host(w.mode, false);
  put(w, i.dst,
      fma16(value_of<f16>(w, i.src[0]), value_of<f16>(w, i.src[1]), value_of<f16>(w, i.dst), Env(w.mode)));
}
void fmaak(Wave& w, const Inst& i) {
  put(w, i.dst, fma32(value_of<float>(w, i.src[0]), value_of<float>(w, i.src[1]), bits<float>(i.imm)));
}
void fmamk(Wave& w, const Inst& i) {
  put(w, i.dst, fma32(value_of<float>(w, i.src[0]), bits<float>(i.imm), value_of<float>(w, i.src[1])));
}

// Comparisons of two kinds of number: F takes floats.
template <auto F, class T>
constexpr Exec compare = scalar<[](const Env& e, T a, T b) {
  if constexpr (std::is_same_v<T, f16>)
    return F(to_f32(a, e), to_f32(b, e));
  else
    return F(a, b);
}>;

FMHA_EMU_INLINE u32 toward_zero(float x, const Env& e) {
  const u32 r = to_f16_toward_zero(flushed(x, e)).raw;
  return (r & 0x7fffu) > 0x3ffu ? r : r & e.keep64_out >> 16;
}

constexpr Type I = Type::kI32, L = Type::kI64, F = Type::kF32, H = Type::kF16, N = Type::kNone;
// clang-format off: a row is a line, or two
#define COMPARE(name, ...)                                              \
  {"s_cmp_" name "_f32", N, {F, F, N}, 0, compare<__VA_ARGS__, float>}, \
  {"s_cmp_" name "_f16", N, {H, H, N}, 0, compare<__VA_ARGS__, f16>}

constexpr Row kRows[] = {
  {"s_add_f32", F, {F, F, N}, 0, scalar<[](const Env&, float a, float b) { return a + b; }>},
  {"s_sub_f32", F, {F, F, N}, 0, scalar<[](const Env&, float a, float b) { return a - b; }>},
  {"s_mul_f32", F, {F, F, N}, 0, scalar<[](const Env&, float a, float b) { return a * b; }>},
  {"s_min_num_f32", F, {F, F, N}, 0, scalar<[](const Env& e, float a, float b) { return min_num(a, b, e); }>},
  {"s_max_num_f32", F, {F, F, N}, 0, scalar<[](const Env& e, float a, float b) { return max_num(a, b, e); }>},
  {"s_minimum_f32", F, {F, F, N}, 0, scalar<[](const Env& e, float a, float b) { return minimum(a, b, e); }>},
  {"s_maximum_f32", F, {F, F, N}, 0, scalar<[](const Env& e, float a, float b) { return maximum(a, b, e); }>},
  {"s_fmac_f32", F, {F, F, N}, kReadsDst, fmac32},
  {"s_fmaak_f32", F, {F, F, N}, kLiteralK, fmaak},
  {"s_fmamk_f32", F, {F, F, N}, kLiteralK | kLiteralMiddle, fmamk},
  {"s_add_f16", H, {H, H, N}, 0, scalar<two16<[](float a, float b) { return a + b; }>>},
  {"s_sub_f16", H, {H, H, N}, 0, scalar<two16<[](float a, float b) { return a - b; }>>},
  {"s_mul_f16", H, {H, H, N}, 0, scalar<two16<[](float a, float b) { return a * b; }>>},
  {"s_min_num_f16", H, {H, H, N}, 0, scalar<[](const Env& e, f16 a, f16 b) { return min_num(a, b, e); }>},
  {"s_max_num_f16", H, {H, H, N}, 0, scalar<[](const Env& e, f16 a, f16 b) { return max_num(a, b, e); }>},
  {"s_minimum_f16", H, {H, H, N}, 0, scalar<[](const Env& e, f16 a, f16 b) { return minimum(a, b, e); }>},
  {"s_maximum_f16", H, {H, H, N}, 0, scalar<[](const Env& e, f16 a, f16 b) { return maximum(a, b, e); }>},
  {"s_fmac_f16", H, {H, H, N}, kReadsDst, fmac16},

  {"s_ceil_f32", F, {F, N, N}, 0, scalar<[](const Env&, float a) { return __builtin_ceilf(a); }>},
  {"s_floor_f32", F, {F, N, N}, 0, scalar<[](const Env&, float a) { return __builtin_floorf(a); }>},
  {"s_trunc_f32", F, {F, N, N}, 0, scalar<[](const Env&, float a) { return __builtin_truncf(a); }>},
  {"s_rndne_f32", F, {F, N, N}, 0, scalar<[](const Env&, float a) { return round_even(a); }>},
  {"s_ceil_f16", H, {H, N, N}, 0, scalar<one16<[](float a) { return __builtin_ceilf(a); }>>},
  {"s_floor_f16", H, {H, N, N}, 0, scalar<one16<[](float a) { return __builtin_floorf(a); }>>},
  {"s_trunc_f16", H, {H, N, N}, 0, scalar<one16<[](float a) { return __builtin_truncf(a); }>>},
  {"s_rndne_f16", H, {H, N, N}, 0, scalar<one16<[](float a) { return round_even(a); }>>},

  {"s_cvt_f32_i32", F, {I, N, N}, 0, scalar<[](const Env&, i32 a) { return static_cast<float>(a); }>},
  {"s_cvt_f32_u32", F, {I, N, N}, 0, scalar<[](const Env&, u32 a) { return static_cast<float>(a); }>},
  {"s_cvt_i32_f32", I, {F, N, N}, 0, scalar<[](const Env&, float a) { return to_i32(a); }>},
  {"s_cvt_u32_f32", I, {F, N, N}, 0, scalar<[](const Env&, float a) { return to_u32(a); }>},
  {"s_cvt_f16_f32", H, {F, N, N}, 0, scalar<[](const Env& e, float a) { return to_f16(a, e); }>},
  {"s_cvt_f32_f16", F, {H, N, N}, 0, scalar<[](const Env& e, f16 a) { return to_f32(a, e); }>},
  {"s_cvt_hi_f32_f16", F, {I, N, N}, 0,
   scalar<([](const Env& e, u32 a) { return to_f32(f16{static_cast<u16>(a >> 16)}, e); })>},
  {"s_cvt_pk_rtz_f16_f32", I, {F, F, N}, 0,
   scalar<[](const Env& e, float a, float b) { return toward_zero(a, e) | toward_zero(b, e) << 16; }>},

  COMPARE("lt", [](float a, float b) { return a < b; }),
  COMPARE("eq", [](float a, float b) { return a == b; }),
  COMPARE("le", [](float a, float b) { return a <= b; }),
  COMPARE("gt", ([](float a, float b) { return a > b; })),
  COMPARE("lg", ([](float a, float b) { return a < b || a > b; })),
  COMPARE("ge", ([](float a, float b) { return a >= b; })),
  COMPARE("o", [](float a, float b) { return !is_nan(a) && !is_nan(b); }),
  COMPARE("u", [](float a, float b) { return is_nan(a) || is_nan(b); }),
  COMPARE("nge", ([](float a, float b) { return !(a >= b); })),
  COMPARE("nlg", ([](float a, float b) { return !(a < b || a > b); })),
  COMPARE("ngt", ([](float a, float b) { return !(a > b); })),
  COMPARE("nle", [](float a, float b) { return !(a <= b); }),
  COMPARE("neq", [](float a, float b) { return a != b; }),
  COMPARE("nlt", [](float a, float b) { return !(a < b); }),

  {"s_add_nc_u64", L, {L, L, N}, 0, scalar<[](const Env&, u64 a, u64 b) { return a + b; }>},
  {"s_sub_nc_u64", L, {L, L, N}, 0, scalar<[](const Env&, u64 a, u64 b) { return a - b; }>},
  {"s_mul_u64", L, {L, L, N}, 0, scalar<[](const Env&, u64 a, u64 b) { return a * b; }>},
};
#undef COMPARE
// clang-format on

}  // namespace

std::span<const Row> scalar_float_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

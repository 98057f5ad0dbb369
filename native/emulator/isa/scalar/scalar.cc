// SPDX-License-Identifier: MIT OR Apache-2.0
// SOP1, SOP2 and SOPC: the scalar ALU. SOPK and SOPP, which branch and set modes, are in scalar_control.cc.
#include "isa/scalar/scalar_control.h"
#include "isa/scalar/scalar_operand.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

using i32 = int32_t;
using i64 = int64_t;
using u32 = uint32_t;
using u64 = uint64_t;

// The fate of SCC: it is kept, set if the result is not zero, or set by the body, which then takes it by
// reference.
enum Scc { kKeep, kNonZero, kBody };

// D = f(S0, S1[, scc]). The operands' types are D, A and B.
template <typename D, typename A, typename B, Scc S, auto F>
void two(Wave& w, const Inst& i) {
  const A a = read<A>(w, i.src[0]);
  const B b = read<B>(w, i.src[1]);
  D d;
  if constexpr (S == kBody) {
    d = F(a, b, w.scc);
  } else {
    d = F(a, b);
  }
  write<D>(w, i.dst, d);
  if constexpr (S == kNonZero) w.scc = d != 0;
}
template <typename T, Scc S, auto F>
constexpr Exec same = two<T, T, T, S, F>;

// D = f(S0).
template <typename D, typename A, Scc S, auto F>
void one(Wave& w, const Inst& i) {
  const D d = static_cast<D>(F(read<A>(w, i.src[0])));
  write<D>(w, i.dst, d);
  if constexpr (S == kNonZero) w.scc = d != 0;
}

// D = f(D, S0): the instructions that change part of their destination.
template <typename D, auto F>
void change(Wave& w, const Inst& i) {
  write<D>(w, i.dst, F(read<D>(w, i.dst), read<u32>(w, i.src[0])));
}

template <typename A, typename B, auto F>
void compare(Wave& w, const Inst& i) {
  w.scc = F(read<A>(w, i.src[0]), read<B>(w, i.src[1]));
}

// D = EXEC; EXEC = f(S0, EXEC).
template <auto F>
void saveexec(Wave& w, const Inst& i) {
  const u64 old = exec_mask(w), now = F(read64(w, i.src[0]), old);
  write_lanes(w, kExecLo, now);
  write64(w, i.dst, old);
  w.scc = now != 0;
}
// D = EXEC = f(S0, EXEC).
template <auto F>
void wrexec(Wave& w, const Inst& i) {
  const u64 now = F(read64(w, i.src[0]), exec_mask(w));
  write_lanes(w, kExecLo, now);
  write64(w, i.dst, now);
  w.scc = now != 0;
}

template <typename T>
constexpr int kBits = sizeof(T) * 8;
template <typename T>
constexpr u32 shift_of(u32 n) {
  return n & (kBits<T> - 1);
}

template <typename T>
T field_mask(u32 width) {
  return width >= kBits<T> ? ~T(0) : (T(1) << width) - 1;
}

// Bit field extract: offset in the low bits of `spec`, width in [22:16].
template <typename T>
T bfe(T v, u32 spec) {
  return (v >> shift_of<T>(spec)) & field_mask<T>(spec >> 16 & 0x7f);
}
template <typename T>
T bfe_signed(T v, u32 spec) {
  using U = std::make_unsigned_t<T>;
  const u32 width = spec >> 16 & 0x7f;
  if (width == 0) return 0;
  const T shifted = v >> shift_of<U>(spec);
  if (width >= kBits<U>) return shifted;
  return static_cast<T>(static_cast<U>(shifted) << (kBits<U> - width)) >> (kBits<U> - width);
}

template <typename T>
T reverse(T v) {
  T r = 0;
  for (int i = 0; i < kBits<T>; ++i) r |= (v >> i & 1) << (kBits<T> - 1 - i);
  return r;
}
template <typename T>
u32 first_one(T v) {
  return v == 0 ? ~0u : static_cast<u32>(__builtin_ctzll(v));
}
template <typename T>
u32 leading_zeros(T v) {
  return v == 0 ? ~0u : static_cast<u32>(__builtin_clzll(v)) - (64 - kBits<T>);
}
// Leading bits equal to the sign; -1 if all are.
template <typename T>
u32 leading_signs(T v) {
  return leading_zeros<T>(v >> (kBits<T> - 1) ? static_cast<T>(~v) : v);
}
// One bit for each four bits of `v`: spread over all four (wqm) or packed (quadmask).
template <typename T>
T whole_quads(T v) {
  T r = 0;
  for (int i = 0; i < kBits<T>; i += 4) r |= (v >> i & 15) ? T(15) << i : 0;
  return r;
}
template <typename T>
T quad_mask(T v) {
  T r = 0;
  for (int i = 0; i < kBits<T>; i += 4) r |= T((v >> i & 15) != 0) << (i / 4);
  return r;
}

u32 add_u32(u32 a, u32 b, bool& scc) {
  scc = a + b < a;
  return a + b;
}
u32 sub_u32(u32 a, u32 b, bool& scc) {
  scc = b > a;
  return a - b;
}
u32 add_i32(u32 a, u32 b, bool& scc) {
  scc = (~(a ^ b) & (a ^ (a + b))) >> 31;
  return a + b;
}
u32 sub_i32(u32 a, u32 b, bool& scc) {
  scc = ((a ^ b) & (a ^ (a - b))) >> 31;
  return a - b;
}
u32 addc(u32 a, u32 b, bool& scc) {
  const u64 sum = u64{a} + b + scc;
  scc = sum >> 32;
  return static_cast<u32>(sum);
}
u32 subb(u32 a, u32 b, bool& scc) {
  const u32 d = a - b - scc;
  scc = u64{b} + scc > a;
  return d;
}
template <int N>
u32 lshl_add(u32 a, u32 b, bool& scc) {
  const u64 sum = (u64{a} << N) + b;
  scc = sum >> 32;
  return static_cast<u32>(sum);
}
template <typename T>
T min_of(T a, T b, bool& scc) {
  scc = a < b;
  return scc ? a : b;
}
template <typename T>
T max_of(T a, T b, bool& scc) {
  scc = a >= b;
  return scc ? a : b;
}
template <typename T>
T select(T a, T b, bool& scc) {
  return scc ? a : b;
}

template <typename T>
void cmov(Wave& w, const Inst& i) {
  if (w.scc) write<T>(w, i.dst, read<T>(w, i.src[0]));
}

constexpr Type I = Type::kI32, L = Type::kI64, N = Type::kNone;
#define ROW2(name, d, a, b, ...) ROW2F(name, d, a, b, 0, __VA_ARGS__)
#define ROW2F(name, d, a, b, flags, ...) {name, d, {a, b, N}, flags, __VA_ARGS__}
#define ROW1(name, d, a, ...) ROW1F(name, d, a, 0, __VA_ARGS__)
#define ROW1F(name, d, a, flags, ...) {name, d, {a, N, N}, flags, __VA_ARGS__}
#define ROWC(name, a, b, ...) {name, N, {a, b, N}, 0, __VA_ARGS__}

const Row kRows[] = {
    ROW2("s_add_u32", I, I, I, same<u32, kBody, add_u32>),
    ROW2("s_sub_u32", I, I, I, same<u32, kBody, sub_u32>),
    ROW2("s_add_i32", I, I, I, same<u32, kBody, add_i32>),
    ROW2("s_sub_i32", I, I, I, same<u32, kBody, sub_i32>),
    ROW2("s_addc_u32", I, I, I, same<u32, kBody, addc>),
    ROW2("s_subb_u32", I, I, I, same<u32, kBody, subb>),
    ROW2("s_min_i32", I, I, I, same<i32, kBody, min_of<i32>>),
    ROW2("s_min_u32", I, I, I, same<u32, kBody, min_of<u32>>),
    ROW2("s_max_i32", I, I, I, same<i32, kBody, max_of<i32>>),
    ROW2("s_max_u32", I, I, I, same<u32, kBody, max_of<u32>>),
    ROW2("s_cselect_b32", I, I, I, same<u32, kBody, select<u32>>),
    ROW2("s_cselect_b64", L, L, L, same<u64, kBody, select<u64>>),
    ROW2("s_and_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return a & b; }>),
    ROW2("s_and_b64", L, L, L, same<u64, kNonZero, [](u64 a, u64 b) { return a & b; }>),
    ROW2("s_or_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return a | b; }>),
    ROW2("s_or_b64", L, L, L, same<u64, kNonZero, [](u64 a, u64 b) { return a | b; }>),
    ROW2("s_xor_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return a ^ b; }>),
    ROW2("s_xor_b64", L, L, L, same<u64, kNonZero, [](u64 a, u64 b) { return a ^ b; }>),
    ROW2("s_andn2_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return a & ~b; }>),
    ROW2("s_andn2_b64", L, L, L, same<u64, kNonZero, [](u64 a, u64 b) { return a & ~b; }>),
    ROW2("s_orn2_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return a | ~b; }>),
    ROW2("s_orn2_b64", L, L, L, same<u64, kNonZero, [](u64 a, u64 b) { return a | ~b; }>),
    ROW2("s_nand_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return ~(a & b); }>),
    ROW2("s_nand_b64", L, L, L, same<u64, kNonZero, [](u64 a, u64 b) { return ~(a & b); }>),
    ROW2("s_nor_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return ~(a | b); }>),
    ROW2("s_nor_b64", L, L, L, same<u64, kNonZero, [](u64 a, u64 b) { return ~(a | b); }>),
    ROW2("s_xnor_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return ~(a ^ b); }>),
    ROW2("s_xnor_b64", L, L, L, same<u64, kNonZero, [](u64 a, u64 b) { return ~(a ^ b); }>),
    ROW2("s_lshl_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return a << (b & 31); }>),
    ROW2("s_lshl_b64", L, L, I, two<u64, u64, u32, kNonZero, [](u64 a, u32 b) { return a << (b & 63); }>),
    ROW2("s_lshr_b32", I, I, I, same<u32, kNonZero, [](u32 a, u32 b) { return (a >> (b & 31)); }>),
    ROW2("s_lshr_b64", L, L, I, two<u64, u64, u32, kNonZero, [](u64 a, u32 b) { return (a >> (b & 63)); }>),
    ROW2("s_ashr_i32", I, I, I, two<i32, i32, u32, kNonZero, [](i32 a, u32 b) { return (a >> (b & 31)); }>),
    ROW2F("s_ashr_i64", L, L, I, kSignedLiteral,
          two<i64, i64, u32, kNonZero, [](i64 a, u32 b) { return (a >> (b & 63)); }>),
    ROW2("s_bfm_b32", I, I, I,
         same<u32, kKeep, [](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }>),
    ROW2("s_bfm_b64", L, I, I,
         two<u64, u32, u32, kKeep, [](u32 a, u32 b) { return ((u64{1} << (a & 63)) - 1) << (b & 63); }>),
    ROW2("s_mul_i32", I, I, I, same<u32, kKeep, [](u32 a, u32 b) { return a * b; }>),
    ROW2("s_bfe_u32", I, I, I, same<u32, kNonZero, bfe<u32>>),
    ROW2("s_bfe_i32", I, I, I, two<i32, i32, u32, kNonZero, bfe_signed<i32>>),
    ROW2("s_bfe_u64", L, L, I, two<u64, u64, u32, kNonZero, bfe<u64>>),
    ROW2F("s_bfe_i64", L, L, I, kSignedLiteral, two<i64, i64, u32, kNonZero, bfe_signed<i64>>),
    ROW2("s_absdiff_i32", I, I, I,
         same<u32, kNonZero,
              [](u32 a, u32 b) {
                const u32 d = a - b;
                return (d >> 31) ? 0 - d : d;
              }>),
    ROW2("s_mul_hi_u32", I, I, I,
         same<u32, kKeep, [](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }>),
    ROW2("s_mul_hi_i32", I, I, I,
         same<i32, kKeep, [](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); }>),
    ROW2("s_lshl1_add_u32", I, I, I, same<u32, kBody, lshl_add<1>>),
    ROW2("s_lshl2_add_u32", I, I, I, same<u32, kBody, lshl_add<2>>),
    ROW2("s_lshl3_add_u32", I, I, I, same<u32, kBody, lshl_add<3>>),
    ROW2("s_lshl4_add_u32", I, I, I, same<u32, kBody, lshl_add<4>>),
    ROW2("s_pack_ll_b32_b16", I, I, I, same<u32, kKeep, [](u32 a, u32 b) { return (a & 0xffff) | b << 16; }>),
    ROW2("s_pack_lh_b32_b16", I, I, I,
         same<u32, kKeep, [](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); }>),
    ROW2("s_pack_hh_b32_b16", I, I, I,
         same<u32, kKeep, [](u32 a, u32 b) { return (a >> 16) | (b & 0xffff0000); }>),

    ROW1("s_mov_b32", I, I, one<u32, u32, kKeep, [](u32 a) { return a; }>),
    ROW1("s_mov_b64", L, L, one<u64, u64, kKeep, [](u64 a) { return a; }>),
    ROW1("s_cmov_b32", I, I, cmov<u32>),
    ROW1("s_cmov_b64", L, L, cmov<u64>),
    ROW1("s_not_b32", I, I, one<u32, u32, kNonZero, [](u32 a) { return ~a; }>),
    ROW1("s_not_b64", L, L, one<u64, u64, kNonZero, [](u64 a) { return ~a; }>),
    ROW1("s_wqm_b32", I, I, one<u32, u32, kNonZero, whole_quads<u32>>),
    ROW1("s_wqm_b64", L, L, one<u64, u64, kNonZero, whole_quads<u64>>),
    ROW1("s_brev_b32", I, I, one<u32, u32, kKeep, reverse<u32>>),
    ROW1("s_brev_b64", L, L, one<u64, u64, kKeep, reverse<u64>>),
    ROW1("s_bcnt0_i32_b32", I, I, one<u32, u32, kNonZero, [](u32 a) { return 32 - __builtin_popcount(a); }>),
    ROW1("s_bcnt0_i32_b64", I, L,
         one<u32, u64, kNonZero, [](u64 a) { return 64 - __builtin_popcountll(a); }>),
    ROW1("s_bcnt1_i32_b32", I, I, one<u32, u32, kNonZero, [](u32 a) { return __builtin_popcount(a); }>),
    ROW1("s_bcnt1_i32_b64", I, L, one<u32, u64, kNonZero, [](u64 a) { return __builtin_popcountll(a); }>),
    ROW1("s_ff0_i32_b32", I, I, one<u32, u32, kKeep, [](u32 a) { return (first_one<u32>(~a)); }>),
    ROW1("s_ff0_i32_b64", I, L, one<u32, u64, kKeep, [](u64 a) { return (first_one<u64>(~a)); }>),
    ROW1("s_ff1_i32_b32", I, I, one<u32, u32, kKeep, first_one<u32>>),
    ROW1("s_ff1_i32_b64", I, L, one<u32, u64, kKeep, first_one<u64>>),
    ROW1("s_flbit_i32_b32", I, I, one<u32, u32, kKeep, leading_zeros<u32>>),
    ROW1("s_flbit_i32_b64", I, L, one<u32, u64, kKeep, leading_zeros<u64>>),
    ROW1("s_flbit_i32", I, I, one<u32, u32, kKeep, leading_signs<u32>>),
    ROW1F("s_flbit_i32_i64", I, L, kSignedLiteral, one<u32, u64, kKeep, leading_signs<u64>>),
    ROW1("s_sext_i32_i8", I, I, one<i32, u32, kKeep, [](u32 a) { return (static_cast<int8_t>(a)); }>),
    ROW1("s_sext_i32_i16", I, I, one<i32, u32, kKeep, [](u32 a) { return (static_cast<int16_t>(a)); }>),
    ROW1("s_bitset0_b32", I, I, change<u32, [](u32 d, u32 a) { return d & ~(1u << (a & 31)); }>),
    ROW1("s_bitset0_b64", L, I, change<u64, [](u64 d, u32 a) { return d & ~(u64{1} << (a & 63)); }>),
    ROW1("s_bitset1_b32", I, I, change<u32, [](u32 d, u32 a) { return d | 1u << (a & 31); }>),
    ROW1("s_bitset1_b64", L, I, change<u64, [](u64 d, u32 a) { return d | u64{1} << (a & 63); }>),
    ROW1("s_getpc_b64", L, N, s_getpc),
    ROW1F("s_setpc_b64", N, L, kRegisterSrc | kJump, s_setpc),
    ROW1F("s_swappc_b64", L, L, kRegisterSrc | kJump, s_swappc),
    ROW1F("s_and_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return s & e; }>),
    ROW1F("s_or_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return s | e; }>),
    ROW1F("s_xor_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return s ^ e; }>),
    ROW1F("s_andn2_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return s & ~e; }>),
    ROW1F("s_orn2_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return s | ~e; }>),
    ROW1F("s_nand_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return ~(s & e); }>),
    ROW1F("s_nor_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return ~(s | e); }>),
    ROW1F("s_xnor_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return ~(s ^ e); }>),
    ROW1("s_quadmask_b32", I, I, one<u32, u32, kNonZero, quad_mask<u32>>),
    ROW1("s_quadmask_b64", L, L, one<u64, u64, kNonZero, quad_mask<u64>>),
    ROW1F("s_movrels_b32", I, I, kRegisterSrc | kNeedsM0, s_movrels<1>),
    ROW1F("s_movrels_b64", L, L, kRegisterSrc | kNeedsM0, s_movrels<2>),
    ROW1F("s_movreld_b32", I, I, kNeedsM0, s_movreld<1>),
    ROW1F("s_movreld_b64", L, L, kNeedsM0, s_movreld<2>),
    ROW1("s_abs_i32", I, I, one<u32, u32, kNonZero, [](u32 a) { return (a >> 31 ? 0 - a : a); }>),
    ROW1F("s_andn1_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return ~s & e; }>),
    ROW1F("s_orn1_saveexec_b64", L, L, kWritesExec, saveexec<[](u64 s, u64 e) { return ~s | e; }>),
    ROW1F("s_andn1_wrexec_b64", L, L, kWritesExec, wrexec<[](u64 s, u64 e) { return ~s & e; }>),
    ROW1F("s_andn2_wrexec_b64", L, L, kWritesExec, wrexec<[](u64 s, u64 e) { return s & ~e; }>),
    ROW1("s_bitreplicate_b64_b32", L, I,
         one<u64, u32, kKeep,
             [](u32 a) {
               u64 d = 0;
               for (int i = 0; i < 32; ++i) d |= u64{(a >> i) & 1} * 3 << (2 * i);
               return d;
             }>),

    ROWC("s_cmp_eq_i32", I, I, compare<i32, i32, [](i32 a, i32 b) { return a == b; }>),
    ROWC("s_cmp_lg_i32", I, I, compare<i32, i32, [](i32 a, i32 b) { return a != b; }>),
    ROWC("s_cmp_gt_i32", I, I, compare<i32, i32, [](i32 a, i32 b) { return (a > b); }>),
    ROWC("s_cmp_ge_i32", I, I, compare<i32, i32, [](i32 a, i32 b) { return (a >= b); }>),
    ROWC("s_cmp_lt_i32", I, I, compare<i32, i32, [](i32 a, i32 b) { return a < b; }>),
    ROWC("s_cmp_le_i32", I, I, compare<i32, i32, [](i32 a, i32 b) { return a <= b; }>),
    ROWC("s_cmp_eq_u32", I, I, compare<u32, u32, [](u32 a, u32 b) { return a == b; }>),
    ROWC("s_cmp_lg_u32", I, I, compare<u32, u32, [](u32 a, u32 b) { return a != b; }>),
    ROWC("s_cmp_gt_u32", I, I, compare<u32, u32, [](u32 a, u32 b) { return (a > b); }>),
    ROWC("s_cmp_ge_u32", I, I, compare<u32, u32, [](u32 a, u32 b) { return (a >= b); }>),
    ROWC("s_cmp_lt_u32", I, I, compare<u32, u32, [](u32 a, u32 b) { return a < b; }>),
    ROWC("s_cmp_le_u32", I, I, compare<u32, u32, [](u32 a, u32 b) { return a <= b; }>),
    ROWC("s_bitcmp0_b32", I, I, compare<u32, u32, [](u32 a, u32 b) { return (!(a >> (b & 31) & 1)); }>),
    ROWC("s_bitcmp1_b32", I, I, compare<u32, u32, [](u32 a, u32 b) { return (a >> (b & 31) & 1); }>),
    ROWC("s_bitcmp0_b64", L, I, compare<u64, u32, [](u64 a, u32 b) { return (!(a >> (b & 63) & 1)); }>),
    ROWC("s_bitcmp1_b64", L, I, compare<u64, u32, [](u64 a, u32 b) { return (a >> (b & 63) & 1); }>),
    ROWC("s_cmp_eq_u64", L, L, compare<u64, u64, [](u64 a, u64 b) { return a == b; }>),
    ROWC("s_cmp_lg_u64", L, L, compare<u64, u64, [](u64 a, u64 b) { return a != b; }>),
};

}  // namespace

std::span<const Row> scalar_alu_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

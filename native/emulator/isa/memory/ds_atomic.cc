// SPDX-License-Identifier: MIT OR Apache-2.0
// Read-modify-write in LDS. The waves of a workgroup take turns on one host thread, so plain accesses are
// atomic; lanes go in ascending order. Floating point follows MODE.
#include "isa/memory/atomic_ops.h"
#include "isa/memory/ds.h"
#include "isa/memory/memory_access.h"
#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

// A checked pointer to an aligned T, or nullptr after a fault.
template <class T>
u8* place(Wave& w, const Inst& inst, u32 address, int lane) {
  if (address % sizeof(T) == 0) [[likely]]
    return w.lds(inst, address, sizeof(T), lane);
  w.fault(inst, hipErrorMisalignedAddress, "lane %d: LDS address 0x%x of an atomic is not a multiple of %u",
          lane, address, static_cast<unsigned>(sizeof(T)));
  return nullptr;
}

// Tells observers of an atomic's accesses, at `offset` from each lane's address.
inline void tell_atomic(Wave& w, const Inst& inst, u32 offset, u32 bytes) {
  if (!w.hears(kEventLds)) [[likely]]
    return;
  u32 address[kLanes];
  for (int l = 0; l < kLanes; ++l) address[l] = w.vgpr[inst.src[0].index][l] + offset;
  w.tell_lds(inst, address, exec_mask(w), bytes);
}

// op(old, data0) or op(old, data0, data1); the old value is returned if the row has a destination.
template <class T, bool kTwo, bool kReturn, class Op>
FMHA_EMU_INLINE void modify(Wave& w, const Inst& inst, Op op) {
  if (ds_refused(w, inst)) return;
  tell_atomic(w, inst, static_cast<u32>(inst.imm), sizeof(T));
  for_lanes(exec_mask(w), [&](int l) {
    u8* p = place<T>(w, inst, w.vgpr[inst.src[0].index][l] + static_cast<u32>(inst.imm), l);
    if (!p) return;
    const T old = load_as<T>(p), x = read_lane<T>(w.vgpr[inst.src[1].index], l);
    T now;
    if constexpr (kTwo) {
      now = op(old, x, read_lane<T>(w.vgpr[inst.src[2].index], l));
    } else {
      now = op(old, x);
    }
    std::memcpy(p, &now, sizeof now);
    if constexpr (kReturn) write_lane<T>(w.vgpr[inst.dst.index], l, old);
  });
}
template <class T, auto kOp, bool kReturn>
void one(Wave& w, const Inst& inst) {
  modify<T, false, kReturn>(w, inst, kOp);
}
template <class T, auto kOp, bool kReturn>
void two(Wave& w, const Inst& inst) {
  modify<T, true, kReturn>(w, inst, kOp);
}

constexpr auto kMaskOr = [](auto old, auto mask, auto x) { return (old & ~mask) | x; };
constexpr auto kCompareStore = [](auto old, auto compare, auto x) { return old == compare ? x : old; };
constexpr auto kWrap = [](auto old, auto x, auto y) { return old >= x ? old - x : old + y; };
// Each half is exchanged if the data's top bit says so.
constexpr auto kConditionalSwap = [](u64 old, u64 x) {
  const u64 low = x & 0x80000000 ? x & 0x7fffffff : old & 0xffffffff;
  const u64 high = x >> 63 ? (x >> 32 & 0x7fffffff) : old >> 32;
  return high << 32 | low;
};

// Two exchanges, at offsets in units of T or of 64 T.
template <class T, u32 kUnit>
void exchange2(Wave& w, const Inst& inst) {
  if (ds_refused(w, inst)) return;
  constexpr u32 kBytes = sizeof(T);
  tell_atomic(w, inst, inst.offset0 * kUnit * kBytes, kBytes);
  tell_atomic(w, inst, inst.offset1 * kUnit * kBytes, kBytes);
  for_lanes(exec_mask(w), [&](int l) {
    const u32 base = w.vgpr[inst.src[0].index][l];
    u8* first = place<T>(w, inst, base + inst.offset0 * kUnit * kBytes, l);
    u8* second = first ? place<T>(w, inst, base + inst.offset1 * kUnit * kBytes, l) : nullptr;
    if (!second) return;
    const T x = read_lane<T>(w.vgpr[inst.src[1].index], l), y = read_lane<T>(w.vgpr[inst.src[2].index], l);
    const T old_first = load_as<T>(first), old_second = load_as<T>(second);
    std::memcpy(first, &x, kBytes);
    std::memcpy(second, &y, kBytes);
    write_lane<T>(w.vgpr[inst.dst.index], l, old_first);
    write_lane<T>(w.vgpr[inst.dst.index + kBytes / 4], l, old_second);
  });
}

// Adds the number of active lanes to (or subtracts it from) a counter at M0[15:0] + offset; all get its old
// value. LLVM puts an LDS pointer there; GDS would use M0[31:16].
template <bool kUp>
void count_lanes(Wave& w, const Inst& inst) {
  if (ds_refused(w, inst)) return;
  u8* p = place<u32>(w, inst, (w.sgpr[kM0] & 0xffff) + static_cast<u32>(inst.imm), 0);
  if (!p) return;
  const u32 old = load_as<u32>(p), lanes = static_cast<u32>(__builtin_popcountll(exec_mask(w)));
  const u32 now = kUp ? old + lanes : old - lanes;
  std::memcpy(p, &now, 4);
  for_lanes(exec_mask(w), [&](int l) { w.vgpr[inst.dst.index][l] = old; });
}

// The driver would have to give the queue global wave sync counters; there is none here.
void no_gws(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorLaunchFailure, "the launch owns no global wave sync (GWS) resource");
}

void no_graphics(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorLaunchFailure,
          "counts in the order of the graphics pipeline, which there is none of");
}

constexpr Type kNo = Type::kNone, kI32 = Type::kI32;
constexpr Row gws_row(const char* mnemonic, bool has_data) {
  return {mnemonic, kNo, {has_data ? kI32 : kNo, kNo, kNo}, kRefused | kCounted, no_gws};
}

template <class T, auto kOp, bool kReturn>
constexpr Row one_row(const char* mnemonic) {
  const Type t = type_for<T>();
  return sized({mnemonic, kReturn ? t : kNo, {kI32, t, kNo}, kAtomic, one<T, kOp, kReturn>}, sizeof(T));
}
template <class T, auto kOp, bool kReturn>
constexpr Row two_row(const char* mnemonic) {
  const Type t = type_for<T>();
  return sized({mnemonic, kReturn ? t : kNo, {kI32, t, t}, kAtomic, two<T, kOp, kReturn>}, sizeof(T));
}
template <class T, u32 kUnit>
constexpr Row exchange2_row(const char* mnemonic) {
  const Type t = type_for<T>(), pair = sizeof(T) == 8 ? Type::kB128 : Type::kI64;
  const RowFlags flags = kAtomic | two_offsets(kUnit);
  return sized({mnemonic, pair, {kI32, t, t}, flags, exchange2<T, kUnit>}, sizeof(T));
}

// The form without and with a returned value.
// clang-format off
#define ONE(T, kOp, stem, suffix) \
  one_row<T, kOp, false>("ds_" stem "_" suffix), one_row<T, kOp, true>("ds_" stem "_rtn_" suffix)
#define TWO(T, kOp, stem, suffix) \
  two_row<T, kOp, false>("ds_" stem "_" suffix), two_row<T, kOp, true>("ds_" stem "_rtn_" suffix)

constexpr Row kRows[] = {
    ONE(u32, kAdd, "add", "u32"),
    ONE(u32, kSub, "sub", "u32"),
    ONE(u32, kReverseSub, "rsub", "u32"),
    ONE(u32, kIncrement, "inc", "u32"),
    ONE(u32, kDecrement, "dec", "u32"),
    ONE(i32, kMin, "min", "i32"),
    ONE(i32, kMax, "max", "i32"),
    ONE(u32, kMin, "min", "u32"),
    ONE(u32, kMax, "max", "u32"),
    ONE(u32, kAnd, "and", "b32"),
    ONE(u32, kOr, "or", "b32"),
    ONE(u32, kXor, "xor", "b32"),
    TWO(u32, kMaskOr, "mskor", "b32"),
    TWO(u32, kCompareStore, "cmpst", "b32"),
    TWO(float, kCompareStore, "cmpst", "f32"),
    // RDNA's: the new value comes first, what it compares with second.
    TWO(u32, kCompareSwap, "cmpstore", "b32"),
    TWO(float, kCompareSwap, "cmpstore", "f32"),
    TWO(u64, kCompareSwap, "cmpstore", "b64"),
    TWO(double, kCompareSwap, "cmpstore", "f64"),
    ONE(u32, kConditionalSub, "cond_sub", "u32"),
    ONE(u32, kSubClamp, "sub_clamp", "u32"),
    ONE(float, kMinNumber, "min_num", "f32"),
    ONE(float, kMaxNumber, "max_num", "f32"),
    ONE(double, kMinNumber, "min_num", "f64"),
    ONE(double, kMaxNumber, "max_num", "f64"),
    ONE(float, kMin, "min", "f32"),
    ONE(float, kMax, "max", "f32"),
    ONE(float, kAdd, "add", "f32"),
    one_row<u32, kAddPkF16, false>("ds_pk_add_f16"),
    one_row<u32, kAddPkBf16, false>("ds_pk_add_bf16"),
    one_row<u32, kAddPkF16, true>("ds_pk_add_rtn_f16"),
    one_row<u32, kAddPkBf16, true>("ds_pk_add_rtn_bf16"),
    one_row<u32, kSwap, true>("ds_wrxchg_rtn_b32"),
    exchange2_row<u32, 1>("ds_wrxchg2_rtn_b32"),
    exchange2_row<u32, 64>("ds_wrxchg2st64_rtn_b32"),
    two_row<u32, kWrap, true>("ds_wrap_rtn_b32"),
    ONE(u64, kAdd, "add", "u64"),
    ONE(u64, kSub, "sub", "u64"),
    ONE(u64, kReverseSub, "rsub", "u64"),
    ONE(u64, kIncrement, "inc", "u64"),
    ONE(u64, kDecrement, "dec", "u64"),
    ONE(i64, kMin, "min", "i64"),
    ONE(i64, kMax, "max", "i64"),
    ONE(u64, kMin, "min", "u64"),
    ONE(u64, kMax, "max", "u64"),
    ONE(u64, kAnd, "and", "b64"),
    ONE(u64, kOr, "or", "b64"),
    ONE(u64, kXor, "xor", "b64"),
    TWO(u64, kMaskOr, "mskor", "b64"),
    TWO(u64, kCompareStore, "cmpst", "b64"),
    TWO(double, kCompareStore, "cmpst", "f64"),
    ONE(double, kMin, "min", "f64"),
    ONE(double, kMax, "max", "f64"),
    ONE(double, kAdd, "add", "f64"),
    one_row<u64, kSwap, true>("ds_wrxchg_rtn_b64"),
    exchange2_row<u64, 1>("ds_wrxchg2_rtn_b64"),
    exchange2_row<u64, 64>("ds_wrxchg2st64_rtn_b64"),
    one_row<u64, kConditionalSwap, true>("ds_condxchg32_rtn_b64"),
    {"ds_consume", kI32, {kNo, kNo, kNo}, kAtomic, count_lanes<false>},
    {"ds_append", kI32, {kNo, kNo, kNo}, kAtomic, count_lanes<true>},
    {"ds_ordered_count", kI32, {kI32, kNo, kNo}, kRefused | kCounted, no_graphics},
    {"ds_add_gs_reg_rtn", Type::kI64, {kNo, kI32, kNo}, kRefused | kCounted, no_graphics},
    {"ds_sub_gs_reg_rtn", Type::kI64, {kNo, kI32, kNo}, kRefused | kCounted, no_graphics},
    gws_row("ds_gws_sema_release_all", false),
    gws_row("ds_gws_init", true),
    gws_row("ds_gws_sema_v", false),
    gws_row("ds_gws_sema_br", true),
    gws_row("ds_gws_sema_p", false),
    gws_row("ds_gws_barrier", true),
};
#undef ONE
#undef TWO
// clang-format on

}  // namespace

std::span<const Row> ds_atomic_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

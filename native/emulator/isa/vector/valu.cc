// SPDX-License-Identifier: MIT OR Apache-2.0
// The slow paths of the vector ALU: scalar operands, input and output modifiers, SDWA, DPP, partial EXEC.
#include "isa/vector/valu.h"

#include <immintrin.h>

#include "base/errors.h"
#include "core/dialect.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

enum SpecialOperand : u16 {
  kSharedBase = 235,
  kSharedLimit,
  kPrivateBase,
  kPrivateLimit,
  kVccz = 251,
  kExecz,
  kScc
};
constexpr u32 kApertureLimit = 0xffffffff;

u64 special_value(const Wave& w, u16 code) {
  switch (code) {
    case kSharedBase:
      return static_cast<u64>(kSharedApertureHi) << 32;
    case kSharedLimit:
      return static_cast<u64>(kSharedApertureHi) << 32 | kApertureLimit;
    case kPrivateBase:
      return static_cast<u64>(kPrivateApertureHi) << 32;
    case kPrivateLimit:
      return static_cast<u64>(kPrivateApertureHi) << 32 | kApertureLimit;
    case kVccz:
      return vcc_mask(w) == 0;
    case kExecz:
      return exec_mask(w) == 0;
    case kScc:
      return w.scc;
    default:
      return 0;
  }
}

void broadcast(u32 value, u32* out) {
  out = aligned(out);
  for (int l = 0; l < kLanes; ++l) out[l] = value;
}

// The operand without modifiers: in place, or broadcast into `t`.
const u32* unmodified(Wave& w, const Operand& o, u32* t) {
  switch (o.kind) {
    case OperandKind::kVgpr:
      return w.vgpr[o.index];
    case OperandKind::kConst:
      return o.lanes;
    case OperandKind::kSgpr:
      for (int j = 0; j < o.dwords; ++j) broadcast(w.sgpr[o.index + j], t + j * kMostLanes);
      return t;
    default: {
      const u64 v = special_value(w, o.index);
      broadcast(static_cast<u32>(v), t);
      if (o.dwords == 2) broadcast(static_cast<u32>(v >> 32), t + kMostLanes);
      return t;
    }
  }
}

// --- DPP ---
enum DppControl : u16 {
  kQuadPermEnd = 0x0ff,
  kRowShl = 0x100,
  kRowShr = 0x110,
  kRowRor = 0x120,
  kWaveShl = 0x130,
  kWaveRol = 0x134,
  kWaveShr = 0x138,
  kWaveRor = 0x13c,
  kRowMirror = 0x140,
  kRowHalfMirror = 0x141,
  kRowBcast15 = 0x142,
  kRowBcast31 = 0x143,
  kRowNewBcast = 0x150,  // row_share on gfx10 and later
  kRowXmask = 0x160,
};
constexpr int kNoLane = -1, kBadControl = -2;

// The lane that lane l reads; kNoLane beyond the row's or wave's end.
int dpp_lane(u16 ctrl, int l) {
  const int row = l & ~15, i = l & 15, n = ctrl & 15;
  if (ctrl <= kQuadPermEnd) return (l & ~3) | (ctrl >> (2 * (l & 3)) & 3);
  if (ctrl > kRowShl && ctrl < kRowShr) return i + n < 16 ? l + n : kNoLane;
  if (ctrl > kRowShr && ctrl < kRowRor) return i - n >= 0 ? l - n : kNoLane;
  if (ctrl > kRowRor && ctrl < kWaveShl) return row | ((i - n) & 15);
  if ((ctrl & ~15) == kRowNewBcast) return row | n;
  if ((ctrl & ~15) == kRowXmask) return l ^ n;
  switch (ctrl) {
    case kWaveShl:
      return l + 1 < kLanes ? l + 1 : kNoLane;
    case kWaveRol:
      return (l + 1) % kLanes;
    case kWaveShr:
      return l - 1;  // lane 0: kNoLane
    case kWaveRor:
      return (l + kLanes - 1) % kLanes;
    case kRowMirror:
      return row | (15 - i);
    case kRowHalfMirror:
      return (l & ~7) | (7 - (l & 7));
    case kRowBcast15:
      return row ? row - 1 : kNoLane;
    case kRowBcast31:
      return l >= 32 ? 31 : kNoLane;
    default:
      return kBadControl;
  }
}

// RDNA shifts no whole waves and does not broadcast the end of a row; CDNA exchanges no lanes.
bool has_control(const Dpp& d, Isa isa) {
  if (d.by8) return true;
  if (!is_rdna(isa)) return d.ctrl < kRowXmask;
  return d.ctrl < kWaveShl || (d.ctrl >= kRowMirror && d.ctrl != kRowBcast15 && d.ctrl != kRowBcast31);
}

int dpp_lane(const Dpp& d, int l) {
  return d.by8 ? (l & ~7) | static_cast<int>(d.lanes >> (3 * (l & 7)) & 7) : dpp_lane(d.ctrl, l);
}

// If a lane's source is beyond the end or inactive, the lane reads 0 with bound_ctrl; without, it is not
// written. DPP8 reads 0 of inactive lanes.
bool dpp_valid(const Dpp& d, u64 exec, int from) {
  return from >= 0 && (d.fetch_inactive || exec >> from & 1);
}

void dpp_move(Wave& w, const Inst& inst, const u32* p, int dwords, u32* t) {
  if (!has_control(inst.dpp, w.group->isa)) return fault_modifier(w, inst, "dpp_ctrl");
  const u64 exec = exec_mask(w);
  alignas(64) u32 from[4][kLanes];  // t may be p
  for (int j = 0; j < dwords; ++j) std::memcpy(from[j], p + j * kMostLanes, sizeof from[j]);
  for (int l = 0; l < kLanes; ++l) {
    const int s = dpp_lane(inst.dpp, l);
    if (s == kBadControl) return fault_modifier(w, inst, "dpp_ctrl");
    for (int j = 0; j < dwords; ++j) t[j * kMostLanes + l] = dpp_valid(inst.dpp, exec, s) ? from[j][s] : 0;
  }
}

u64 dpp_mask(const Inst& inst, u64 exec) {
  if (inst.dpp.by8) return kAllLanes;
  u64 mask = 0;
  for (int l = 0; l < kLanes; ++l) {
    const bool on = inst.dpp.row_mask >> (l / 16) & 1 && inst.dpp.bank_mask >> (l / 4 % 4) & 1;
    const bool valid = inst.dpp.bound_ctrl || dpp_valid(inst.dpp, exec, dpp_lane(inst.dpp, l));
    mask |= static_cast<u64>(on && valid) << l;
  }
  return mask;
}

// Source n before its modifiers, moved by DPP: in place, or in `t`.
const u32* moved(Wave& w, const Inst& inst, int n, int dwords, u32* t) {
  const u32* p = unmodified(w, inst.src[n], t);
  if (n || !is_dpp(inst.encoding)) return p;
  dpp_move(w, inst, p, dwords, t);
  return t;
}

// --- SDWA ---
enum SdwaSelect : u8 { kByte3 = 3, kWord0 = 4, kWord1 = 5, kDword = 6 };
enum SdwaUnused : u8 { kPad = 0, kSext = 1, kPreserve = 2 };
u32 select_shift(u8 sel) { return sel <= kByte3 ? 8u * sel : sel == kWord1 ? 16u : 0u; }
u32 select_bits(u8 sel) { return sel <= kByte3 ? 8u : sel == kDword ? 32u : 16u; }

void sdwa_source(const Inst& inst, int n, const u32* p, u32* t) {
  const u32 shift = select_shift(inst.sdwa.src_sel[n]), up = 32 - select_bits(inst.sdwa.src_sel[n]);
  if (inst.sdwa.sext >> n & 1) {
    for_lanes([=](int l) { t[l] = static_cast<u32>(static_cast<i32>(p[l] >> shift << up) >> up); });
  } else {
    for_lanes([=](int l) { t[l] = p[l] >> shift << up >> up; });
  }
}

void sdwa_result(const Inst& inst, const u32* old, u32* t) {
  const Sdwa& s = inst.sdwa;
  const u32 shift = select_shift(s.dst_sel), up = 32 - select_bits(s.dst_sel);
  const u32 field = ~0u >> up << shift, kept = s.dst_unused == kPreserve ? ~field : 0;
  const u32 above = s.dst_unused == kSext ? ~(field | (field - (1u << shift)) | ((1u << shift) - 1)) : 0;
  for_lanes([=](int l) {
    const u32 v = t[l] << up >> up << shift;
    const u32 sign = t[l] << up >> 31 ? above : 0;
    t[l] = v | sign | (old[l] & kept);
  });
}

// --- input modifiers ---
// abs and neg of a type are an AND and an XOR of the dword that holds its sign.
const u32* sign_modified(Wave& w, const Inst& inst, int n, Type type, const u32* p, u32* t) {
  const bool neg = inst.neg >> n & 1, abs = inst.abs >> n & 1;
  if (!neg && !abs) return p;
  if (!is_float(type)) {
    fault_modifier(w, inst, "neg or abs on an integer");
    return p;
  }
  const u32 sign = is_16bit(type) ? 0x8000u : 1u << 31;
  const u32 keep = abs ? ~sign : ~0u, flip = neg ? sign : 0;
  const int top = type == Type::kF64 ? kMostLanes : 0;
  if (top && p != t) {
    const u32* from = p;
    for_lanes([=](int l) { t[l] = from[l]; });
  }
  const u32* from = p + top;
  u32* to = t + top;
  for_lanes([=](int l) { to[l] = (from[l] & keep) ^ flip; });
  return t;
}

const u32* negated(const u32* p, u32* t) {
  for_lanes([=](int l) { t[l] = p[l] ^ 1u << 31; });
  return t;
}

// --- output modifiers ---
// omod is ignored in IEEE mode and when denormal results are kept; it turns -0 into +0.
template <class T, class Mul>
void apply_omod(const Inst& inst, u32* t, Mul mul) {
  const float factor = inst.omod == 1 ? 2.0f : inst.omod == 2 ? 4.0f : 0.5f;
  for_lanes([=](int l) {
    const T v = mul(load_lane<T>(t, l), factor);
    store_lane(t, l, is_zero(v) ? bits<T>(BitsOf<T>{0}) : v);
  });
}

// Clamps to [0, 1], -0 to +0; a NaN to 0 under DX10_CLAMP.
template <class T>
void apply_clamp(const Env& env, T one, u32* t) {
  const bool nan_to_zero = env.dx10_clamp;
  for_lanes([=](int l) {
    const T v = load_lane<T>(t, l);
    const T zero = bits<T>(BitsOf<T>{0});
    const T inside = is_nan(v)                 ? (nan_to_zero ? zero : v)
                     : is_negative(v)          ? zero
                     : magnitude(v) > raw(one) ? one
                                               : v;
    store_lane(t, l, inside);
  });
}

void output_modifiers(Wave& w, const Inst& inst, Type type, u32* t) {
  const Env env(w.mode);
  const bool single = type == Type::kF32 || type == Type::kPkF32;
  const u32 denorm = single ? Mode::kDenorm32 : Mode::kDenorm64;
  if (inst.omod && !env.ieee && !(w.mode >> denorm & 2)) {
    const auto times = [](float v, float f) { return v * f; };
    if (single) apply_omod<float>(inst, t, times);
    if (type == Type::kPkF32) apply_omod<float>(inst, t + kMostLanes, times);
    if (type == Type::kF64)
      apply_omod<double>(inst, t, [](double v, float f) { return v * static_cast<double>(f); });
    if (type == Type::kF16) {
      apply_omod<f16>(inst, t, [=](f16 v, float f) { return to_f16(to_f32(v, env) * f, env); });
    }
  }
  if (!inst.clamp) return;
  if (type == Type::kF32) apply_clamp<float>(env, 1.0f, t);
  if (type == Type::kF64) apply_clamp<double>(env, 1.0, t);
  if (type == Type::kPkF32) {
    apply_clamp<float>(env, 1.0f, t);
    apply_clamp<float>(env, 1.0f, t + kMostLanes);
  }
  if (type == Type::kF16) apply_clamp<f16>(env, f16{0x3c00}, t);
}

// A 16-bit result goes to the half op_sel says. The other half is kept, or cleared by the older instructions.
void place_half(const Inst& inst, const u32* old, bool keeps_other_half, u32* t) {
  if (inst.op_sel & 8) {
    for_lanes([=](int l) { t[l] = (t[l] << 16) | (old[l] & 0xffffu); });
  } else if (keeps_other_half) {
    for_lanes([=](int l) { t[l] = (t[l] & 0xffffu) | (old[l] & 0xffff0000u); });
  }
}

void write_back(Wave& w, const Inst& inst, int dwords, const u32* t) {
  const u64 mask = write_mask(w, inst);
  for (int j = 0; j < dwords; ++j) {
    u32* d = w.vgpr[inst.dst.index + j];
    select_lanes(mask, t + j * kMostLanes, d, d);
  }
}

}  // namespace

void fault_modifier(Wave& w, const Inst& inst, const char* what) {
  w.fault(inst, hipErrorIllegalInstruction, "unsupported modifier on this instruction: %s", what);
}

void fault_clamped_dot(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorIllegalInstruction,
          "clamp on a dot product of floats: cards of RDNA 3 and 4 ignore it on v_dot2_f32_f16; what other "
          "archs or instructions do nobody has published");
}

u64 read_scalar(const Wave& w, const Operand& o) {
  switch (o.kind) {
    case OperandKind::kSgpr:
      return o.dwords == 2 ? w.sgpr64(o.index) : w.sgpr[o.index];
    case OperandKind::kConst:
      return o.value;
    case OperandKind::kSpecial:
      return special_value(w, o.index);
    default:
      return 0;
  }
}

void write_lanes(Wave& w, const Operand& o, u64 mask) {
  write_lanes(w, o.kind == OperandKind::kSgpr ? o.index : static_cast<int>(kVccLo), mask);
}

u64 write_mask(Wave& w, const Inst& inst) {
  const u64 exec = exec_mask(w);
  return is_dpp(inst.encoding) ? exec & dpp_mask(inst, exec) : exec;
}

u64 pack_mask(const u32* lanes) {
  u64 r = 0;
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  for (int i = 0; i < kLanes / 16; ++i)
    r |= static_cast<u64>(_mm512_movepi32_mask(_mm512_load_si512(lanes + 16 * i))) << (16 * i);
#elif defined(__AVX2__)
  for (int i = 0; i < kLanes / 8; ++i) {
    const __m256 v = _mm256_load_ps(reinterpret_cast<const float*>(lanes + 8 * i));
    r |= static_cast<u64>(static_cast<u32>(_mm256_movemask_ps(v))) << (8 * i);
  }
#else
  for (int i = 0; i < kLanes / 4; ++i) {
    const __m128 v = _mm_load_ps(reinterpret_cast<const float*>(lanes + 4 * i));
    r |= static_cast<u64>(static_cast<u32>(_mm_movemask_ps(v))) << (4 * i);
  }
#endif
  return r;
}

const u32* fetch_slow(Wave& w, const Inst& inst, int n, Type type) {
  u32* t = w.tmp[n][0];
  const u32* p = moved(w, inst, n, dwords_of(type), t);
  if (sources_plain(inst)) return p;
  if (inst.encoding == Encoding::kSdwa && n < 2 && inst.sdwa.src_sel[n] != kDword) {
    sdwa_source(inst, n, p, t);
    p = t;
  }
  if (inst.op_sel >> n & 1 && is_16bit(type)) {
    const u32* from = p;
    for_lanes([=](int l) { t[l] = from[l] >> 16; });
    p = t;
  }
  return sign_modified(w, inst, n, type, p, t);
}

// Two halves in a dword: op_sel says which half feeds the low result, op_sel_hi which the high one.
const u32* fetch_packed_slow(Wave& w, const Inst& inst, int n, bool is_float) {
  u32* t = w.tmp[n][0];
  const u32* p = moved(w, inst, n, 1, t);
  const u32 low = inst.op_sel >> n & 1 ? 16 : 0, high = inst.op_sel_hi >> n & 1 ? 16 : 0;
  const u32 flip = (inst.neg >> n & 1 ? 0x8000u : 0) | (inst.neg_hi >> n & 1 ? 0x80000000u : 0);
  if (flip && !is_float) fault_modifier(w, inst, "neg_lo or neg_hi on an integer");
  if (!low && high && !flip) return p;
  for_lanes([=](int l) { t[l] = ((p[l] >> low & 0xffffu) | p[l] >> high << 16) ^ flip; });
  return t;
}

// Two registers: op_sel says which one feeds the low result, op_sel_hi which the high one.
void fetch_pair(Wave& w, const Inst& inst, int n, const u32** low, const u32** high) {
  u32(*t)[kMostLanes] = w.tmp[n];
  const Operand& o = inst.src[n];
  const u32* p = unmodified(w, o, t[0]);
  const int second = o.dwords == 2 ? kMostLanes : 0;
  *low = p + (inst.op_sel >> n & 1 ? second : 0);
  *high = p + (inst.op_sel_hi >> n & 1 ? second : 0);
  if (inst.neg >> n & 1) *low = negated(*low, t[2]);
  if (inst.neg_hi >> n & 1) *high = negated(*high, t[3]);
}

// v_fma_mix: op_sel_hi makes a source f16, op_sel then says which half; neg_hi stands for abs.
const u32* fetch_mix(Wave& w, const Inst& inst, int n) {
  u32* t = w.tmp[n][0];
  const u32* p = moved(w, inst, n, 1, t);
  if (inst.op_sel_hi >> n & 1) {
    const Env env(w.mode);
    const u32 shift = inst.op_sel >> n & 1 ? 16 : 0;
    for_lanes([=](int l) { t[l] = raw(to_f32(f16{static_cast<u16>(p[l] >> shift)}, env)); });
    p = t;
  }
  const u32 keep = inst.neg_hi >> n & 1 ? ~(1u << 31) : ~0u, flip = inst.neg >> n & 1 ? 1u << 31 : 0;
  if (keep == ~0u && !flip) return p;
  for_lanes([=](int l) { t[l] = (p[l] & keep) ^ flip; });
  return t;
}

const u32* old_upper_half(Wave& w, const Inst& inst, int n) {
  const u32* old = w.vgpr[inst.dst.index];
  u32* t = w.tmp[n][0];
  for_lanes([=](int l) { t[l] = old[l] >> 16; });
  return t;
}

void finish(Wave& w, const Inst& inst, Type type, bool keeps_other_half) {
  u32* t = w.tmp[3][0];
  const u32* old = w.vgpr[inst.dst.index];
  if (inst.omod || inst.clamp) output_modifiers(w, inst, type, t);
  if (is_16bit(type)) place_half(inst, old, keeps_other_half || inst.keeps_half, t);
  if (inst.encoding == Encoding::kSdwa && inst.sdwa.dst_sel != kDword) sdwa_result(inst, old, t);
  write_back(w, inst, dwords_of(type), t);
}

// clamp applies to each half of a packed result.
void finish_packed(Wave& w, const Inst& inst, bool is_float) {
  if (inst.clamp && is_float) {
    const Env env(w.mode);
    alignas(64) u32 high[kLanes];
    u32* t = w.tmp[3][0];
    for_lanes([&](int l) { high[l] = t[l] >> 16; });
    apply_clamp<f16>(env, f16{0x3c00}, t);
    apply_clamp<f16>(env, f16{0x3c00}, high);
    for_lanes([&](int l) { t[l] |= high[l] << 16; });
  }
  write_back(w, inst, 1, w.tmp[3][0]);
}

// An f16 result in w.tmp[3] goes to one half of the destination; the other is kept.
void finish_half(Wave& w, const Inst& inst, bool high) {
  u32* t = w.tmp[3][0];
  const u32* old = w.vgpr[inst.dst.index];
  if (inst.clamp) apply_clamp<f16>(Env(w.mode), f16{0x3c00}, t);
  if (high)
    for_lanes([=](int l) { t[l] = t[l] << 16 | (old[l] & 0xffff); });
  else
    for_lanes([=](int l) { t[l] = (t[l] & 0xffff) | (old[l] & 0xffff0000u); });
  write_back(w, inst, 1, t);
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL

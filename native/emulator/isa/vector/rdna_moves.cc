// SPDX-License-Identifier: MIT OR Apache-2.0
// Vector instructions of RDNA that move data between lanes, or between registers that M0 picks.
#include <cstring>

#include "isa/rows.h"
#include "isa/vector/valu.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr Type kB32 = Type::kI32;
constexpr int kRow = 16;

// Each lane reads one of its row of 16, or with kAcross of the neighbouring row: `pick` says which. An
// inactive source lane is read only with fi; else the lane gets 0 with bound_ctrl, or keeps what it has.
template <bool kAcross, class Pick>
void permute_rows(Wave& w, const Inst& inst, Pick pick) {
  const u64 exec = exec_mask(w);
  const bool fetch_inactive = inst.op_sel & 1, bound_ctrl = inst.op_sel & 2;
  const u32* from = fetch<u32>(w, inst, 0, true);
  u32* d = w.vgpr[inst.dst.index];
  alignas(64) u32 source[kLanes];
  std::memcpy(source, from, sizeof source);
  for (int l = 0; l < kLanes; ++l) {
    if (!(exec >> l & 1)) continue;
    const int row = (l & ~(kRow - 1)) ^ (kAcross ? kRow : 0), lane = row + pick(l);
    if (fetch_inactive || exec >> lane & 1) {
      d[l] = source[lane];
    } else if (bound_ctrl) {
      d[l] = 0;
    }
  }
}
// The picks, four bits a lane of a row, in two scalars.
template <bool kAcross>
void permlane16(Wave& w, const Inst& inst) {
  const u64 picks = read_scalar(w, inst.src[1]) & 0xffffffff, high = read_scalar(w, inst.src[2]) & 0xffffffff;
  permute_rows<kAcross>(
      w, inst, [all = picks | high << 32](int l) { return static_cast<int>(all >> (4 * (l % kRow)) & 15); });
}
// The picks in the lanes themselves.
template <bool kAcross>
void permlane16_var(Wave& w, const Inst& inst) {
  alignas(64) u32 picks[kLanes];
  std::memcpy(picks, fetch<u32>(w, inst, 1, true), sizeof picks);
  permute_rows<kAcross>(w, inst, [&](int l) { return static_cast<int>(picks[l] & 15); });
}

// A half of one register and a half of another, or of the same.
void swap_halves(Wave& w, const Inst& inst) {
  u32 *a = w.vgpr[inst.dst.index], *b = w.vgpr[inst.src[0].index];
  const u32 in_a = inst.op_sel & 8 ? 16 : 0, in_b = inst.op_sel & 1 ? 16 : 0;
  const u64 exec = exec_mask(w);
  const auto replaced = [](u32 x, u32 at, u32 half) {
    return (x & ~(0xffffu << at)) | (half & 0xffff) << at;
  };
  for (int l = 0; l < kLanes; ++l) {
    if (!(exec >> l & 1)) continue;
    const u32 first = a[l] >> in_a, second = b[l] >> in_b;
    a[l] = replaced(a[l], in_a, second);
    b[l] = replaced(b[l], in_b, first);
  }
}

// The halves of a wave of 64 change places, inactive lanes can be read; of a wave of 32 nothing happens.
void permlane64(Wave& w, const Inst& inst) {
  if constexpr (kLanes == 64) {
    const u32* from = w.vgpr[inst.src[0].index];
    u32* t = w.tmp[3][0];
    for (int l = 0; l < kLanes; ++l) t[l] = from[l ^ 32];
    u32* d = w.vgpr[inst.dst.index];
    select_lanes(exec_mask(w), t, d, d);
  }
}

// Registers whose numbers M0 is added to: all of it, or 10 bits of it for a source and 10 for a destination.
constexpr u32 kLowBits = 0x3ff;
constexpr int kRegisters = 256;
u32* relative(Wave& w, const Inst& inst, const Operand& o, u32 offset) {
  const u64 index = u64{o.index} + offset;
  if (o.kind == OperandKind::kVgpr && index < kRegisters) return w.vgpr[index];
  w.fault(inst, hipErrorLaunchFailure, "relative access to v%llu", static_cast<unsigned long long>(index));
  return nullptr;
}
enum class By : u8 { kNothing, kM0, kLow, kHigh };
u32 offset_by(const Wave& w, By by) {
  const u32 m0 = w.sgpr[kM0];
  return by == By::kM0 ? m0 : by == By::kLow ? m0 & kLowBits : by == By::kHigh ? m0 >> 16 & kLowBits : 0;
}
template <By kDst, By kSrc>
void movrel(Wave& w, const Inst& inst) {
  const u32* from = kSrc == By::kNothing ? fetch<u32>(w, inst, 0, true)
                                         : relative(w, inst, inst.src[0], offset_by(w, kSrc));
  u32* to = from ? relative(w, inst, inst.dst, offset_by(w, kDst)) : nullptr;
  if (to) select_lanes(exec_mask(w), from, to, to);
}
void swaprel(Wave& w, const Inst& inst) {
  u32* a = relative(w, inst, inst.dst, offset_by(w, By::kHigh));
  u32* b = a ? relative(w, inst, inst.src[0], offset_by(w, By::kLow)) : nullptr;
  if (!b) return;
  u32* t = w.tmp[0][0];
  std::memcpy(t, a, sizeof w.tmp[0][0]);
  select_lanes(exec_mask(w), b, a, a);
  select_lanes(exec_mask(w), t, b, b);
}

// clang-format off: a row is a line, or two
constexpr Row kRows[] = {
  {"v_permlane16_b32", kB32, {kB32, kB32, kB32}, kOwnOpSel | kReadsDst | kPermlane, permlane16<false>},
  {"v_permlanex16_b32", kB32, {kB32, kB32, kB32}, kOwnOpSel | kReadsDst | kPermlane, permlane16<true>},
  {"v_permlane16_var_b32", kB32, {kB32, kB32}, kOwnOpSel | kReadsDst | kPermlane, permlane16_var<false>},
  {"v_permlanex16_var_b32", kB32, {kB32, kB32}, kOwnOpSel | kReadsDst | kPermlane, permlane16_var<true>},
  {"v_swap_b16", Type::kI16, {Type::kI16}, kReadsDst | kWritesSrc0 | kOneForm | kNoSuffix, swap_halves},
  {"v_permlane64_b32", kB32, {kB32}, kOneForm | kNoSuffix | kPermlane, permlane64},

  {"v_movreld_b32", kB32, {kB32}, kNeedsM0, movrel<By::kM0, By::kNothing>},
  {"v_movrels_b32", kB32, {kB32}, kNeedsM0 | kRegisterSrc, movrel<By::kNothing, By::kM0>},
  {"v_movrelsd_b32", kB32, {kB32}, kNeedsM0 | kRegisterSrc, movrel<By::kM0, By::kM0>},
  {"v_movrelsd_2_b32", kB32, {kB32}, kNeedsM0 | kRegisterSrc, movrel<By::kHigh, By::kLow>},
  {"v_swaprel_b32", kB32, {kB32}, kNeedsM0 | kReadsDst | kWritesSrc0 | kOneForm | kNoSuffix, swaprel},
};
// clang-format on

}  // namespace

std::span<const Row> rdna_move_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

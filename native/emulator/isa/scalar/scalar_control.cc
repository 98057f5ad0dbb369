// SPDX-License-Identifier: MIT OR Apache-2.0
// SOPK and SOPP: constants, branches, hardware registers, messages; and jumps by register.
#include "isa/scalar/scalar_control.h"

#include "base/errors.h"
#include "base/mode.h"
#include "isa/rows.h"
#include "isa/scalar/scalar_operand.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

void jump_outside(Wave& w, const Inst& i, uint64_t pc) {
  w.fault(i, hipErrorLaunchFailure,
          "jump to 0x%llx, which is not the start of an instruction of this code object",
          static_cast<unsigned long long>(pc));
}

void jump_to(Wave& w, const Inst& i, uint64_t pc) {
  const Inst* to = w.group->text->at(pc);
  if (!to) return jump_outside(w, i, pc);
  w.next = to;
}

// Decoded instructions are stored in the order of the text, so a target is an index.
void branch(Wave& w, const Inst& i) {
  if (i.target < 0) [[unlikely]]
    return jump_outside(w, i, i.pc + 4 + int64_t{i.imm} * 4);
  w.next = w.group->text->insts.data() + i.target;
}

void s_getpc(Wave& w, const Inst& i) { write64(w, i.dst, i.pc + 4); }
void s_setpc(Wave& w, const Inst& i) { jump_to(w, i, read64(w, i.src[0])); }
void s_swappc(Wave& w, const Inst& i) {
  const uint64_t to = read64(w, i.src[0]);
  write64(w, i.dst, i.pc + 4);
  jump_to(w, i, to);
}

// The SGPR that is `offset` registers after `o`, or -1 after a fault.
int relative_sgpr(Wave& w, const Inst& i, const Operand& o, int dwords, uint32_t offset) {
  const uint64_t index = uint64_t{o.index} + offset;
  if (o.kind == OperandKind::kSgpr && index + dwords <= 102) return static_cast<int>(index);
  w.fault(i, hipErrorLaunchFailure, "relative access to s%llu, beyond s101",
          static_cast<unsigned long long>(index));
  return -1;
}

template <int kDwords>
void s_movrels(Wave& w, const Inst& i) {
  const int from = relative_sgpr(w, i, i.src[0], kDwords, w.sgpr[kM0]);
  if (from < 0) return;
  const uint32_t low = w.sgpr[from], high = w.sgpr[from + kDwords - 1];
  w.sgpr[i.dst.index] = low;
  if (kDwords == 2) w.sgpr[i.dst.index + 1] = high;
}
template <int kDwords>
void s_movreld(Wave& w, const Inst& i) {
  const int to = relative_sgpr(w, i, i.dst, kDwords, w.sgpr[kM0]);
  if (to < 0) return;
  if (kDwords == 1)
    w.sgpr[to] = read32(w, i.src[0]);
  else
    w.set_sgpr64(to, read64(w, i.src[0]));
}
// Both by M0: the source by its bits 9:0, the destination by 25:16.
void s_movrelsd_2(Wave& w, const Inst& i) {
  const int from = relative_sgpr(w, i, i.src[0], 1, w.sgpr[kM0] & 0x3ff);
  const int to = from < 0 ? from : relative_sgpr(w, i, i.dst, 1, w.sgpr[kM0] >> 16 & 0x3ff);
  if (to >= 0) w.sgpr[to] = w.sgpr[from];
}
template void s_movrels<1>(Wave&, const Inst&);
template void s_movrels<2>(Wave&, const Inst&);
template void s_movreld<1>(Wave&, const Inst&);
template void s_movreld<2>(Wave&, const Inst&);

namespace {

// Hardware registers of s_getreg and s_setreg: id in bits 5:0 of the immediate, offset in 10:6, size - 1 in
// 15:11.
constexpr uint32_t kHwMode = 1, kHwStatus = 2, kHwFlatScrLo = 20, kHwFlatScrHi = 21;
// The bits of MODE that the device models. It also stores the exception enables; they have no effect, since
// nothing traps here.
constexpr uint32_t kModeModelled = 0x3ff | 1u << 23 /* FP16_OVFL */ | 7u << Mode::kForkDepth,
                   kModeExceptions = 0x7f << 12;

struct HwField {
  uint32_t id, offset, mask;
  explicit HwField(int32_t imm)
      : id(imm & 63), offset(imm >> 6 & 31), mask(static_cast<uint32_t>((2ull << (imm >> 11 & 31)) - 1)) {}
};

void s_getreg(Wave& w, const Inst& i) {
  const HwField f(i.imm);
  uint32_t value;
  if (f.id == kHwMode) {
    value = w.mode & ~Mode::hidden(w.mode);
  } else if (f.id == kHwStatus) {  // only SCC, EXECZ and VCCZ are modelled
    constexpr uint32_t kKnown = 1u | 1u << 9 | 1u << 10;
    if (f.mask << f.offset & ~kKnown) {
      return w.fault(i, hipErrorLaunchFailure, "only SCC, EXECZ and VCCZ of the STATUS register can be read");
    }
    value = w.scc | (exec_mask(w) == 0) << 9 | (vcc_mask(w) == 0) << 10;
  } else {
    return w.fault(i, hipErrorLaunchFailure, "hardware register %u does not exist on the software device",
                   f.id);
  }
  write32(w, i.dst, value >> f.offset & f.mask);
}

// RDNA 2: the beginning of a kernel says where the wave's private memory is, which is known here. Kernels
// without any say something too.
void set_flat_scratch(Wave& w, const Inst& i, const HwField& f) {
  const uint64_t address = reinterpret_cast<uint64_t>(w.scratch);
  const auto own = static_cast<uint32_t>(f.id == kHwFlatScrLo ? address : address >> 32);
  if (w.scratch_bytes && (f.offset || f.mask != ~0u || read32(w, i.src[0]) != own))
    w.fault(i, hipErrorLaunchFailure, "FLAT_SCR can only be set to where the wave's private memory is");
}

// Both forms: the value is an SGPR or the literal.
void s_setreg(Wave& w, const Inst& i) {
  const HwField f(i.imm);
  if ((kLanes == 32 || w.group->is_rdna) && (f.id == kHwFlatScrLo || f.id == kHwFlatScrHi))
    return set_flat_scratch(w, i, f);
  if (f.id != kHwMode) {
    return w.fault(i, hipErrorLaunchFailure, "hardware register %u cannot be written on the software device",
                   f.id);
  }
  const uint32_t mask = f.mask << f.offset & ~Mode::hidden(w.mode);
  const uint32_t mode = (w.mode & ~mask) | (read32(w, i.src[0]) << f.offset & mask);
  if ((mode ^ w.mode) & ~(kModeModelled | kModeExceptions)) {
    return w.fault(i, hipErrorLaunchFailure, "MODE 0x%x asks for what the software device does not model",
                   mode);
  }
  w.mode = mode;
  apply_mode(mode);
}

template <auto F>
void cmpk_signed(Wave& w, const Inst& i) {
  w.scc = F(static_cast<int32_t>(read32(w, i.src[0])), i.imm);
}
template <auto F>
void cmpk_unsigned(Wave& w, const Inst& i) {
  w.scc = F(read32(w, i.src[0]), static_cast<uint32_t>(i.imm) & 0xffff);
}

void s_movk(Wave& w, const Inst& i) { write32(w, i.dst, static_cast<uint32_t>(i.imm)); }
void s_cmovk(Wave& w, const Inst& i) {
  if (w.scc) s_movk(w, i);
}
void s_addk(Wave& w, const Inst& i) {
  int32_t sum;
  w.scc = __builtin_add_overflow(static_cast<int32_t>(read32(w, i.dst)), i.imm, &sum);
  write32(w, i.dst, static_cast<uint32_t>(sum));
}
void s_mulk(Wave& w, const Inst& i) { write32(w, i.dst, read32(w, i.dst) * static_cast<uint32_t>(i.imm)); }
void s_call(Wave& w, const Inst& i) {
  write64(w, i.dst, i.pc + 4);
  branch(w, i);
}

template <auto F>
void branch_if(Wave& w, const Inst& i) {
  if (F(w)) branch(w, i);
}

void nothing(Wave&, const Inst&) {}
void s_endpgm(Wave& w, const Inst&) { w.state = WaveState::kDone; }
void s_barrier(Wave& w, const Inst&) { w.state = WaveState::kBarrier; }
void s_trap(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "s_trap %d: the kernel stopped itself", i.imm);
}
// The interrupt wakes the host's event loop; nothing waits for it here. The other messages are for the
// graphics pipeline, the trap handler and the debugger.
void s_sendmsg(Wave& w, const Inst& i) {
  constexpr int kInterrupt = 1;
  if (i.imm != kInterrupt) w.fault(i, hipErrorLaunchFailure, "message %d has no receiver here", i.imm);
}
void s_sendmsghalt(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "the kernel halted itself with message %d", i.imm);
}
void s_sethalt(Wave& w, const Inst& i) {
  if (i.imm & 1) w.fault(i, hipErrorLaunchFailure, "the kernel halted itself");
}

constexpr Type I = Type::kI32, L = Type::kI64, N = Type::kNone;
#define ROWK(name, d, s, flags, ...) {name, d, {s, N, N}, flags, __VA_ARGS__}
#define ROWP(name, flags, ...) {name, N, {N, N, N}, flags, __VA_ARGS__}

const Row kControlRows[] = {
    ROWK("s_movk_i32", I, N, 0, s_movk),
    ROWK("s_cmovk_i32", I, N, kReadsDst, s_cmovk),
    ROWK("s_cmpk_eq_i32", N, I, 0, cmpk_signed<[](int32_t a, int32_t b) { return a == b; }>),
    ROWK("s_cmpk_lg_i32", N, I, 0, cmpk_signed<[](int32_t a, int32_t b) { return a != b; }>),
    ROWK("s_cmpk_gt_i32", N, I, 0, cmpk_signed<[](int32_t a, int32_t b) { return (a > b); }>),
    ROWK("s_cmpk_ge_i32", N, I, 0, cmpk_signed<[](int32_t a, int32_t b) { return (a >= b); }>),
    ROWK("s_cmpk_lt_i32", N, I, 0, cmpk_signed<[](int32_t a, int32_t b) { return a < b; }>),
    ROWK("s_cmpk_le_i32", N, I, 0, cmpk_signed<[](int32_t a, int32_t b) { return a <= b; }>),
    ROWK("s_cmpk_eq_u32", N, I, 0, cmpk_unsigned<[](uint32_t a, uint32_t b) { return a == b; }>),
    ROWK("s_cmpk_lg_u32", N, I, 0, cmpk_unsigned<[](uint32_t a, uint32_t b) { return a != b; }>),
    ROWK("s_cmpk_gt_u32", N, I, 0, cmpk_unsigned<[](uint32_t a, uint32_t b) { return (a > b); }>),
    ROWK("s_cmpk_ge_u32", N, I, 0, cmpk_unsigned<[](uint32_t a, uint32_t b) { return (a >= b); }>),
    ROWK("s_cmpk_lt_u32", N, I, 0, cmpk_unsigned<[](uint32_t a, uint32_t b) { return a < b; }>),
    ROWK("s_cmpk_le_u32", N, I, 0, cmpk_unsigned<[](uint32_t a, uint32_t b) { return a <= b; }>),
    ROWK("s_addk_i32", I, N, kReadsDst, s_addk),
    ROWK("s_mulk_i32", I, N, kReadsDst, s_mulk),
    ROWK("s_getreg_b32", I, N, 0, s_getreg, Immediate::kHwReg),
    ROWK("s_setreg_b32", N, I, 0, s_setreg, Immediate::kHwReg),
    ROWK("s_setreg_imm32_b32", N, I, kLiteralK, s_setreg, Immediate::kHwReg),
    ROWK("s_call_b64", L, N, kBranch, s_call),

    ROWP("s_nop", 0, nothing, Immediate::kWaitStates),
    ROWP("s_endpgm", 0, s_endpgm, Immediate::kExitCode),
    ROWP("s_branch", kBranch, branch),
    ROWP("s_wakeup", kNoSrc, nothing),
    ROWP("s_cbranch_scc0", kBranch, branch_if<[](const Wave& w) { return !w.scc; }>),
    ROWP("s_cbranch_scc1", kBranch, branch_if<[](const Wave& w) { return w.scc; }>),
    ROWP("s_cbranch_vccz", kBranch | kReadsVcc, branch_if<[](const Wave& w) { return vcc_mask(w) == 0; }>),
    ROWP("s_cbranch_vccnz", kBranch | kReadsVcc, branch_if<[](const Wave& w) { return vcc_mask(w) != 0; }>),
    ROWP("s_cbranch_execz", kBranch, branch_if<[](const Wave& w) { return exec_mask(w) == 0; }>),
    ROWP("s_cbranch_execnz", kBranch, branch_if<[](const Wave& w) { return exec_mask(w) != 0; }>),
    ROWP("s_barrier", kNoSrc | kBarrier, s_barrier),
    // Every memory operation is complete when its instruction is.
    ROWP("s_waitcnt", 0, nothing, Immediate::kWaitCounts),
    ROWP("s_sethalt", 0, s_sethalt),
    ROWP("s_sleep", 0, nothing),
    ROWP("s_setprio", 0, nothing, Immediate::kPriority),
    ROWP("s_sendmsg", kNeedsM0, s_sendmsg, Immediate::kMessage),
    ROWP("s_sendmsghalt", kNeedsM0, s_sendmsghalt, Immediate::kMessage),
    ROWP("s_trap", 0, s_trap),
    ROWP("s_icache_inv", kNoSrc, nothing),
    ROWP("s_incperflevel", 0, nothing),
    ROWP("s_decperflevel", 0, nothing),
    ROWP("s_ttracedata", kNoSrc | kNeedsM0, nothing),
};

}  // namespace

// All parts in one span, made once, at first use. Each level has its own.
std::span<const Row> scalar_rows() {
  static Row all[512];
  static size_t count = 0;
  if (count == 0) {
    for (const Row& r : scalar_alu_rows()) all[count++] = r;
    for (const Row& r : kControlRows) all[count++] = r;
    for (const Row& r : scalar_special_rows()) all[count++] = r;
    for (const Row& r : scalar_rdna_rows()) all[count++] = r;
    for (const Row& r : scalar_float_rows()) all[count++] = r;
  }
  return {all, count};
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL

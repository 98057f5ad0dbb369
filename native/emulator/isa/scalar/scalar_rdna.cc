// SPDX-License-Identifier: MIT OR Apache-2.0
// Scalar instructions that RDNA has and gfx9 lacks: EXEC of waves of 32, hints to the pipeline, waits by
// counter, MODE by immediate.
#include "base/errors.h"
#include "base/mode.h"
#include "isa/scalar/scalar_control.h"
#include "isa/scalar/scalar_operand.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

using u32 = uint32_t;

// D = EXEC; EXEC = f(S0, EXEC), or D = EXEC = f(S0, EXEC): the lower 32 lanes.
template <auto F, bool kSaves>
void exec32(Wave& w, const Inst& i) {
  const u32 old = w.sgpr[kExecLo], now = F(read32(w, i.src[0]), old);
  w.sgpr[kExecLo] = now;
  write32(w, i.dst, kSaves ? old : now);
  w.scc = now != 0;
}
template <auto F>
constexpr Exec saveexec32 = exec32<F, true>;
template <auto F>
constexpr Exec wrexec32 = exec32<F, false>;

// A loop that runs the lower half of a wave of 64, and then the upper one; either only if it has a lane on. D
// keeps the half that waits. Behind its beginning and its end stand what the other jumps to.
bool has_halves(Wave& w, const Inst& i) {
  if constexpr (kLanes == 64) return true;
  w.fault(i, hipErrorLaunchFailure, "a loop over the halves of a wave, which waves of 32 lanes do not have");
  return false;
}
void s_subvector_loop_begin(Wave& w, const Inst& i) {
  if (!has_halves(w, i)) return;
  const u32 low = w.sgpr[kExecLo], high = w.sgpr[kExecHi];
  if (!low && !high) return branch(w, i);
  write32(w, i.dst, low && high ? high : 0);
  if (low) w.sgpr[kExecHi] = 0;
}
void s_subvector_loop_end(Wave& w, const Inst& i) {
  if (!has_halves(w, i)) return;
  const u32 waiting = read32(w, i.dst);
  if (w.sgpr[kExecHi]) {
    w.sgpr[kExecLo] = waiting;
  } else if (waiting) {
    w.sgpr[kExecHi] = waiting;
    write32(w, i.dst, w.sgpr[kExecLo]);
    w.sgpr[kExecLo] = 0;
    branch(w, i);
  }
}

void s_pack_hl(Wave& w, const Inst& i) {
  write32(w, i.dst, read32(w, i.src[0]) >> 16 | read32(w, i.src[1]) << 16);
}

void nothing(Wave&, const Inst&) {}
void set_mode(Wave& w, u32 low, u32 value) {
  w.mode = (w.mode & ~(15u << low)) | (value & 15) << low;
  apply_mode(w.mode);
}
void s_round_mode(Wave& w, const Inst& i) { set_mode(w, Mode::kRound32, static_cast<u32>(i.imm)); }
void s_denorm_mode(Wave& w, const Inst& i) { set_mode(w, Mode::kDenorm32, static_cast<u32>(i.imm)); }

// The wave gives its VGPRs back before it ends; the interrupt wakes the host's event loop, and nothing waits
// for it here. The other messages are for the graphics pipeline, the trap handler and the debugger.
void s_sendmsg(Wave& w, const Inst& i) {
  constexpr int kInterrupt = 1, kDeallocVgprs = 3;
  if (i.imm != kInterrupt && i.imm != kDeallocVgprs)
    w.fault(i, hipErrorLaunchFailure, "message %d has no receiver here", i.imm);
}
// Only one message with an answer is supported, the clock of 100 MHz; the others are for trap handlers and
// profilers.
bool answer(Wave& w, const Inst& i, uint64_t* value) {
  constexpr int kGetRealtime = 0x83;
  *value = real_time();
  if (i.imm == kGetRealtime) return true;
  w.fault(i, hipErrorLaunchFailure, "message %d has no answer here", i.imm);
  return false;
}
void s_sendmsg_rtn_b32(Wave& w, const Inst& i) {
  uint64_t value;
  if (answer(w, i, &value)) write32(w, i.dst, static_cast<u32>(value));
}
void s_sendmsg_rtn_b64(Wave& w, const Inst& i) {
  uint64_t value;
  if (answer(w, i, &value)) write64(w, i.dst, value);
}
// The barrier of a workgroup in two parts. All waves come to its wait, so that is where the device lets one
// wave after the other run on; what a wave does between the two counts as before the barrier.
constexpr int kWorkgroupBarrier = -1;
void s_barrier_signal(Wave& w, const Inst& i) {
  if (static_cast<int>(read32(w, i.src[0])) != kWorkgroupBarrier)
    return w.fault(i, hipErrorLaunchFailure, "only the barrier of the workgroup (-1) is modelled");
  if (w.signalled) return w.fault(i, hipErrorLaunchFailure, "signals the barrier twice without a wait");
  w.signalled = true;
  ++w.group->signals;
}
void s_barrier_signal_isfirst(Wave& w, const Inst& i) {
  const bool first = w.group->signals == 0;
  s_barrier_signal(w, i);
  w.scc = first;
}
void s_barrier_wait(Wave& w, const Inst& i) {
  if (i.imm != kWorkgroupBarrier)
    return w.fault(i, hipErrorLaunchFailure, "only the barrier of the workgroup (-1) is modelled");
  if (!w.signalled)
    return w.fault(i, hipErrorLaunchFailure, "waits at the barrier without having signalled: it never ends");
  w.signalled = false;
  w.state = WaveState::kBarrier;
}

void no_named_barrier(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure,
          "named barriers are not modelled, which the RDNA4 ISA guide does not have");
}
void no_barrier_state(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "what it reads depends on when the other waves arrive");
}

void s_code_end(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "ran past the end of the kernel's code");
}

constexpr Type I = Type::kI32, N = Type::kNone;
// clang-format off
constexpr Row kRows[] = {
    {"s_and_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return s & e; }>},
    {"s_or_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return s | e; }>},
    {"s_xor_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return s ^ e; }>},
    {"s_nand_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return ~(s & e); }>},
    {"s_nor_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return ~(s | e); }>},
    {"s_xnor_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return ~(s ^ e); }>},
    {"s_and_not0_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return ~s & e; }>},
    {"s_or_not0_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return ~s | e; }>},
    {"s_and_not1_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return s & ~e; }>},
    {"s_or_not1_saveexec_b32", I, {I, N, N}, kWritesExec, saveexec32<[](u32 s, u32 e) { return s | ~e; }>},
    {"s_and_not0_wrexec_b32", I, {I, N, N}, kWritesExec, wrexec32<[](u32 s, u32 e) { return ~s & e; }>},
    {"s_and_not1_wrexec_b32", I, {I, N, N}, kWritesExec, wrexec32<[](u32 s, u32 e) { return s & ~e; }>},
    {"s_subvector_loop_begin", I, {N, N, N}, kBranch | kWritesExec, s_subvector_loop_begin},
    {"s_subvector_loop_end", I, {N, N, N}, kBranch | kReadsDst | kWritesExec, s_subvector_loop_end},
    {"s_pack_hl_b32_b16", I, {I, I, N}, 0, s_pack_hl},

    {"s_clause", N, {N, N, N}, 0, nothing, Immediate::kHexadecimal},
    {"s_delay_alu", N, {N, N, N}, 0, nothing, Immediate::kDelay},
    {"s_set_inst_prefetch_distance", N, {N, N, N}, 0, nothing, Immediate::kHexadecimal},
    {"s_wait_idle", N, {N, N, N}, kNoSrc, nothing},
    {"s_wait_event", N, {N, N, N}, 0, nothing, Immediate::kHexadecimal},
    {"s_waitcnt_depctr", N, {N, N, N}, 0, nothing, Immediate::kDependency},
    {"s_waitcnt_vscnt", N, {I, N, N}, 0, nothing, Immediate::kStoreCount},
    {"s_waitcnt_vmcnt", N, {I, N, N}, 0, nothing, Immediate::kVectorCount},
    {"s_waitcnt_lgkmcnt", N, {I, N, N}, 0, nothing, Immediate::kLdsCount},
    {"s_wait_loadcnt", N, {N, N, N}, 0, nothing, Immediate::kVectorCount},
    {"s_wait_storecnt", N, {N, N, N}, 0, nothing, Immediate::kStoreCount},
    {"s_wait_dscnt", N, {N, N, N}, 0, nothing, Immediate::kLdsCount},
    {"s_wait_kmcnt", N, {N, N, N}, 0, nothing, Immediate::kScalarCount},
    {"s_wait_loadcnt_dscnt", N, {N, N, N}, 0, nothing, Immediate::kLoadLdsCount},
    {"s_wait_storecnt_dscnt", N, {N, N, N}, 0, nothing, Immediate::kStoreLdsCount},
    {"s_wait_samplecnt", N, {N, N, N}, 0, nothing, Immediate::kHexadecimal},  // there are neither images nor rays
    {"s_wait_bvhcnt", N, {N, N, N}, 0, nothing, Immediate::kHexadecimal},
    {"s_wait_expcnt", N, {N, N, N}, 0, nothing, Immediate::kHexadecimal},
    {"s_barrier_signal", N, {I, N, N}, 0, s_barrier_signal},
    {"s_barrier_signal_isfirst", N, {I, N, N}, 0, s_barrier_signal_isfirst},
    {"s_barrier_wait", N, {N, N, N}, kBarrier, s_barrier_wait},
    {"s_get_barrier_state", I, {I, N, N}, kRefused, no_barrier_state},
    {"s_barrier_init", N, {I, N, N}, kRefused, no_named_barrier},
    {"s_barrier_join", N, {I, N, N}, kRefused, no_named_barrier},
    {"s_barrier_leave", N, {N, N, N}, kNoSrc | kRefused, no_named_barrier},
    {"s_wakeup_barrier", N, {I, N, N}, kRefused, no_named_barrier},
    {"s_version", N, {N, N, N}, 0, nothing, Immediate::kVersion},  // what the code was assembled for
    {"s_waitcnt_expcnt", N, {I, N, N}, 0, nothing},
    {"s_round_mode", N, {N, N, N}, 0, s_round_mode, Immediate::kHexadecimal},
    {"s_denorm_mode", N, {N, N, N}, kSetsDenorms, s_denorm_mode},
    {"s_sendmsg_gfx11", N, {N, N, N}, kNeedsM0, s_sendmsg, Immediate::kMessage},
    {"s_sendmsg_rtn_b32", I, {N, N, N}, 0, s_sendmsg_rtn_b32, Immediate::kMessage},
    {"s_sendmsg_rtn_b64", Type::kI64, {N, N, N}, 0, s_sendmsg_rtn_b64, Immediate::kMessage},
    {"s_sleep_var", N, {I, N, N}, 0, nothing},
    {"s_singleuse_vdst", N, {N, N, N}, 0, nothing, Immediate::kHexadecimal},
    {"s_movrelsd_2_b32", I, {I, N, N}, kRegisterSrc | kNeedsM0, s_movrelsd_2},
    {"s_ttracedata_imm", N, {N, N, N}, 0, nothing, Immediate::kHexadecimal},
    {"s_code_end", N, {N, N, N}, kNoSrc, s_code_end},
};
// clang-format on

}  // namespace

std::span<const Row> scalar_rdna_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

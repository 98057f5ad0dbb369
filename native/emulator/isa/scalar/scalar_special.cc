// SPDX-License-Identifier: MIT OR Apache-2.0
// Rare scalar instructions: VGPR indexing, forks of a wave's lanes, and those for debuggers and trap
// handlers.
#include "base/errors.h"
#include "isa/scalar/scalar_control.h"
#include "isa/scalar/scalar_operand.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

// M0: the index in bits 7:0, the operands it goes to in 15:12. gpr_index.h does the rest.
void set_index(Wave& w, uint32_t index) { w.sgpr[kM0] = (w.sgpr[kM0] & ~0xffu) | (index & 0xff); }
void set_operands(Wave& w, int32_t which) {
  w.sgpr[kM0] = (w.sgpr[kM0] & ~0xf000u) | (static_cast<uint32_t>(which) & 15) << 12;
}
void s_set_gpr_idx_on(Wave& w, const Inst& i) {
  set_index(w, read32(w, i.src[0]));
  set_operands(w, i.imm);
  w.mode |= 1u << Mode::kGprIndex;
  w.state = WaveState::kIndexed;
}
void s_set_gpr_idx_idx(Wave& w, const Inst& i) { set_index(w, read32(w, i.src[0])); }
void s_set_gpr_idx_mode(Wave& w, const Inst& i) { set_operands(w, i.imm); }
void s_set_gpr_idx_off(Wave& w, const Inst&) {
  w.mode &= ~(1u << Mode::kGprIndex);
  w.state = WaveState::kRunning;
}

// Lanes that pass go to `target`, the others continue. If there are both, the smaller group goes first; EXEC
// and address of the other are saved in the four SGPRs at 4 * depth, for s_cbranch_join.
void fork(Wave& w, const Inst& i, uint64_t mask, uint64_t target) {
  const uint64_t pass = mask & exec_mask(w), fail = ~mask & exec_mask(w), next = i.pc + 4;
  if (pass == exec_mask(w)) return jump_to(w, i, target);
  if (fail == exec_mask(w)) return;
  const bool fail_first = __builtin_popcountll(fail) < __builtin_popcountll(pass);
  const uint32_t depth = w.mode >> Mode::kForkDepth;
  write_lanes(w, kExecLo, fail_first ? fail : pass);
  w.set_sgpr64(static_cast<int>(depth) * 4, fail_first ? pass : fail);
  w.set_sgpr64(static_cast<int>(depth) * 4 + 2, fail_first ? target : next);
  w.mode += 1u << Mode::kForkDepth;
  if (!fail_first) jump_to(w, i, target);
}
void s_cbranch_g_fork(Wave& w, const Inst& i) { fork(w, i, read64(w, i.src[0]), read64(w, i.src[1])); }
void s_cbranch_i_fork(Wave& w, const Inst& i) {
  fork(w, i, read64(w, i.src[0]), i.pc + 4 + static_cast<uint64_t>(int64_t{i.imm} * 4));
}
// Continues if the depth is what it was before the forks; else takes the path that was saved last.
void s_cbranch_join(Wave& w, const Inst& i) {
  if (w.mode >> Mode::kForkDepth == read32(w, i.src[0])) return;
  w.mode -= 1u << Mode::kForkDepth;
  const int at = static_cast<int>(w.mode >> Mode::kForkDepth) * 4;
  write_lanes(w, kExecLo, w.sgpr64(at));
  jump_to(w, i, w.sgpr64(at + 2));
}

void s_setkill(Wave& w, const Inst& i) {
  if (i.imm & 1) w.fault(i, hipErrorLaunchFailure, "the kernel killed itself");
}
// No debugger sets the bits that these test.
void never(Wave&, const Inst&) {}

void no_vskip(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "VSKIP mode, in which vector instructions are skipped, is not modelled");
}
void no_trap_return(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "only a trap handler can return from an exception, and none runs here");
}

void no_wave_end(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "an end that only a saved wave or a pixel shader comes to");
}

constexpr Type I = Type::kI32, L = Type::kI64, N = Type::kNone;
// clang-format off
constexpr Row kRows[] = {
    {"s_set_gpr_idx_on", N, {I, N, N}, kWritesM0, s_set_gpr_idx_on, Immediate::kGprIndex},
    {"s_set_gpr_idx_idx", N, {I, N, N}, kWritesM0, s_set_gpr_idx_idx},
    {"s_set_gpr_idx_mode", N, {N, N, N}, kWritesM0, s_set_gpr_idx_mode, Immediate::kGprIndex},
    {"s_set_gpr_idx_off", N, {N, N, N}, kNoSrc, s_set_gpr_idx_off},

    {"s_cbranch_g_fork", N, {L, L, N}, kJump | kWritesExec, s_cbranch_g_fork},
    {"s_cbranch_i_fork", N, {L, N, N}, kBranch | kWritesExec, s_cbranch_i_fork},
    {"s_cbranch_join", N, {I, N, N}, kJump | kWritesExec, s_cbranch_join},

    {"s_setkill", N, {N, N, N}, 0, s_setkill},
    {"s_cbranch_cdbgsys", N, {N, N, N}, kBranch, never},
    {"s_cbranch_cdbguser", N, {N, N, N}, kBranch, never},
    {"s_cbranch_cdbgsys_or_user", N, {N, N, N}, kBranch, never},
    {"s_cbranch_cdbgsys_and_user", N, {N, N, N}, kBranch, never},

    {"s_setvskip", N, {I, I, N}, kRefused, no_vskip},
    {"s_endpgm_saved", N, {N, N, N}, kNoSrc | kRefused, no_wave_end},
    {"s_endpgm_ordered_ps_done", N, {N, N, N}, kNoSrc | kRefused, no_wave_end},
    {"s_rfe_b64", N, {L, N, N}, kRefused, no_trap_return},
    {"s_rfe_restore_b64", N, {L, I, N}, kRefused, no_trap_return},
};
// clang-format on

}  // namespace

std::span<const Row> scalar_special_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

// SPDX-License-Identifier: MIT OR Apache-2.0
// Instruction bodies compiled for waves of 32 lanes (isa/lanes.h): none touches what a wave of 32 does not
// have.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "core/dispatch.h"
#include "core/memory.h"
#include "core/wave.h"
#include "isa/rows.h"

using namespace fmha::emu;
namespace bodies = fmha::emu::FMHA_EMU_LEVEL;  // as the build names those for 32 lanes

namespace {

constexpr int kSmall = 32;
constexpr uint32_t kUntouched = 0xdeadbeef;
int failures = 0;

void expect(bool ok, const char* what, int lane = -1) {
  if (ok) return;
  ++failures;
  std::printf("%s (lane %d)\n", what, lane);
}

// A wave of 32 lanes in a workgroup with a little LDS; what lies behind its lanes and masks is kUntouched.
struct Fixture {
  Fixture() {
    for (auto& r : wave->vgpr) std::fill_n(r, kMostLanes, kUntouched);
    std::fill_n(wave->sgpr, std::size(wave->sgpr), kUntouched);
    group.lds = lds;
    group.lds_bytes = sizeof lds;
    wave->group = &group;
    wave->lanes = kSmall;
    wave->all_lanes = 0xffffffff;
    set_exec(0xffffffff);
  }
  void set_exec(uint32_t mask) { wave->sgpr[kExecLo] = mask; }
  void fill(int r, uint32_t first, uint32_t step) {
    for (uint32_t l = 0; l < kSmall; ++l) wave->vgpr[r][l] = first + step * l;
  }
  void untouched(int r, const char* what) {
    for (int l = kSmall; l < kMostLanes; ++l) expect(wave->vgpr[r][l] == kUntouched, what, l);
  }

  std::unique_ptr<Wave> wave = std::make_unique<Wave>();
  Workgroup group;
  alignas(64) uint8_t lds[256 + 64] = {};
};

Operand vgpr(int index, int dwords = 1) {
  Operand o;
  o.kind = OperandKind::kVgpr;
  o.index = static_cast<uint16_t>(index);
  o.dwords = static_cast<uint8_t>(dwords);
  return o;
}
Operand sgpr(int index, int dwords = 1) {
  Operand o = vgpr(index, dwords);
  o.kind = OperandKind::kSgpr;
  return o;
}

// Runs the instruction `name` of `rows`; `inst` has its operands.
void run(Fixture& f, std::span<const Row> rows, const char* name, Inst inst) {
  for (const Row& row : rows) {
    if (std::strcmp(row.mnemonic, name) != 0) continue;
    BoundRow bound{row, Format::kVop2, 0, 0};
    inst.row = &bound;
    row.exec(*f.wave, inst);
    expect(f.wave->state == WaveState::kRunning, name);
    return;
  }
  expect(false, name);
}

void adds_on_its_lanes_only() {
  Fixture f;
  f.fill(1, 100, 1);
  f.fill(2, 0, 1000);
  Inst inst;
  inst.dst = vgpr(3);
  inst.src[0] = vgpr(1);
  inst.src[1] = vgpr(2);
  run(f, bodies::vop2_rows(), "v_add_u32", inst);
  for (uint32_t l = 0; l < kSmall; ++l) expect(f.wave->vgpr[3][l] == 100 + 1001 * l, "v_add_u32", l);
  f.untouched(3, "v_add_u32 behind the wave");
  f.set_exec(0x0000ff00);  // the high half of EXEC is no part of it
  inst.dst = vgpr(4);
  run(f, bodies::vop2_rows(), "v_add_u32", inst);
  for (int l = 0; l < kMostLanes; ++l) {
    const bool active = l >= 8 && l < 16;
    expect((f.wave->vgpr[4][l] != kUntouched) == active, "v_add_u32 under EXEC", l);
  }
}

void masks_take_one_register() {
  Fixture f;
  f.fill(1, 0, 1);
  f.fill(2, 20, 0);
  Inst compare;
  compare.dst = sgpr(kVccLo);
  compare.src[0] = vgpr(1);
  compare.src[1] = vgpr(2);
  run(f, bodies::vopc_rows(), "v_cmp_lt_u32", compare);
  expect(f.wave->sgpr[kVccLo] == 0x000fffff, "v_cmp_lt_u32");
  expect(f.wave->sgpr[kVccHi] == kUntouched, "v_cmp_lt_u32 writes a pair");
  f.wave->sgpr[10] = 0xf0f0f0f0;
  Inst pick;
  pick.dst = vgpr(3);
  pick.src[0] = vgpr(1);
  pick.src[1] = vgpr(2);
  pick.src[2] = sgpr(10);
  run(f, bodies::vop2_rows(), "v_cndmask_b32", pick);
  for (uint32_t l = 0; l < kSmall; ++l)
    expect(f.wave->vgpr[3][l] == (0xf0f0f0f0u >> l & 1 ? 20 : l), "v_cndmask_b32", l);
  f.untouched(3, "v_cndmask_b32 behind the wave");
}

void moves_data_through_lds() {
  Fixture f;
  f.fill(1, 0, 8);
  f.fill(2, 7, 3);
  f.fill(3, 9, 5);
  Inst write;
  write.src[0] = vgpr(1);
  write.src[1] = vgpr(2, 2);
  run(f, bodies::ds_rows(), "ds_write_b64", write);
  Inst read;
  read.src[0] = vgpr(1);
  read.dst = vgpr(4, 2);
  run(f, bodies::ds_rows(), "ds_read_b64", read);
  for (uint32_t l = 0; l < kSmall; ++l)
    expect(f.wave->vgpr[4][l] == 7 + 3 * l && f.wave->vgpr[5][l] == 9 + 5 * l, "ds_read_b64", l);
  f.untouched(4, "ds_read_b64 behind the wave");
  f.untouched(5, "ds_read_b64 behind the wave");
}

void moves_data_through_memory() {
  Fixture f;
  alignas(16) uint32_t memory[4 * kSmall];
  for (uint32_t i = 0; i < 4 * kSmall; ++i) memory[i] = i * i;
  const auto base = reinterpret_cast<uint64_t>(memory);
  memory_add({base, sizeof memory, MemoryKind::kDevice, 0});
  f.wave->set_sgpr64(20, base);
  f.fill(1, 0, 16);
  Inst load;
  load.src[0] = vgpr(1);
  load.src[1] = sgpr(20, 2);
  load.dst = vgpr(4, 4);
  run(f, bodies::flat_rows(), "global_load_dwordx4", load);
  for (uint32_t l = 0; l < kSmall; ++l) {
    for (uint32_t j = 0; j < 4; ++j)
      expect(f.wave->vgpr[4 + j][l] == memory[4 * l + j], "global_load_dwordx4", l);
  }
  f.untouched(4, "global_load_dwordx4 behind the wave");
  memory_remove(base);
}

}  // namespace

int main() {
  adds_on_its_lanes_only();
  masks_take_one_register();
  moves_data_through_lds();
  moves_data_through_memory();
  return failures != 0;
}

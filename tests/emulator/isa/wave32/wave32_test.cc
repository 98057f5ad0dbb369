// SPDX-License-Identifier: MIT OR Apache-2.0
// Instruction bodies compiled for waves of 32 lanes (isa/lanes.h): none touches what a wave of 32 does not
// have.
#include "wave32_fixture.h"

using namespace wave32;

namespace {

TEST_CASE("adds on its lanes only") {
  Fixture f;
  f.fill(1, 100, 1);
  f.fill(2, 0, 1000);
  Inst inst;
  inst.dst = vgpr(3);
  inst.src[0] = vgpr(1);
  inst.src[1] = vgpr(2);
  run(f, bodies::vop2_rows(), "v_add_u32", inst);
  for (uint32_t l = 0; l < kSmall; ++l)
    CHECK_MESSAGE(f.wave->vgpr[3][l] == 100 + 1001 * l, "v_add_u32", " lane ", l);
  f.untouched(3, "v_add_u32 behind the wave");
  f.set_exec(0x0000ff00);  // the high half of EXEC is no part of it
  inst.dst = vgpr(4);
  run(f, bodies::vop2_rows(), "v_add_u32", inst);
  for (int l = 0; l < kMostLanes; ++l) {
    const bool active = l >= 8 && l < 16;
    CHECK_MESSAGE((f.wave->vgpr[4][l] != kUntouched) == active, "v_add_u32 under EXEC", " lane ", l);
  }
}

TEST_CASE("masks take one register") {
  Fixture f;
  f.fill(1, 0, 1);
  f.fill(2, 20, 0);
  Inst compare;
  compare.dst = sgpr(kVccLo);
  compare.src[0] = vgpr(1);
  compare.src[1] = vgpr(2);
  run(f, bodies::vopc_rows(), "v_cmp_lt_u32", compare);
  CHECK_MESSAGE(f.wave->sgpr[kVccLo] == 0x000fffff, "v_cmp_lt_u32");
  CHECK_MESSAGE(f.wave->sgpr[kVccHi] == kUntouched, "v_cmp_lt_u32 writes a pair");
  f.wave->sgpr[10] = 0xf0f0f0f0;
  Inst pick;
  pick.dst = vgpr(3);
  pick.src[0] = vgpr(1);
  pick.src[1] = vgpr(2);
  pick.src[2] = sgpr(10);
  run(f, bodies::vop2_rows(), "v_cndmask_b32", pick);
  for (uint32_t l = 0; l < kSmall; ++l)
    CHECK_MESSAGE(f.wave->vgpr[3][l] == (0xf0f0f0f0u >> l & 1 ? 20 : l), "v_cndmask_b32", " lane ", l);
  f.untouched(3, "v_cndmask_b32 behind the wave");
}

TEST_CASE("moves data through lds") {
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
  for (uint32_t l = 0; l < kSmall; ++l) {
    CHECK_MESSAGE(f.wave->vgpr[4][l] == 7 + 3 * l, "ds_read_b64", " lane ", l);
    CHECK_MESSAGE(f.wave->vgpr[5][l] == 9 + 5 * l, "ds_read_b64", " lane ", l);
  }
  f.untouched(4, "ds_read_b64 behind the wave");
  f.untouched(5, "ds_read_b64 behind the wave");
}

TEST_CASE("moves data through memory") {
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
      CHECK_MESSAGE(f.wave->vgpr[4 + j][l] == memory[4 * l + j], "global_load_dwordx4", " lane ", l);
  }
  f.untouched(4, "global_load_dwordx4 behind the wave");
  memory_remove(base);
}

}  // namespace

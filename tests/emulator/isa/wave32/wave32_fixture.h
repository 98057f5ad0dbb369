// SPDX-License-Identifier: MIT OR Apache-2.0
// A wave of 32 lanes and the running of one instruction on it, by its row's name and without a decoder.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>

#include "core/wave.h"
#include "isa/rows.h"

namespace wave32 {

using namespace fmha::emu;
namespace bodies = fmha::emu::FMHA_EMU_LEVEL;  // as the build names those for 32 lanes

constexpr int kSmall = 32;
constexpr uint32_t kUntouched = 0xdeadbeef;

// A wave of 32 lanes in a workgroup with a little LDS; what lies behind its lanes and masks is kUntouched.
struct Fixture {
  static constexpr uint32_t kLdsBytes = 256 + 64;
  Fixture() {
    for (auto& r : wave->vgpr) std::fill_n(r, kMostLanes, kUntouched);
    std::fill_n(wave->sgpr, std::size(wave->sgpr), kUntouched);
    group->lds = lds;
    group->lds_bytes = kLdsBytes;
    wave->group = group.get();
    wave->lanes = kSmall;
    wave->all_lanes = 0xffffffff;
    set_exec(0xffffffff);
  }
  void set_exec(uint32_t mask) { wave->sgpr[kExecLo] = mask; }
  void fill(int r, uint32_t first, uint32_t step) {
    for (uint32_t l = 0; l < kSmall; ++l) wave->vgpr[r][l] = first + step * l;
  }
  void untouched(int r, const char* what) {
    for (int l = kSmall; l < kMostLanes; ++l)
      CHECK_MESSAGE(wave->vgpr[r][l] == kUntouched, what, " lane ", l);
  }

  std::unique_ptr<Wave> wave = std::make_unique<Wave>();
  std::unique_ptr<Workgroup> group = std::make_unique<Workgroup>();
  std::unique_ptr<uint8_t[]> memory = std::make_unique<uint8_t[]>(kLdsBytes);
  uint8_t* lds = memory.get();
};

inline Operand vgpr(int index, int dwords = 1) {
  Operand o;
  o.kind = OperandKind::kVgpr;
  o.index = static_cast<uint16_t>(index);
  o.dwords = static_cast<uint8_t>(dwords);
  return o;
}
inline Operand sgpr(int index, int dwords = 1) {
  Operand o = vgpr(index, dwords);
  o.kind = OperandKind::kSgpr;
  return o;
}

// Runs the instruction `name` of `rows`; `inst` has its operands.
inline void run(Fixture& f, std::span<const Row> rows, const char* name, Inst inst) {
  for (const Row& row : rows) {
    if (std::strcmp(row.mnemonic, name) != 0) continue;
    BoundRow bound{row, Format::kVop2, 0, 0};
    inst.row = &bound;
    row.exec(*f.wave, inst);
    CHECK_MESSAGE(f.wave->state == WaveState::kRunning, name);
    return;
  }
  FAIL_CHECK("no row is named ", name);
}

}  // namespace wave32

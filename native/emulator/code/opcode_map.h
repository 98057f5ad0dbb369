// SPDX-License-Identifier: MIT OR Apache-2.0
// Opcode -> row, for one arch and wave size: what the decoder looks instructions up in.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/inst.h"

namespace fmha::emu {

// Opcode spaces: a (space, opcode) pair is one instruction. Formats that share an encoding share a space.
enum Space : uint8_t {
  kSpaceSop1,
  kSpaceSop2,
  kSpaceSopc,
  kSpaceSopp,
  kSpaceSopk,
  kSpaceSmem,
  kSpaceVop1,
  kSpaceVop2,
  kSpaceVopc,
  kSpaceVop3,
  kSpaceVop3p,
  kSpaceDs,
  kSpaceMubuf,
  kSpaceMtbuf,
  kSpaceFlat,
  kSpaceGlobal,
  kSpaceScratch,
  kSpaceVopd,
  kSpaceCount,
};

class OpcodeMap {
 public:
  // Why `rows` make no map: the opcode that two of them claim, with both names, or one that is out of range.
  // Empty if they do. VOP1 has VOP3 opcodes from `vop3_of_vop1` on.
  std::string fill(std::span<const BoundRow> rows, uint32_t vop3_of_vop1);
  const BoundRow* find(Space space, uint32_t opcode) const {
    return opcode < kMaxOpcode ? rows_[space][opcode] : nullptr;
  }

 private:
  static constexpr uint32_t kMaxOpcode = 1024;
  std::string put(Space space, uint32_t opcode, const BoundRow& row);
  const BoundRow* rows_[kSpaceCount][kMaxOpcode] = {};
};

// Made at first use, once an arch and wave size. Stops the process if two rows claim one opcode.
const OpcodeMap& opcode_map(Arch arch, int wave_size);

// A row of VOP1, VOP2 or VOPC that has no VOP3, SDWA or DPP form.
inline bool has_one_form(const Row& row) { return row.is(kLiteralK | kScalarDst | kOneForm); }

}  // namespace fmha::emu

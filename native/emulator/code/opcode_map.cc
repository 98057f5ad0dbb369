// SPDX-License-Identifier: MIT OR Apache-2.0
#include "code/opcode_map.h"

#include <cstdio>
#include <cstdlib>

#include "base/once.h"
#include "core/dialect.h"
#include "isa/table.h"

namespace fmha::emu {
namespace {

// The VOP3 opcodes at which the short VALU formats live.
constexpr uint32_t kVop3OfVopc = 0, kVop3OfVop2 = 0x100;

Space space_of(Format f) {
  switch (f) {
    case Format::kSop1:
      return kSpaceSop1;
    case Format::kSop2:
      return kSpaceSop2;
    case Format::kSopc:
      return kSpaceSopc;
    case Format::kSopp:
      return kSpaceSopp;
    case Format::kSopk:
      return kSpaceSopk;
    case Format::kSmem:
      return kSpaceSmem;
    case Format::kVop1:
      return kSpaceVop1;
    case Format::kVop2:
      return kSpaceVop2;
    case Format::kVopc:
      return kSpaceVopc;
    case Format::kVop3:
    case Format::kVop3b:
      return kSpaceVop3;
    case Format::kVop3p:
    case Format::kMai:
      return kSpaceVop3p;
    case Format::kDs:
      return kSpaceDs;
    case Format::kMubuf:
      return kSpaceMubuf;
    case Format::kMtbuf:
      return kSpaceMtbuf;
    case Format::kFlat:
      return kSpaceFlat;
    case Format::kGlobal:
      return kSpaceGlobal;
    case Format::kScratch:
      return kSpaceScratch;
    case Format::kVopd:
      return kSpaceVopd;
  }
  __builtin_unreachable();
}

}  // namespace

std::string OpcodeMap::put(Space space, uint32_t opcode, const BoundRow& row) {
  char number[16];
  std::snprintf(number, sizeof number, "0x%x", opcode);
  if (opcode >= kMaxOpcode)
    return std::string("opcode ") + number + " of " + row.mnemonic + " is out of range";
  const BoundRow*& place = rows_[space][opcode];
  if (place) return std::string(place->mnemonic) + " and " + row.mnemonic + " have one opcode, " + number;
  place = &row;
  return "";
}

std::string OpcodeMap::fill(std::span<const BoundRow> rows, uint32_t vop3_of_vop1) {
  for (const BoundRow& row : rows) {
    std::string wrong = put(space_of(row.format), row.opcode, row);
    if (wrong.empty() && !has_one_form(row)) {
      if (row.format == Format::kVopc) wrong = put(kSpaceVop3, kVop3OfVopc + row.opcode, row);
      if (row.format == Format::kVop2) wrong = put(kSpaceVop3, kVop3OfVop2 + row.opcode, row);
      if (row.format == Format::kVop1) wrong = put(kSpaceVop3, vop3_of_vop1 + row.opcode, row);
    }
    if (!wrong.empty()) return wrong;
  }
  return "";
}

const OpcodeMap& opcode_map(Arch arch, int wave_size) {
  static Once once[kArchCount * kWaveSizes];
  static OpcodeMap maps[kArchCount * kWaveSizes];
  const size_t i = place_of(arch, wave_size);
  once[i].run([&] {
    const uint32_t vop3_of_vop1 = dialect_of(arch_info(arch).isa).vop3_of_vop1;
    const std::string wrong = maps[i].fill(isa_rows(arch, wave_size), vop3_of_vop1);
    if (wrong.empty()) return;
    std::fprintf(stderr, "amdhip64 software device: %s: %s\n", arch_name(arch), wrong.c_str());
    std::abort();
  });
  return maps[i];
}

}  // namespace fmha::emu

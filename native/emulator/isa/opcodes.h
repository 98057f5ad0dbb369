// SPDX-License-Identifier: MIT OR Apache-2.0
// Opcode tables: which instructions an arch has, and how it encodes them.
//
// Rows say what an instruction does, whatever arch runs it; the tables of a generation (isa/gfx9) bind
// opcodes to rows by name. They are apart because they change apart: an arch of a known generation brings a
// table of its own or names those that exist; another generation brings its own formats and opcodes, and its
// own names, for the same bodies. An arch whose tables nobody has named does not compile (opcodes.cc).
//
// Binding happens once an arch and wave size, when they are first asked for. It stops the process for a name
// without a row, a row that is bound twice, and (code/opcode_map.h) two rows with one opcode.
#pragma once

#include <cstdint>
#include <span>

#include "core/inst.h"

namespace fmha::emu {

// Instructions whose opcodes follow each other. The names are those of rows, a blank between two. An arch
// that spells a row otherwise gives its own name first: "ds_load_b32=ds_read_b32".
struct OpcodeRun {
  Format format;
  uint16_t first;  // the opcode of the first name: of VOP1, VOP2 and VOPC that of the short form
  const char* names;
};

namespace gfx9 {
std::span<const OpcodeRun> shared();
std::span<const OpcodeRun> gfx90a();
std::span<const OpcodeRun> cdna3();  // which gfx942 and gfx950 share
std::span<const OpcodeRun> gfx942();
std::span<const OpcodeRun> gfx950();
}  // namespace gfx9
namespace gfx10 {
std::span<const OpcodeRun> shared();
}  // namespace gfx10
namespace gfx11 {
std::span<const OpcodeRun> shared();
std::span<const OpcodeRun> gfx1150();        // and of gfx1151, gfx1152 and gfx1153
std::span<const OpcodeRun> memory();         // which gfx12 shares
std::span<const OpcodeRun> scalar_floats();  // which gfx1150, its relatives and gfx12 share
}  // namespace gfx11
namespace gfx12 {
std::span<const OpcodeRun> shared();
}  // namespace gfx12

}  // namespace fmha::emu

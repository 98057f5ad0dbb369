// SPDX-License-Identifier: MIT OR Apache-2.0
// The differences between generations, beside opcodes, in what manuals encode and LLVM prints.
#pragma once

#include "archs.h"

namespace fmha::emu {

// The manuals of RDNA come behind those of CDNA.
constexpr bool is_rdna(Isa isa) { return isa >= Isa::kRdna2; }

struct Dialect {
  uint32_t sgprs;         // s0 to this, less one
  bool has_null;          // a scalar register that is always 0
  uint32_t m0;            // operand number of m0: 124 or 125. That of null is the other
  bool wide_literals;     // formats of 8 bytes take literals too
  bool keeps_halves;      // 16-bit results leave the other half of their register as it is
  bool short_halves;      // short forms name the upper halves of v0 to v127
  uint32_t vop3_of_vop1;  // VOP3 opcode of the first of VOP1
  uint16_t min_f32;       // VOP2 opcode of v_min_f32; v_max_f32 is next
  bool has_scope_field;   // memory instructions have the fields th and scope
  bool packed_ids;        // of a work-item: in one register, not in three
  bool ids_in_ttmp;       // the workgroup's number is in trap temporaries
  bool has_vscnt;         // stores have a counter of their own
  bool late_counts;       // the field of vmcnt is the last one of s_waitcnt
  bool has_images;        // MIMG
  bool has_scopes;        // cache controls take a scope, in the bits sc0 and sc1
  bool has_sve;  // a bit of SCRATCH says whether there is a VGPR address; else the lack of an SGPR one does
  bool blgp_negates;            // BLGP of an f64 MFMA negates its operands
  bool loads_to_lds_wide;       // 12 and 16 bytes a lane, beside 4
  bool permutes_halves;         // ds_permute and ds_bpermute stay in a half of a wave of 64
  bool has_xcc;                 // hardware registers from 20 on: the die, performance snapshots
  uint32_t m0_lds_mask;         // the bits of M0 that say where in LDS
  uint32_t wave_scratch_bytes;  // the most private memory of a wave: COMPUTE_TMPRING_SIZE.WAVESIZE
  const char* sc0;              // LLVM's names of the three cache bits
  const char* nt;
  const char* sc1;
};

constexpr Dialect dialect_of(Isa isa) {
  switch (isa) {
    case Isa::kCdna2:
      return {.sgprs = 102,
              .has_null = false,
              .m0 = 124,
              .wide_literals = false,
              .keeps_halves = false,
              .short_halves = false,
              .vop3_of_vop1 = 0x140,
              .min_f32 = 0x0a,
              .has_scope_field = false,
              .packed_ids = true,
              .ids_in_ttmp = false,
              .has_vscnt = false,
              .late_counts = false,
              .has_images = true,
              .has_scopes = false,
              .has_sve = false,
              .blgp_negates = false,
              .loads_to_lds_wide = false,
              .permutes_halves = false,
              .has_xcc = false,
              .m0_lds_mask = 0xffff,
              .wave_scratch_bytes = 8191 * 1024,
              .sc0 = "glc",
              .nt = "slc",
              .sc1 = "scc"};
    case Isa::kCdna3:
      return {.sgprs = 102,
              .has_null = false,
              .m0 = 124,
              .wide_literals = false,
              .keeps_halves = false,
              .short_halves = false,
              .vop3_of_vop1 = 0x140,
              .min_f32 = 0x0a,
              .has_scope_field = false,
              .packed_ids = true,
              .ids_in_ttmp = false,
              .has_vscnt = false,
              .late_counts = false,
              .has_images = false,
              .has_scopes = true,
              .has_sve = true,
              .blgp_negates = true,
              .loads_to_lds_wide = false,
              .permutes_halves = false,
              .has_xcc = true,
              .m0_lds_mask = 0xffff,
              .wave_scratch_bytes = 8191 * 1024,
              .sc0 = "sc0",
              .nt = "nt",
              .sc1 = "sc1"};
    case Isa::kCdna4:
      return {.sgprs = 102,
              .has_null = false,
              .m0 = 124,
              .wide_literals = false,
              .keeps_halves = false,
              .short_halves = false,
              .vop3_of_vop1 = 0x140,
              .min_f32 = 0x0a,
              .has_scope_field = false,
              .packed_ids = true,
              .ids_in_ttmp = false,
              .has_vscnt = false,
              .late_counts = false,
              .has_images = false,
              .has_scopes = true,
              .has_sve = true,
              .blgp_negates = true,
              .loads_to_lds_wide = true,
              .permutes_halves = false,
              .has_xcc = true,
              .m0_lds_mask = 0x3ffff,
              .wave_scratch_bytes = 8191 * 1024,
              .sc0 = "sc0",
              .nt = "nt",
              .sc1 = "sc1"};
    case Isa::kRdna2:
      return {.sgprs = 106,
              .has_null = true,
              .m0 = 124,
              .wide_literals = true,
              .keeps_halves = true,
              .short_halves = false,
              .vop3_of_vop1 = 0x180,
              .min_f32 = 0x0f,
              .has_scope_field = false,
              .packed_ids = false,
              .ids_in_ttmp = false,
              .has_vscnt = true,
              .late_counts = false,
              .has_images = false,
              .has_scopes = false,
              .has_sve = false,
              .blgp_negates = false,
              .loads_to_lds_wide = false,
              .permutes_halves = true,
              .has_xcc = false,
              .m0_lds_mask = 0xffff,
              .wave_scratch_bytes = 8191 * 1024,
              .sc0 = "glc",
              .nt = "slc",
              .sc1 = "dlc"};
    case Isa::kRdna3:
      return {.sgprs = 106,
              .has_null = true,
              .m0 = 125,
              .wide_literals = true,
              .keeps_halves = true,
              .short_halves = true,
              .vop3_of_vop1 = 0x180,
              .min_f32 = 0x0f,
              .has_scope_field = false,
              .packed_ids = true,
              .ids_in_ttmp = false,
              .has_vscnt = true,
              .late_counts = true,
              .has_images = false,
              .has_scopes = false,
              .has_sve = true,
              .blgp_negates = false,
              .loads_to_lds_wide = false,
              .permutes_halves = true,
              .has_xcc = false,
              .m0_lds_mask = 0xffff,
              .wave_scratch_bytes = 32767 * 256,
              .sc0 = "glc",
              .nt = "slc",
              .sc1 = "dlc"};
    case Isa::kRdna4:
      return {.sgprs = 106,
              .has_null = true,
              .m0 = 125,
              .wide_literals = true,
              .keeps_halves = true,
              .short_halves = true,
              .vop3_of_vop1 = 0x180,
              .min_f32 = 0x15,
              .has_scope_field = true,
              .packed_ids = true,
              .ids_in_ttmp = true,
              .has_vscnt = true,
              .late_counts = true,
              .has_images = false,
              .has_scopes = false,
              .has_sve = true,
              .blgp_negates = false,
              .loads_to_lds_wide = false,
              .permutes_halves = false,
              .has_xcc = false,
              .m0_lds_mask = 0xffff,
              .wave_scratch_bytes = 262143 * 256,
              .sc0 = "glc",
              .nt = "slc",
              .sc1 = "dlc"};
  }
  __builtin_unreachable();
}

// The fields of s_waitcnt: how many of each kind may be open. A field with its largest value asks for
// nothing.
struct WaitCounts {
  uint32_t vector, exports, lds, most_lds;
};
constexpr WaitCounts wait_counts(uint32_t imm, const Dialect& dialect) {
  if (dialect.late_counts) return {imm >> 10 & 63, imm & 7, imm >> 4 & 63, 63};
  const uint32_t most_lds = dialect.has_vscnt ? 63 : 15;
  return {(imm & 15) | (imm >> 14 & 3) << 4, imm >> 4 & 7, imm >> 8 & most_lds, most_lds};
}

}  // namespace fmha::emu

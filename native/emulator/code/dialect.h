// SPDX-License-Identifier: MIT OR Apache-2.0
// What the manuals of a generation encode, or LLVM prints, differently beside opcodes.
#pragma once

#include "archs.h"

namespace fmha::emu {

struct Dialect {
  bool has_images;  // MIMG
  bool has_scopes;  // cache controls take a scope, in the bits sc0 and sc1
  bool has_sve;  // a bit of SCRATCH says whether there is a VGPR address; else the lack of an SGPR one does
  bool blgp_negates;       // BLGP of an f64 MFMA negates its operands
  bool loads_to_lds_wide;  // 12 and 16 bytes a lane, beside 4
  bool has_xcc;            // hardware registers from 20 on: the die, performance snapshots
  uint32_t m0_lds_mask;    // the bits of M0 that say where in LDS
  const char* sc0;         // LLVM's names of the three cache bits
  const char* nt;
  const char* sc1;
};

constexpr Dialect dialect_of(Isa isa) {
  switch (isa) {
    case Isa::kCdna2:
      return {.has_images = true,
              .has_scopes = false,
              .has_sve = false,
              .blgp_negates = false,
              .loads_to_lds_wide = false,
              .has_xcc = false,
              .m0_lds_mask = 0xffff,
              .sc0 = "glc",
              .nt = "slc",
              .sc1 = "scc"};
    case Isa::kCdna3:
      return {.has_images = false,
              .has_scopes = true,
              .has_sve = true,
              .blgp_negates = true,
              .loads_to_lds_wide = false,
              .has_xcc = true,
              .m0_lds_mask = 0xffff,
              .sc0 = "sc0",
              .nt = "nt",
              .sc1 = "sc1"};
    case Isa::kCdna4:
      return {.has_images = false,
              .has_scopes = true,
              .has_sve = true,
              .blgp_negates = true,
              .loads_to_lds_wide = true,
              .has_xcc = true,
              .m0_lds_mask = 0x3ffff,
              .sc0 = "sc0",
              .nt = "nt",
              .sc1 = "sc1"};
  }
  __builtin_unreachable();
}

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// How many cycles LDS takes over an access of a wave.
//
// LDS serves a wave in groups of lanes that together move at most 128 bytes, a dword from each of 32 banks a
// cycle. Within a group, lanes that want different dwords of one bank wait for each other; lanes that want
// the same dword do not, except atomics. These lanes form a group:
// - up to 4 bytes: lanes 0-31 and 32-63; 8 bytes: 16 lanes in a row (AMD's OpenCL programming guide, "LDS",
//   and the AMDGPU kernel optimization guide of nod-ai/amd-shark-ai, "Avoiding LDS bank conflicts");
// - 16 bytes, writes: lanes 0-7, 8-15, ...; reads: lanes 0-3 with 20-23, 4-7 with 16-19, 8-11 with 28-31,
//   12-15 with 24-27, and the same 32 higher (ROCm documentation, Composable Kernel, "Understanding AMD GPU
//   LDS and bank conflicts"); 12 bytes are taken to go like 16.
// An MI355X has 64 banks, of which reads of 8 and of 16 bytes make use: lanes 0-31, and lanes 0-3 with 12-15
// and 20-27, 4-11 with 16-19 and 28-31 (measured by HipKittens, analysis/paper_experiments/phases, which has
// writes of 8 bytes and reads of 12 as on an MI300X; Triton's pull request 11365 has the same lanes).
// Transposing reads are taken to go like others, and what nobody measured like an MI300X's. ds_read2 and
// ds_write2 are two accesses. ds_bpermute, ds_permute and ds_swizzle touch no LDS memory and are not looked
// at.
//
// RDNA has 32 banks a compute unit, each of which moves a dword a cycle (AMD RDNA 3 ISA, "LDS"), for lanes in
// a row: 32 of up to 4 bytes, 16 of 8, 8 of 12 or 16, which is assumed. In WGP mode an access is spread over
// the 64 banks of two units; it is counted as if over 32, which never has fewer conflicts.
#pragma once

#include <cstdint>

#include "model/unit_shape.h"

namespace fmha::emu {

struct LdsCycles {
  uint32_t groups;  // with an active lane: the cycles without any conflict
  uint32_t cycles;
};

enum class LdsKind : uint8_t { kRead, kWrite, kAtomic };

// `lanes` each touch `bytes` (1 to 16) at address[lane].
LdsCycles lds_cycles(const uint32_t* address, uint64_t lanes, uint32_t bytes, LdsKind access,
                     const UnitShape& shape);

}  // namespace fmha::emu

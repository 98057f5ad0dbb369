// SPDX-License-Identifier: MIT OR Apache-2.0
// The unit that the model of a compute unit (time_cu.h) and the counts of LDS cycles describe: a compute unit
// of CDNA, a work-group processor of RDNA, which is two compute units whose waves share LDS, or one of these
// two if the kernel was compiled for that (CU mode).
#pragma once

#include <cstdint>

#include "archs.h"
#include "code/launch.h"
#include "core/dialect.h"

namespace fmha::emu {

struct UnitShape {
  Isa isa = Isa::kCdna3;
  uint32_t units = 1;        // compute units
  uint32_t simds = 4;        // of all of them
  uint32_t pipes = 1;        // of LDS, and as many of L1: each for neighbouring SIMDs
  uint64_t slot_cycles = 4;  // a SIMD issues an instruction of a class in that time
  uint32_t wave_slots = 1;   // of a vector instruction
};

constexpr uint32_t kMostSimds = 4, kMostPipes = 2;

inline UnitShape unit_shape(const ArchInfo& arch, bool shares_lds, uint32_t lanes) {
  if (!is_rdna(arch.isa)) return {.isa = arch.isa};
  const uint32_t units = shares_lds ? 2 : 1;  // of SIMDs of 32 lanes, one instruction a cycle
  return {.isa = arch.isa,
          .units = units,
          .simds = 2 * units,
          .pipes = units,
          .slot_cycles = 1,
          .wave_slots = lanes / 32};
}

// The register file of a SIMD, in registers of a wave. It has rows of 32 lanes on RDNA, where a wave of 64
// takes two of each, and is given half as many at a time (LLVM, getTotalNumVGPRs and getVGPRAllocGranule).
struct VgprFile {
  uint64_t registers, granule;
};
inline VgprFile vgpr_file(const Card& card, const ArchInfo& arch, int wave_size) {
  const auto rows = static_cast<uint64_t>(wave_size / arch.wave_size);
  return {card.vgprs_per_simd_lane.value / rows, card.vgpr_granule.value / rows};
}

// WGP mode is bit 29 of rsrc1 (AMD RDNA 3 ISA; LLVM, AMDGPUUsage: ENABLE_WGP_MODE).
inline UnitShape unit_shape(const Launch& launch) {
  return unit_shape(arch_info(launch.code->arch()), launch.kernel->rsrc1 >> 29 & 1, wave_size_of(launch));
}

}  // namespace fmha::emu

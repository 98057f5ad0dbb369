// SPDX-License-Identifier: MIT OR Apache-2.0
// Every number of the hardware that the profile rests on, each with where it is from.
#pragma once

#include <cstdint>

namespace fmha::emu {

struct ProfileConstant {
  const char* name;
  uint64_t value;
  const char* source;
};

#define FMHA_CDNA3_PAPER "AMD CDNA 3 architecture white paper"
#define FMHA_CDNA3_ISA "AMD Instinct MI300 (CDNA3) instruction set architecture manual"
#define FMHA_LLVM "LLVM, AMDGPUBaseInfo.cpp for gfx90a and gfx940"

// Caches.
constexpr ProfileConstant kLineBytes{"line_bytes", 128,
                                     FMHA_CDNA3_PAPER ", memory hierarchy: 128-byte lines of L1 and L2"};
constexpr ProfileConstant kXcds{"xcds", 8,
                                FMHA_CDNA3_PAPER ": MI300X has 8 XCDs, each with an L2 of its own"};
constexpr ProfileConstant kL2Bytes{"l2_bytes_per_xcd", 4 << 20,
                                   FMHA_CDNA3_PAPER ": 4 MB, 16 channels of 256 KB; HIP's l2CacheSize"};
constexpr ProfileConstant kL2Ways{"l2_ways", 16,
                                  FMHA_CDNA3_PAPER ": 16-way set-associative, writeback, write-allocate"};
constexpr ProfileConstant kMallBytes{"mall_bytes", 256 << 20, FMHA_CDNA3_PAPER ": Infinity Cache of 256 MB"};
constexpr ProfileConstant kMallWays{
    "mall_ways", 16,
    FMHA_CDNA3_PAPER ": 16-way; memory-side, never holds dirty lines, so every write back reaches HBM"};

// LDS.
constexpr ProfileConstant kLdsBanks{"lds_banks", 32, FMHA_CDNA3_ISA ", data share: 32 banks"};
constexpr ProfileConstant kLdsBankBytes{"lds_bank_bytes", 4, FMHA_CDNA3_ISA ", data share: banks of dwords"};
constexpr ProfileConstant kLdsBytes{"lds_bytes_per_cu", 65536,
                                    FMHA_CDNA3_ISA ", data share: 64 kB; HIP's sharedMemPerMultiprocessor"};
constexpr ProfileConstant kLdsGranule{"lds_granule_bytes", 512,
                                      FMHA_CDNA3_ISA ": LDS is allocated in blocks of 128 dwords"};

// Occupancy.
constexpr ProfileConstant kSimds{"simds_per_cu", 4, FMHA_CDNA3_PAPER ": four SIMDs a compute unit"};
constexpr ProfileConstant kVgprs{"vgprs_per_simd_lane", 512,
                                 FMHA_LLVM ": getTotalNumVGPRs, VGPRs and AccVGPRs in one file"};
constexpr ProfileConstant kVgprGranule{"vgpr_granule", 8, FMHA_LLVM ": getVGPRAllocGranule"};
constexpr ProfileConstant kMostWaves{"most_waves_per_simd", 8, FMHA_LLVM ": getMaxWavesPerEU"};
constexpr ProfileConstant kMostGroups{"most_workgroups_per_cu", 16,
                                      FMHA_LLVM ": getMaxWorkGroupsPerCU, barriers a compute unit has"};

#undef FMHA_CDNA3_PAPER
#undef FMHA_CDNA3_ISA
#undef FMHA_LLVM

constexpr const ProfileConstant* kProfileConstants[] = {
    &kLineBytes, &kXcds,       &kL2Bytes, &kL2Ways, &kMallBytes,   &kMallWays,  &kLdsBanks,  &kLdsBankBytes,
    &kLdsBytes,  &kLdsGranule, &kSimds,   &kVgprs,  &kVgprGranule, &kMostWaves, &kMostGroups};

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// The wave size, for the instruction bodies. Bodies are compiled for one size, as they are for one level of
// host vector instructions (rows.h): FMHA_EMU_WAVE lanes, 64 unless the build says 32. All their code is in
// the namespace of the level, so that bodies for 32 lanes, in a namespace of their own, can stand beside
// those for 64.
//
// Whatever size a wave has, register r of lane l is at w.vgpr[r][l]: registers are kMostLanes dwords apart.
// Masks of lanes are u64 in bodies; in scalar registers they take a pair for 64 lanes and a single one
// for 32. MFMA exists for 64 lanes only: isa/matrix says so.
#pragma once

#include "core/wave.h"

#ifndef FMHA_EMU_WAVE
#define FMHA_EMU_WAVE 64
#endif

namespace fmha::emu::FMHA_EMU_LEVEL {

constexpr int kLanes = FMHA_EMU_WAVE;
static_assert((kLanes == 32 || kLanes == 64) && kLanes <= kMostLanes);
constexpr uint64_t kAllLanes = ~uint64_t{0} >> (64 - kLanes);  // a bit a lane

// A mask of lanes in scalar registers.
[[gnu::always_inline]] inline uint64_t read_lanes(const Wave& w, int sgpr) {
  return kLanes == 64 ? w.sgpr64(sgpr) : w.sgpr[sgpr];
}
[[gnu::always_inline]] inline void write_lanes(Wave& w, int sgpr, uint64_t mask) {
  if constexpr (kLanes == 64) {
    w.set_sgpr64(sgpr, mask);
  } else {
    w.sgpr[sgpr] = static_cast<uint32_t>(mask);
  }
}
[[gnu::always_inline]] inline uint64_t exec_mask(const Wave& w) { return read_lanes(w, kExecLo); }
[[gnu::always_inline]] inline uint64_t vcc_mask(const Wave& w) { return read_lanes(w, kVccLo); }
[[gnu::always_inline]] inline bool all_active(const Wave& w) { return exec_mask(w) == kAllLanes; }

// EXEC as words of all ones or zero, one a lane.
inline const uint32_t* exec_lanes(Wave& w) {
  const uint64_t e = exec_mask(w);
  if (e != w.lane_mask_of) {
    for (int l = 0; l < kLanes; ++l) w.lane_mask[l] = (e >> l) & 1 ? ~0u : 0u;
    w.lane_mask_of = e;
  }
  return w.lane_mask;
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL

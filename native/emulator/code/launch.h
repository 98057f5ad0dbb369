// SPDX-License-Identifier: MIT OR Apache-2.0
// One launch of a kernel: the request and its result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "code/code_object.h"
#include "core/shadow.h"

namespace fmha::emu {

struct Launch {
  const CodeObject* code = nullptr;
  const KernelCode* kernel = nullptr;
  int device = 0;
  uint32_t grid[3] = {1, 1, 1};  // in workgroups
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_lds = 0;
  uint32_t stack_bytes = 0;    // of a lane, if the kernel does not know how many it needs
  const void* args = nullptr;  // the explicit arguments, as laid out in the kernel argument block
  size_t args_bytes = 0;
  std::vector<Range> read_only;       // what it may not write
  uint64_t asked_at = cancellations;  // when it was asked for: cancel.h
};

// Lanes of a wave, and waves of a workgroup.
inline uint32_t wave_size_of(const Launch& launch) { return static_cast<uint32_t>(launch.kernel->wave_size); }
// The code as its waves read it.
inline const DecodedText& text_of(const Launch& launch) {
  return launch.code->text(launch.kernel->wave_size);
}
inline uint32_t waves_of(const Launch& launch) {
  const uint32_t lanes = wave_size_of(launch);
  return (launch.block[0] * launch.block[1] * launch.block[2] + lanes - 1) / lanes;
}

struct LaunchStats {
  uint64_t workgroups = 0, waves = 0, instructions = 0, mfma_macs = 0;
  uint64_t nanoseconds = 0;
};

struct LaunchResult {
  int hip_error = 0;
  std::string message;  // set with hip_error
  LaunchStats stats;
};

}  // namespace fmha::emu

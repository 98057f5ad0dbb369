// SPDX-License-Identifier: MIT OR Apache-2.0
// The state in which a wave starts: the dispatch packet, the kernel argument block, its registers.
// Source: LLVM's AMDGPUUsage, "Initial Kernel Execution State".
#pragma once

#include <cstdint>
#include <memory>

#include "code/launch.h"
#include "core/wave.h"

namespace fmha::emu {

// The contents of unwritten registers, LDS and allocations: NaN as f32, as two f16 and as two bf16, and no
// valid address, so that a kernel that reads what nobody wrote cannot look right.
constexpr uint32_t kPoison = 0x7fbd7fbd;
void fill_poison(void* p, size_t bytes);

// The packet and the kernel arguments, in memory the device may read.
class LaunchBlock {
 public:
  explicit LaunchBlock(const Launch& launch);
  ~LaunchBlock();
  LaunchBlock(const LaunchBlock&) = delete;
  LaunchBlock& operator=(const LaunchBlock&) = delete;
  uint64_t packet() const { return reinterpret_cast<uint64_t>(memory_.get()); }
  uint64_t kernarg() const { return packet() + kKernargOffset; }

 private:
  // Apart, so that reading past the end of one is not reading the other.
  static constexpr uint64_t kKernargOffset = 4096;
  void write_packet(const Launch& launch);
  void write_kernarg(const Launch& launch);
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t, Free> memory_;
  uint64_t kernarg_bytes_ = 0;
};

// Everything of `wave` but vgpr and sgpr that do not matter to the kernel. `wave.group`, `id` and `scratch`
// are set already; scratch_base is the start of the memory `wave.scratch` points into.
void init_wave(Wave& wave, const Launch& launch, const LaunchBlock& block, const uint8_t* scratch_base);

// Bytes of private memory of a lane.
uint32_t scratch_bytes_per_lane(const Launch& launch);

}  // namespace fmha::emu

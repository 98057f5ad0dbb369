// SPDX-License-Identifier: MIT OR Apache-2.0
// The instructions that the waves of a workgroup really ran, in the order of each wave: the input of the
// model of a compute unit (time_cu.h).
#pragma once

#include <cstdint>
#include <vector>

#include "model/cache_model.h"

namespace fmha::emu {

// The use that an instruction made of the pipes that the SIMDs share.
struct PipeUse {
  uint32_t lds_cycles = 0;  // with bank conflicts
  uint32_t l1_cycles = 0;
  CacheLevel level = CacheLevel::kNone;  // the farthest that one of its lines came from
};

// An instruction that a wave issued. The next step tells whether a branch was taken.
struct TraceStep {
  uint32_t inst = 0;  // in the text
  PipeUse use;
};

using WaveTrace = std::vector<TraceStep>;

// The L1 of a compute unit, as far as the waves of one workgroup fill it: 32 kB, 64 ways.
class L1Model {
 public:
  L1Model();
  // True if the line was here; a load then fills it.
  bool load(uint64_t line);
  void clear();

 private:
  SetCache lines_;
};

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// The steps of a call, whatever its family: launches and memsets in their order, and the workspace they
// need. supported, kernel info, the workspace query, prepare and run all read one plan, so that no two can
// disagree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "catalogue/catalogue.h"
#include "error.h"

namespace fmha {

// The choice of a kernel depends on this and on the problem.
struct Target {
  Arch arch;
  int compute_units;
};

struct Grid {
  uint32_t x, y, z;  // workgroups
};

// HIP promises no more than this in y and z (hipDeviceAttributeMaxGridDimY on AMD devices is 65536).
inline constexpr int64_t kMaxGridYZ = 65535;
// A launch counts work-items, not workgroups, in 32 bits.
inline constexpr int64_t kMaxWorkItemsX = UINT32_MAX;

struct Step {
  static constexpr size_t kMostArgumentBytes = 704;

  enum class Kind : uint8_t { kLaunch, kMemset };

  Step() {}  // set by Plan, which writes only what is used of `arguments`

  Kind kind;
  uint8_t value;         // kMemset: of each byte
  Grid grid;             // kLaunch
  const Kernel* kernel;  // kLaunch
  void* memory;          // kMemset
  size_t bytes;          // kMemset: of memory; kLaunch: of arguments
  uint32_t rounds;       // kLaunch: how often, one after another
  size_t round_offset;   // of several: where in the arguments the int32 is that counts them, from 0
  alignas(16) std::array<std::byte, kMostArgumentBytes> arguments;
};

class Plan {
 public:
  static constexpr size_t kMostSteps = 8;

  Plan() {}

  // Adds a launch. Returns room for its arguments, for the caller to make them in place.
  template <typename Args>
  void* add_launch(const Kernel& kernel, const Grid& grid) {
    static_assert(sizeof(Args) <= Step::kMostArgumentBytes && alignof(Args) <= 16);
    Step& step = add(Step::Kind::kLaunch);
    step.kernel = &kernel;
    step.grid = grid;
    step.bytes = sizeof(Args);
    step.rounds = 1;
    return step.arguments.data();
  }

  // Has the launch that was added last run so often.
  void repeat(uint32_t rounds, size_t round_offset) {
    Step& step = steps_[count_ - 1];
    step.rounds = rounds;
    step.round_offset = round_offset;
  }

  void add_memset(void* memory, uint8_t value, size_t bytes) {
    Step& step = add(Step::Kind::kMemset);
    step.memory = memory;
    step.value = value;
    step.bytes = bytes;
  }

  size_t count() const { return count_; }

  // Launches and memsets.
  int64_t operations() const {
    int64_t sum = 0;
    for (size_t i = 0; i < count_; ++i) sum += steps_[i].kind == Step::Kind::kLaunch ? steps_[i].rounds : 1;
    return sum;
  }
  const Step& operator[](size_t i) const { return steps_[i]; }
  Step& operator[](size_t i) { return steps_[i]; }

  // The workspace that running the plan takes.
  int64_t needed_bytes() const { return empty ? 0 : workspace_bytes; }

  bool empty = false;           // there is nothing to do: the steps are not run
  int64_t workspace_bytes = 0;  // that the steps use together

 private:
  Step& add(Step::Kind kind) {
    if (count_ == kMostSteps) raise(FMHA_INTERNAL, "a call takes more steps than Plan holds");
    Step& step = steps_[count_++];
    step.kind = kind;
    return step;
  }

  size_t count_ = 0;
  std::array<Step, kMostSteps> steps_;
};

}  // namespace fmha

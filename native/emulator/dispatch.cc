// SPDX-License-Identifier: MIT OR Apache-2.0
#include "dispatch.h"

#include <xmmintrin.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "environment.h"
#include "launch_state.h"
#include "mode.h"
#include "thread_pool.h"
#include "wave.h"

namespace fmha::emu {
namespace {

constexpr int kLaunchTimeOut = 702;  // hipErrorLaunchTimeOut
constexpr int kOutOfMemory = 2;      // hipErrorOutOfMemory
constexpr uint64_t kDefaultInstructionBudget = 1'000'000'000;

// Instructions a wave may run, against endless loops.
uint64_t instruction_budget() {
  return environment_number("FMHA_EMU_MAX_INSTRUCTIONS", 1, UINT64_MAX, kDefaultInstructionBudget);
}

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
using Aligned = std::unique_ptr<T[], FreeDeleter>;

Aligned<uint8_t> allocate(size_t bytes) {
  Aligned<uint8_t> p(static_cast<uint8_t*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
  if (!p) throw std::bad_alloc();
  return p;
}

// What a thread needs to run a workgroup; kept between workgroups and launches.
class Arena {
 public:
  ~Arena() {
    if (scratch_) memory_remove(reinterpret_cast<uint64_t>(scratch_.get()));
  }
  void reserve(uint32_t waves, uint32_t lds_bytes, uint64_t scratch_bytes, int device) {
    while (waves_.size() < waves) waves_.push_back(std::make_unique<Wave>());
    if (lds_bytes > lds_bytes_) {
      lds_ = allocate(lds_bytes + 64);  // a little more, so that 16-byte host accesses at the end stay inside
      lds_bytes_ = lds_bytes;
    }
    if (scratch_bytes > scratch_bytes_) {
      if (scratch_) memory_remove(reinterpret_cast<uint64_t>(scratch_.get()));
      scratch_ = allocate(scratch_bytes);
      scratch_bytes_ = scratch_bytes;
      memory_add({reinterpret_cast<uint64_t>(scratch_.get()), scratch_bytes, MemoryKind::kKernarg, device});
    }
  }
  Wave& wave(uint32_t i) { return *waves_[i]; }
  uint8_t* lds() { return lds_.get(); }
  uint8_t* scratch() { return scratch_.get(); }

 private:
  std::vector<std::unique_ptr<Wave>> waves_;
  Aligned<uint8_t> lds_, scratch_;
  uint32_t lds_bytes_ = 0;
  uint64_t scratch_bytes_ = 0;
};

// The host's floating-point environment, put back when the workgroup is done.
class MxcsrGuard {
 public:
  MxcsrGuard() : saved_(_mm_getcsr()) {}
  ~MxcsrGuard() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};

class Grid {
 public:
  explicit Grid(const Launch& launch)
      : launch_(launch),
        block_(launch),
        budget_(instruction_budget()),
        waves_((launch.block[0] * launch.block[1] * launch.block[2] + kLanes - 1) / kLanes),
        lds_bytes_(launch.kernel->lds_bytes + launch.dynamic_lds),
        scratch_bytes_(uint64_t{scratch_bytes_per_lane(*launch.kernel)} * kLanes) {}

  uint64_t workgroups() const { return uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2]; }
  static bool run_workgroup(void* self, uint64_t index) {
    return static_cast<Grid*>(self)->run_workgroup(index);
  }
  LaunchResult result;

 private:
  bool run_workgroup(uint64_t index);
  void run_wave(Wave& w);
  bool run_until_barrier(Workgroup& group, Arena& arena);
  void finish(const Workgroup& group, Arena& arena);

  Launch launch_;
  LaunchBlock block_;
  const uint64_t budget_;
  const uint32_t waves_, lds_bytes_;
  const uint64_t scratch_bytes_;  // of a wave
  std::mutex mutex_;              // of result
};

void Grid::run_wave(Wave& w) {
  apply_mode(w.mode);
  while (w.state == WaveState::kRunning) {
    const Inst& inst = *w.next++;
    if (++w.instructions > budget_) [[unlikely]] {
      w.fault(inst, kLaunchTimeOut, "the wave has run %llu instructions (FMHA_EMU_MAX_INSTRUCTIONS)",
              static_cast<unsigned long long>(budget_));
      return;
    }
    inst.exec(w, inst);
  }
}

// Runs every wave to its next barrier or its end; false when the workgroup is over.
bool Grid::run_until_barrier(Workgroup& group, Arena& arena) {
  bool waiting = false;
  for (uint32_t i = 0; i < waves_; ++i) {
    Wave& w = arena.wave(i);
    if (w.state == WaveState::kDone) continue;
    w.state = WaveState::kRunning;  // the barrier it waits at is complete: waves that ended count as arrived
    run_wave(w);
    if (group.hip_error) return false;
    waiting |= w.state == WaveState::kBarrier;
  }
  return waiting;
}

bool Grid::run_workgroup(uint64_t index) {
  thread_local Arena arena;
  Workgroup group;
  try {
    arena.reserve(waves_, lds_bytes_, scratch_bytes_ * waves_, launch_.device);
  } catch (const std::bad_alloc&) {
    std::lock_guard lock(mutex_);
    result.hip_error = kOutOfMemory;
    result.message = "kernel " + launch_.kernel->name + ": no host memory for a workgroup";
    return false;
  }
  group.launch = &launch_;
  group.id[0] = static_cast<uint32_t>(index % launch_.grid[0]);
  group.id[1] = static_cast<uint32_t>(index / launch_.grid[0] % launch_.grid[1]);
  group.id[2] = static_cast<uint32_t>(index / launch_.grid[0] / launch_.grid[1]);
  group.lds = arena.lds();
  group.lds_bytes = lds_bytes_;
  fill_poison(group.lds, lds_bytes_);
  fill_poison(arena.scratch(), scratch_bytes_ * waves_);
  for (uint32_t i = 0; i < waves_; ++i) {
    Wave& w = arena.wave(i);
    w.group = &group;
    w.id = i;
    w.scratch = arena.scratch() + i * scratch_bytes_;
    init_wave(w, launch_, block_, arena.scratch());
  }
  {
    MxcsrGuard guard;
    while (run_until_barrier(group, arena)) {
    }
  }
  finish(group, arena);
  return group.hip_error == 0;
}

void Grid::finish(const Workgroup& group, Arena& arena) {
  uint64_t instructions = 0, macs = 0;
  for (uint32_t i = 0; i < waves_; ++i) {
    instructions += arena.wave(i).instructions;
    macs += arena.wave(i).mfma_macs;
  }
  std::lock_guard lock(mutex_);
  ++result.stats.workgroups;
  result.stats.waves += waves_;
  result.stats.instructions += instructions;
  result.stats.mfma_macs += macs;
  if (group.hip_error && !result.hip_error) {
    result.hip_error = group.hip_error;
    result.message = group.fault;
  }
}

}  // namespace

LaunchResult run(const Launch& launch) {
  const auto start = std::chrono::steady_clock::now();
  try {
    Grid grid(launch);
    ThreadPool::instance().run(grid.workgroups(), Grid::run_workgroup, &grid);
    LaunchResult result = std::move(grid.result);
    result.stats.nanoseconds = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
            .count());
    return result;
  } catch (const std::bad_alloc&) {
    LaunchResult result;
    result.hip_error = kOutOfMemory;
    result.message = "kernel " + launch.kernel->name + ": no host memory for the launch";
    return result;
  }
}

}  // namespace fmha::emu

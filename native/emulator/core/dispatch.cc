// SPDX-License-Identifier: MIT OR Apache-2.0
#include "core/dispatch.h"

#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "check/config.h"
#include "check/global_watch.h"
#include "check/schedule.h"
#include "check/wave_checks.h"
#include "core/environment.h"
#include "core/gpr_index.h"
#include "core/launch_state.h"
#include "core/mode.h"
#include "core/thread_pool.h"
#include "core/wave.h"
#include "model/profile.h"

namespace fmha::emu {
namespace {

constexpr int kLaunchTimeOut = 702;  // hipErrorLaunchTimeOut
constexpr int kOutOfMemory = 2;      // hipErrorOutOfMemory
constexpr int kInvalidValue = 1;     // hipErrorInvalidValue
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
  GroupChecks& checks() { return checks_; }

 private:
  std::vector<std::unique_ptr<Wave>> waves_;
  GroupChecks checks_;
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
  Grid(const Launch& launch, uint32_t checks, const Schedule& schedule)
      : launch_(launch),
        checks_(checks),
        schedule_(schedule),
        watch_(checks, launch.read_only),
        block_(launch),
        budget_(instruction_budget()),
        waves_((launch.block[0] * launch.block[1] * launch.block[2] + kLanes - 1) / kLanes),
        lds_bytes_(launch.kernel->lds_bytes + launch.dynamic_lds),
        scratch_bytes_(uint64_t{scratch_bytes_per_lane(*launch.kernel)} * kLanes) {
    if (profile_enabled()) profiler_ = std::make_unique<Profiler>(launch_);
  }

  // Runs all workgroups; profiled ones in order, on this thread.
  void run_all() {
    if (!profiler_) return ThreadPool::instance().run(workgroups(), run_workgroup, this);
    for (uint64_t i = 0; i < workgroups() && run_workgroup(i); ++i) {
    }
  }
  Profiler* profiler() { return profiler_.get(); }
  uint64_t workgroups() const { return uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2]; }
  static bool run_workgroup(void* self, uint64_t index) {
    return static_cast<Grid*>(self)->run_workgroup(index);
  }
  LaunchResult result;

 private:
  bool run_workgroup(uint64_t index);
  template <bool kChecked, bool kProfiled>
  void run_wave(Wave& w, WaveChecks* checks, uint64_t slice);
  template <bool kChecked, bool kProfiled>
  void run_indexed(Wave& w, WaveChecks* checks);
  bool out_of_budget(Wave& w);
  void start_checks(Arena& arena);
  bool run_until_barrier(Workgroup& group, Arena& arena, WaveOrder& order);
  void finish(const Workgroup& group, Arena& arena);

  Launch launch_;
  const uint32_t checks_;  // bits of enum Check
  const Schedule schedule_;
  LaunchWatch watch_;
  LaunchBlock block_;
  const uint64_t budget_;
  const uint32_t waves_, lds_bytes_;
  const uint64_t scratch_bytes_;        // of a wave
  std::unique_ptr<Profiler> profiler_;  // null: not profiled
  std::mutex mutex_;                    // of result
};

bool Grid::out_of_budget(Wave& w) {
  const bool runs = w.state == WaveState::kRunning || w.state == WaveState::kIndexed;
  if (!runs || w.instructions < budget_) return false;
  w.fault(*w.next, kLaunchTimeOut, "the wave has run %llu instructions (FMHA_EMU_MAX_INSTRUCTIONS)",
          static_cast<unsigned long long>(budget_));
  return true;
}

// A loop for each kind of launch, so that those that are neither checked nor profiled pay for neither.
template <bool kChecked, bool kProfiled>
void Grid::run_wave(Wave& w, WaveChecks* checks, uint64_t slice) {
  apply_mode(w.mode);
  const uint64_t end = w.instructions + std::min(slice, budget_ - w.instructions);
  if (w.mode >> Mode::kGprIndex & 1) [[unlikely]]
    w.state = WaveState::kIndexed;  // a barrier came among such instructions
  do {
    run_indexed<kChecked, kProfiled>(w, checks);
    while (w.state == WaveState::kRunning && w.instructions < end) {
      const Inst& inst = *w.next++;
      ++w.instructions;
      if (kChecked && !checks->before(w, inst)) return;
      if constexpr (kProfiled) {
        profiler_->run(w, inst);
      } else {
        inst.exec(w, inst);
      }
    }
  } while (w.state == WaveState::kIndexed && w.instructions < budget_);
  out_of_budget(w);
}

// From behind s_set_gpr_idx_on to behind s_set_gpr_idx_off.
template <bool kChecked, bool kProfiled>
void Grid::run_indexed(Wave& w, WaveChecks* checks) {
  while (w.state == WaveState::kIndexed && w.instructions < budget_) {
    const Inst& inst = *w.next++;
    Inst moved;
    ++w.instructions;
    if (kChecked && !checks->before(w, inst)) return;  // of the registers as written
    if (!move_registers(w, inst, &moved)) return;
    if constexpr (kProfiled) {
      profiler_->run(w, inst, moved);
    } else {
      moved.exec(w, moved);
    }
  }
}

void Grid::start_checks(Arena& arena) {
  const CodeObject& code = *launch_.code;
  arena.checks().reset(waves_, lds_bytes_, checks_, &code.facts(), code.text().insts.data(), code.arch());
}

// Runs every wave to its next barrier or its end; false when the workgroup is over.
bool Grid::run_until_barrier(Workgroup& group, Arena& arena, WaveOrder& order) {
  uint32_t running = 0, ended = 0;
  for (uint32_t i = 0; i < waves_; ++i) {
    Wave& w = arena.wave(i);
    if (w.state == WaveState::kDone) continue;
    w.state = WaveState::kRunning;  // the barrier it waits at is complete: waves that ended count as arrived
    running |= 1u << i;
  }
  const uint32_t began = running;
  while (running) {
    const uint32_t i = order.next(running);
    Wave& w = arena.wave(i);
    WaveChecks* checks = checks_ & kWaveChecks ? &arena.checks().wave(i) : nullptr;
    const auto run = checks      ? profiler_ ? &Grid::run_wave<true, true> : &Grid::run_wave<true, false>
                          : profiler_ ? &Grid::run_wave<false, true>
                                 : &Grid::run_wave<false, false>;
    (this->*run)(w, checks, order.slice());
    if (group.hip_error) return false;
    if (w.state != WaveState::kRunning) running &= ~(1u << i);
  }
  for (uint32_t i = 0; i < waves_; ++i) ended |= (arena.wave(i).state == WaveState::kDone ? 1u : 0u) << i;
  if (checks_ & kWaveChecks) arena.checks().barrier(ended);
  return (began & ~ended) != 0;
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
  group.checks = checks_;
  group.id[0] = static_cast<uint32_t>(index % launch_.grid[0]);
  group.id[1] = static_cast<uint32_t>(index / launch_.grid[0] % launch_.grid[1]);
  group.id[2] = static_cast<uint32_t>(index / launch_.grid[0] / launch_.grid[1]);
  group.lds = arena.lds();
  group.lds_bytes = lds_bytes_;
  fill_poison(group.lds, lds_bytes_);
  fill_poison(arena.scratch(), scratch_bytes_ * waves_);
  GlobalWatch watch(watch_, index);
  if (profiler_) profiler_->begin_workgroup(index);
  for (uint32_t i = 0; i < waves_; ++i) {
    Wave& w = arena.wave(i);
    w.group = &group;
    w.watch = watch_.needed() || profiler_ ? &watch : nullptr;
    w.profile = profiler_.get();
    w.id = i;
    w.scratch = arena.scratch() + i * scratch_bytes_;
    init_wave(w, launch_, block_, arena.scratch());
  }
  {
    MxcsrGuard guard;
    WaveOrder order(schedule_, index);
    if (checks_ & kWaveChecks) start_checks(arena);
    if (checks_ & (kCheckGlobalRace | kCheckGlobalDrain)) group.order = &arena.checks().global();
    while (run_until_barrier(group, arena, order)) {
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
  LaunchResult refused;
  uint32_t checks = 0;
  Schedule schedule;
  if (!checks_from_environment(&checks, &refused.message) ||
      !schedule_from_environment(&schedule, &refused.message)) {
    refused.hip_error = kInvalidValue;
    return refused;
  }
  try {
    Grid grid(launch, checks, schedule);
    grid.run_all();
    LaunchResult result = std::move(grid.result);
    result.stats.nanoseconds = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
            .count());
    if (Profiler* p = grid.profiler()) profile_keep(p->finish(result));
    return result;
  } catch (const std::bad_alloc&) {
    LaunchResult result;
    result.hip_error = kOutOfMemory;
    result.message = "kernel " + launch.kernel->name + ": no host memory for the launch";
    return result;
  }
}

}  // namespace fmha::emu

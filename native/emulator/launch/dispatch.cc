// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs the workgroups of a launch on the host's threads and the waves of a workgroup in turn, and tells the
// launch's observers (events.h) what happens. It knows none of them by name.
#include "launch/dispatch.h"

#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/cancel.h"
#include "base/environment.h"
#include "base/errors.h"
#include "base/mode.h"
#include "base/per_thread.h"
#include "core/dialect.h"
#include "core/wave.h"
#include "launch/gpr_index.h"
#include "launch/launch_state.h"
#include "launch/observers.h"
#include "launch/schedule.h"
#include "launch/thread_pool.h"

namespace fmha::emu {
namespace {

constexpr uint64_t kDefaultInstructionBudget = 1'000'000'000;
constexpr uint64_t kLook = 4096;  // instructions of a wave between two looks at whether it is cancelled
constexpr const char kCancelled[] = "cancelled: the program ends, or was interrupted while it waited";

// "kernel k, workgroup (1, 0, 2), wave 3, pc 0x… (k+0x1f0) `v_add_f32 v0, v1, v2`"
std::string where(const Wave& w, const Inst& inst) {
  const Workgroup& g = *w.group;
  const KernelCode& kernel = *g.launch->kernel;
  char text[256];
  std::snprintf(text, sizeof text,
                ", workgroup (%u, %u, %u), wave %u, pc 0x%" PRIx64 " (entry+0x%" PRIx64 ") `", g.id[0],
                g.id[1], g.id[2], w.id, inst.pc, inst.pc - kernel.entry);
  std::string s = "kernel " + kernel.name + text;
  s += inst.row ? disassemble(inst, g.launch->code->arch()) : std::string("?");
  return s + "`";
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

// The memory that a thread needs to run a workgroup; kept between workgroups and launches.
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
      Aligned<uint8_t> larger = allocate(scratch_bytes);
      memory_add({reinterpret_cast<uint64_t>(larger.get()), scratch_bytes, MemoryKind::kKernarg, device});
      if (scratch_) memory_remove(reinterpret_cast<uint64_t>(scratch_.get()));
      scratch_ = std::move(larger);
      scratch_bytes_ = scratch_bytes;
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
  Grid(const Launch& launch, const Schedule& schedule, const Observers& observers)
      : launch_(launch),
        observers_(observers),
        schedule_(schedule),
        block_(launch),
        budget_(instruction_budget()),
        waves_(waves_of(launch)),
        lds_bytes_(launch.kernel->lds_bytes + launch.dynamic_lds),
        scratch_bytes_(uint64_t{scratch_bytes_per_lane(launch)} * wave_size_of(launch)) {}

  void run_all() {
    const bool in_order = std::any_of(observers_.begin(), observers_.end(),
                                      [](const auto& observer) { return observer->in_order(); });
    if (!in_order) return ThreadPool::instance().run(workgroups(), run_workgroup, this);
    for (uint64_t i = 0; i < workgroups(); ++i) {
      if (!is_left_out(i) && !run_workgroup(i)) return;
    }
  }
  uint64_t workgroups() const { return uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2]; }
  static bool run_workgroup(void* self, uint64_t index) {
    return static_cast<Grid*>(self)->run_workgroup(index);
  }
  LaunchResult result;

 private:
  bool is_left_out(uint64_t index) const {
    return std::any_of(observers_.begin(), observers_.end(),
                       [index](const auto& observer) { return !observer->runs(index); });
  }
  bool run_workgroup(uint64_t index);
  bool prepare(Arena** arena, Workgroup& group, Listeners& listeners);
  void start_waves(Arena& arena, Workgroup& group, const Listeners& listeners);
  template <class Observers>
  void run_wave(Wave& w, const Observers& observers, uint64_t slice);
  template <class Observers>
  void run_indexed(Wave& w, const Observers& observers, uint64_t pause);
  bool must_stop(Wave& w);
  void refuse(int hip_error, const char* why);
  bool run_until_barrier(Workgroup& group, Arena& arena, WaveOrder& order, const Listeners& listeners);
  void finish(const Workgroup& group, Arena& arena);

  const Launch& launch_;
  const Observers& observers_;
  const Schedule schedule_;
  LaunchBlock block_;
  const uint64_t budget_;
  const uint32_t waves_, lds_bytes_;
  const uint64_t scratch_bytes_;  // of a wave
  std::mutex mutex_;              // of result
};

// Ends the launch for a reason that is not a wave's.
void Grid::refuse(int hip_error, const char* why) {
  std::lock_guard lock(mutex_);
  if (result.hip_error) return;
  result.message = "kernel " + launch_.kernel->name + ": " + why;
  result.hip_error = hip_error;
}

bool Grid::must_stop(Wave& w) {
  const bool runs = w.state == WaveState::kRunning || w.state == WaveState::kIndexed;
  if (!runs) return false;
  if (is_cancelled(launch_.asked_at)) return w.fault(*w.next, hipErrorLaunchTimeOut, "%s", kCancelled), true;
  if (w.instructions < budget_) return false;
  w.fault(*w.next, hipErrorLaunchTimeOut, "the wave has run %llu instructions (FMHA_EMU_MAX_INSTRUCTIONS)",
          static_cast<unsigned long long>(budget_));
  return true;
}

// Compiled twice: with Listeners, and with NoObservers for launches whose instructions nobody observes.
template <class Observers>
void Grid::run_wave(Wave& w, const Observers& observers, uint64_t slice) {
  apply_mode(w.mode);
  const uint64_t end = w.instructions + std::min(slice, budget_ - w.instructions);
  if (w.mode >> Mode::kGprIndex & 1) [[unlikely]]
    w.state = WaveState::kIndexed;  // a barrier came among such instructions
  do {
    const uint64_t look = w.instructions + kLook;
    run_indexed(w, observers, std::min(look, budget_));
    const uint64_t pause = std::min(look, end);
    while (w.state == WaveState::kRunning && w.instructions < pause) {
      const Inst& inst = *w.next++;
      ++w.instructions;
      if (!observers.before(w, inst)) return;
      inst.exec(w, inst);
      observers.after(w, inst);
    }
    if (must_stop(w)) return;
  } while (w.state == WaveState::kIndexed || (w.state == WaveState::kRunning && w.instructions < end));
}

// From behind s_set_gpr_idx_on to behind s_set_gpr_idx_off, or `pause` instructions of the wave.
template <class Observers>
void Grid::run_indexed(Wave& w, const Observers& observers, uint64_t pause) {
  while (w.state == WaveState::kIndexed && w.instructions < pause) {
    const Inst& inst = *w.next++;
    Inst moved;
    ++w.instructions;
    if (!observers.before(w, inst) || !move_registers(w, inst, &moved)) return;
    moved.exec(w, moved);
    observers.after(w, inst);
  }
}

// Runs every wave to its next barrier or its end; false when the workgroup is over.
bool Grid::run_until_barrier(Workgroup& group, Arena& arena, WaveOrder& order, const Listeners& listeners) {
  uint32_t running = 0, ended = 0;
  group.signals = 0;
  for (uint32_t i = 0; i < waves_; ++i) {
    Wave& w = arena.wave(i);
    if (w.state == WaveState::kDone) continue;
    w.state = WaveState::kRunning;  // the barrier it waits at is complete: waves that ended count as arrived
    running |= 1u << i;
  }
  const uint32_t began = running;
  const bool observed = listeners.events() & (kEventBefore | kEventAfter);
  while (running) {
    const uint32_t i = order.next(running);
    Wave& w = arena.wave(i);
    if (observed) {
      run_wave(w, listeners, order.slice());
    } else {
      run_wave(w, NoObservers(), order.slice());
    }
    if (group.hip_error) return false;
    if (w.state != WaveState::kRunning) running &= ~(1u << i);
  }
  for (uint32_t i = 0; i < waves_; ++i) ended |= (arena.wave(i).state == WaveState::kDone ? 1u : 0u) << i;
  listeners.all(kEventBarrier, [&](GroupObserver& o) { return o.barrier(ended), true; });
  return (began & ~ended) != 0;
}

// Gets what the workgroup needs of the host, and its observers; false: there is no memory for it.
bool Grid::prepare(Arena** arena, Workgroup& group, Listeners& listeners) {
  try {
    *arena = &per_thread<Arena>();
    (*arena)->reserve(waves_, lds_bytes_, scratch_bytes_ * waves_, launch_.device);
    for (const auto& observer : observers_) listeners.add(observer->begin(group), observer->events());
  } catch (const std::bad_alloc&) {
    refuse(hipErrorOutOfMemory, "no host memory for a workgroup");
    return false;
  }
  group.lds = (*arena)->lds();
  fill_poison(group.lds, lds_bytes_);
  fill_poison((*arena)->scratch(), scratch_bytes_ * waves_);
  return true;
}

void Grid::start_waves(Arena& arena, Workgroup& group, const Listeners& listeners) {
  for (uint32_t i = 0; i < waves_; ++i) {
    Wave& w = arena.wave(i);
    w.group = &group;
    w.events = listeners.events();
    w.listeners = &listeners;
    w.id = i;
    w.scratch = arena.scratch() + i * scratch_bytes_;
    init_wave(w, launch_, block_, arena.scratch());
  }
}

bool Grid::run_workgroup(uint64_t index) {
  if (is_cancelled(launch_.asked_at)) return refuse(hipErrorLaunchTimeOut, kCancelled), false;
  Workgroup group;
  group.launch = &launch_;
  group.where = where;
  group.text = &text_of(launch_);
  group.device = launch_.device;
  group.isa = arch_info(launch_.code->arch()).isa;
  group.index = index;
  group.id[0] = static_cast<uint32_t>(index % launch_.grid[0]);
  group.id[1] = static_cast<uint32_t>(index / launch_.grid[0] % launch_.grid[1]);
  group.id[2] = static_cast<uint32_t>(index / launch_.grid[0] / launch_.grid[1]);
  group.waves = waves_;
  group.lds_bytes = lds_bytes_;
  group.m0_lds_mask = dialect_of(group.isa).m0_lds_mask;
  group.is_rdna = is_rdna(group.isa);
  group.permutes_halves = dialect_of(group.isa).permutes_halves;
  Listeners listeners;
  Arena* arena_of_thread = nullptr;
  if (!prepare(&arena_of_thread, group, listeners)) return false;
  Arena& arena = *arena_of_thread;
  start_waves(arena, group, listeners);
  {
    MxcsrGuard guard;
    WaveOrder order(schedule_, index);
    while (run_until_barrier(group, arena, order, listeners)) {
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

uint64_t instruction_budget() {
  return environment_number("FMHA_EMU_MAX_INSTRUCTIONS", 1, UINT64_MAX, kDefaultInstructionBudget);
}

LaunchResult run(const Launch& launch) {
  const auto start = std::chrono::steady_clock::now();
  LaunchResult result;
  Schedule schedule;
  try {
    Observers observers;
    if (!observers_of(launch, &observers, &result.message) ||
        !schedule_from_environment(&schedule, &result.message)) {
      result.hip_error = hipErrorInvalidValue;
      return result;
    }
    Grid grid(launch, schedule, observers);
    grid.run_all();
    result = std::move(grid.result);
    result.stats.nanoseconds = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
            .count());
    for (const auto& observer : observers) observer->end(result);
  } catch (const std::bad_alloc&) {
    result = LaunchResult();
    result.hip_error = hipErrorOutOfMemory;
    result.message = "kernel " + launch.kernel->name + ": no host memory for the launch";
  }
  return result;
}

}  // namespace fmha::emu

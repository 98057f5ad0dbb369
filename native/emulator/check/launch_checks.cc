// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/launch_checks.h"

#include <cinttypes>

#include "base/per_thread.h"
#include "check/config.h"
#include "check/wave_checks.h"

namespace fmha::emu {
namespace {

// The checks of the workgroup that a thread runs; kept between workgroups, for the memory it holds.
class ThreadChecks final : public GroupObserver {
 public:
  void reset(const Workgroup& group, uint32_t checks, LaunchWatch& watch) {
    const bool waves = checks & kWaveChecks;
    if (waves) group_.reset(group, checks);
    const bool ordered = checks & (kCheckGlobalRace | kCheckGlobalDrain);
    watch_ = std::make_unique<GlobalWatch>(watch, group.index, ordered ? &group_.global() : nullptr);
  }

  bool before(Wave& w, const Inst& inst) override { return group_.wave(w.id).before(w, inst); }
  void after(Wave& w, const Inst& inst) override { group_.lds().settle_suspects(w, inst); }
  void barrier(uint32_t ended) override { group_.barrier(ended); }
  bool global(Wave& w, const Inst& inst, uint64_t address, uint32_t bytes, int lane) override {
    return watch_->check(w, inst, {address, bytes, lane, bytes});
  }
  // Lanes that access consecutive bytes are looked at together.
  bool global_lanes(Wave& w, const Inst& inst, uint64_t base, const uint32_t* offset, uint64_t lanes,
                    uint32_t bytes) override {
    while (lanes) {
      const int first = __builtin_ctzll(lanes);
      const int most = static_cast<int>(w.lanes);
      int end = first + 1;
      while (end < most && (lanes & uint64_t{1} << end) && offset[end] == offset[end - 1] + bytes) ++end;
      const uint64_t count = static_cast<uint64_t>(end - first);
      if (!watch_->check(w, inst, {base + offset[first], count * bytes, first, bytes})) return false;
      lanes &= end < most ? ~uint64_t{0} << end : 0;
    }
    return true;
  }
  bool scalar(Wave& w, const Inst& inst, uint64_t address) override {
    if (address % 4 == 0 || !watch_->wants(kCheckMisaligned)) return true;
    w.fault(inst, hipErrorMisalignedAddress,
            "scalar load of 0x%" PRIx64
            ", which is not a multiple of 4: the hardware drops the low bits; it is %s",
            address, memory_describe_nearest(address).c_str());
    return false;
  }

 private:
  GroupChecks group_;
  std::unique_ptr<GlobalWatch> watch_;
};

// AITER's kernels have hazards that are checked on demand only.
uint32_t of_kernel(const Launch& launch, uint32_t checks) {
  const bool shipped = launch.kernel->name.starts_with("_ZN5aiter");
  return shipped && !(checks & kCheckHazardsShipped) ? checks & ~kCheckHazards : checks;
}

}  // namespace

LaunchChecks::LaunchChecks(const Launch& launch, uint32_t checks)
    : launch_(launch), checks_(of_kernel(launch, checks)), watch_(checks, launch.read_only) {}

uint32_t LaunchChecks::events() const {
  return (checks_ & kWaveChecks ? kEventBefore | kEventBarrier : 0u) |
         (checks_ & (kCheckLdsRace | kCheckLdsRaceEqual) ? kEventAfter : 0u) |
         (watch_.needed() ? kEventGlobal | kEventScalar : 0u);
}

GroupObserver* LaunchChecks::begin(const Workgroup& group) {
  auto& checks = per_thread<ThreadChecks>();
  checks.reset(group, checks_, watch_);
  return &checks;
}

std::unique_ptr<LaunchObserver> make_checks(const Launch& launch, std::string* error) {
  uint32_t checks = 0;
  if (!checks_from_environment(&checks, error)) return nullptr;
  auto observer = std::make_unique<LaunchChecks>(launch, checks);
  if (!observer->events()) return nullptr;
  return observer;
}

}  // namespace fmha::emu

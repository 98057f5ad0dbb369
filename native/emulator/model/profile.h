// SPDX-License-Identifier: MIT OR Apache-2.0
// The profile of a launch: how often each instruction ran, the memory it asked for, and the traffic that the
// hardware would make of that. An observer (core/events.h) of launches that are profiled: it hears of every
// instruction and of every access to global memory, scratch and LDS. It asks for workgroups in order, so that
// the cache model always sees accesses in the same order.
//
// Counts are kept for each instruction of the text, and summed up by class at the end: a cycle model can
// build on them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "code/launch.h"
#include "core/events.h"
#include "model/cache_model.h"
#include "model/unit_shape.h"
#include "model/wave_trace.h"

namespace fmha::emu {

enum class InstClass : uint8_t {
  kValu,
  kTranscendental,
  kMfma,
  kSalu,
  kSmem,
  kLds,
  kVmemLoad,
  kVmemStore,
  kVmemAtomic,
  kBranch,
  kSync,   // s_barrier, s_waitcnt
  kOther,  // s_nop, s_endpgm, s_setprio, cache control, ...
};
constexpr int kInstClasses = 12;
const char* class_name(InstClass c);
InstClass class_of(const BoundRow& row);
// Type of the inputs of an MFMA: "f16", "bf16", "fp8_bf8", ...
std::string mfma_type(const MatrixShape& matrix);

// Waves a SIMD and workgroups a compute unit (or what stands for one: unit_shape.h) can hold of a kernel, and
// what keeps it from more.
struct Occupancy {
  uint32_t vgprs = 0;  // allocated, VGPRs and AccVGPRs
  uint32_t lds_bytes = 0;
  uint32_t waves_per_workgroup = 0;
  uint32_t workgroups_per_cu = 0, waves_per_simd = 0;
  const char* limit = "";  // "registers", "lds", "waves" or "workgroups"
};
Occupancy occupancy_of(const Launch& launch);

struct MemoryCounts {
  uint64_t load_bytes = 0, store_bytes = 0, atomic_bytes = 0;  // global, by the lanes of vector instructions
  uint64_t scalar_load_bytes = 0;
  uint64_t scratch_load_bytes = 0, scratch_store_bytes = 0;
  uint64_t lds_read_bytes = 0, lds_write_bytes = 0, lds_atomic_bytes = 0;
  uint64_t lds_cycles = 0, lds_conflict_cycles = 0;
};

using Json = nlohmann::ordered_json;
class LaunchTiming;  // launch_timing.h

// Hears of every instruction and every access, workgroup after workgroup.
class Profiler final : public LaunchObserver, public GroupObserver {
 public:
  explicit Profiler(const Launch& launch);
  ~Profiler() override;

  uint32_t events() const override;
  bool in_order() const override { return true; }
  bool runs(uint64_t workgroup) const override;
  GroupObserver* begin(const Workgroup& group) override;
  void end(const LaunchResult& result) override;  // keeps the record

  bool before(Wave& w, const Inst&) override {
    macs_ = w.mfma_macs;
    return true;
  }
  void after(Wave& w, const Inst& inst) override {
    Count& c = counts_[static_cast<size_t>(&inst - first_)];
    ++c.executed;
    c.macs += w.mfma_macs - macs_;
    if (touched_) settle(inst);
    if (timing_) time(w, inst);
  }
  bool global(Wave& w, const Inst& inst, uint64_t address, uint32_t bytes, int lane) override;
  void scratch(Wave& w, const Inst& inst, uint32_t bytes, int lane) override;
  void lds(Wave& w, const Inst& inst, const uint32_t* address, uint64_t lanes, uint32_t bytes) override;

 private:
  struct Count {
    uint64_t executed = 0, macs = 0;
  };
  struct Touched {
    uint64_t line;
    LineMask mask;
  };
  struct Lines {
    uint64_t read = 0, written = 0, any = 0;
  };
  struct LdsTouched {
    uint32_t address[kMostLanes];
    uint64_t lanes;
    uint32_t bytes;
  };
  std::string record(const LaunchResult& result);
  void settle(const Inst& inst);
  void settle_lds(const Inst& inst);
  void settle_line(const Touched& touched, AccessKind kind, bool vector);
  void time(const Wave& w, const Inst& inst);
  uint64_t place(uint64_t address);
  Lines count_lines() const;
  // Both add to the counts of a record.
  void write_instructions(Json& counted) const;
  void write_memory(Json& counted) const;

  const Launch& launch_;
  const UnitShape shape_;
  const Inst* first_;
  std::vector<Count> counts_;  // by index in the text
  uint64_t workgroup_ = 0;
  uint64_t macs_ = 0;  // of the wave, before the running instruction
  // Lines, and places in LDS, that the running instruction has touched (two a lane for ds_read2 and the
  // like).
  bool touched_ = false;
  std::vector<Touched> pending_;
  std::vector<LdsTouched> pending_lds_;
  MemoryCounts memory_;
  CacheModel caches_;
  std::unordered_map<uint64_t, uint8_t> lines_;  // by number: bit 0 read, bit 1 written
  // The model's addresses: allocations follow each other in the order in which they are first touched, so
  // that results do not depend on where the host put them.
  std::map<uint64_t, uint64_t> placed_;  // by base of the allocation: base in the model
  Allocation last_{};
  uint64_t last_base_ = 0, next_base_ = 0;
  uint64_t allocated_ = 0;  // bytes of these
  // The clock, if it was asked for, and what it needs to know of the running instruction.
  std::unique_ptr<LaunchTiming> timing_;
  PipeUse use_;
};

// Launches that start from now on are profiled, and the records of earlier ones dropped; or are not.
void enable_profile(bool on);
// The counts as a record has them.
Json json_of(const CacheCounts& c);
// The records of the launches that have ended, a JSON array.
std::string profile_records();

// The profiler of a launch; null if launches that start now are not profiled.
std::unique_ptr<LaunchObserver> make_profile(const Launch& launch, std::string* error);

}  // namespace fmha::emu

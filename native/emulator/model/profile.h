// SPDX-License-Identifier: MIT OR Apache-2.0
// What a launch did: how often each instruction ran, what memory it asked for, what that comes to on the
// hardware. Only exists for launches that are profiled; those run their workgroups one after the other, so
// that the order in which the cache model sees accesses is always the same.
//
// Counts are kept for each instruction of the text, and summed up by class at the end: a cycle model can
// stand on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/facts.h"
#include "core/dispatch.h"
#include "core/wave.h"
#include "model/cache_model.h"

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

// Waves a SIMD and workgroups a compute unit can hold of a kernel, and what keeps it from more.
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

class Json;  // profile_record.cc

class Profiler {
 public:
  explicit Profiler(const Launch& launch);

  void begin_workgroup(uint64_t index) { workgroup_ = index; }
  void run(Wave& w, const Inst& inst) { run(w, inst, inst); }
  // `as`: what runs in its place, with other registers.
  void run(Wave& w, const Inst& inst, const Inst& as) {
    const auto i = static_cast<size_t>(&inst - first_);
    const uint64_t macs = w.mfma_macs;
    if (const LdsAccess& a = facts_.detail(i).lds; a.kind != LdsAccess::kNone && w.exec()) lds(w, inst, a);
    as.exec(w, as);
    Count& c = counts_[i];
    ++c.executed;
    c.macs += w.mfma_macs - macs;
    if (touched_) settle(inst);
  }

  // Accesses made by the instruction that runs: of one lane (or of none: scalar loads), and of many.
  void global(const Wave& w, const Inst& inst, uint64_t address, uint32_t bytes);
  void global_lanes(const Wave& w, const Inst& inst, uint64_t base, const uint32_t* offset, uint64_t lanes,
                    uint32_t bytes);
  void scratch(const Inst& inst, uint32_t bytes);
  void flat_lds(uint32_t address, uint32_t bytes, int lane);

  // The record of the launch, as JSON. Call once, when all workgroups have run.
  std::string finish(const LaunchResult& result);

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
    uint32_t address[kLanes];
    uint64_t lanes;
    uint32_t bytes;
  };
  void lds(const Wave& w, const Inst& inst, const LdsAccess& access);
  void settle(const Inst& inst);
  void settle_lds(const Inst& inst);
  uint64_t place(uint64_t address);
  Lines count_lines() const;
  void write_instructions(Json& j) const;
  void write_memory(Json& j) const;

  const Launch& launch_;
  const TextFacts& facts_;
  const Inst* first_;
  std::vector<Count> counts_;  // by index in the text
  uint64_t workgroup_ = 0;
  // What the running instruction has touched: lines, and places in LDS (two a lane for ds_read2 and the
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
};

// Whether launches that start now are profiled.
bool profile_enabled();
// Keeps the record of a launch for fmha_emu_profile.
void profile_keep(const std::string& record);

}  // namespace fmha::emu

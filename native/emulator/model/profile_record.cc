// SPDX-License-Identifier: MIT OR Apache-2.0
// The profile as JSON, and the C functions that switch it on and give it out.
#include <mutex>

#include "core/copy_out.h"
#include "core/emu_tools.h"
#include "hip/state.h"
#include "model/json.h"
#include "model/launch_timing.h"
#include "model/profile.h"
#include "model/profile_lds.h"

namespace fmha::emu {

namespace {

std::atomic<bool> enabled{false};
std::mutex records_mutex;
std::string records;  // comma-separated

void keep(const std::string& record) {
  std::lock_guard lock(records_mutex);
  if (!records.empty()) records += ",\n";
  records += record;
}

void write_caches(Json& j, const CacheCounts& c) {
  j.open("caches");
  j.number("l2_requests", c.l2_requests).number("l2_hits", c.l2_hits);
  j.number("l2_fill_bytes", c.l2_fill_bytes).number("l2_writeback_bytes", c.l2_writeback_bytes);
  j.number("mall_hits", c.mall_hits).number("mall_misses", c.mall_misses);
  j.number("hbm_read_bytes", c.hbm_read_bytes).number("hbm_write_bytes", c.hbm_write_bytes);
  j.close();
}

void write_occupancy(Json& j, const Occupancy& o) {
  j.open("occupancy");
  j.number("vgprs", o.vgprs).number("lds_bytes", o.lds_bytes);
  j.number("waves_per_workgroup", o.waves_per_workgroup).number("workgroups_per_cu", o.workgroups_per_cu);
  j.number("waves_per_simd", o.waves_per_simd).string("limit", o.limit);
  j.close();
}

}  // namespace

std::unique_ptr<LaunchObserver> make_profile(const Launch& launch, std::string*) {
  if (!enabled.load(std::memory_order_relaxed)) return nullptr;
  return std::make_unique<Profiler>(launch);
}

void Profiler::end(const LaunchResult& result) { keep(record(result)); }

void Profiler::write_instructions(Json& j) const {
  uint64_t by_class[kInstClasses] = {}, total = 0;
  std::map<std::string, Count> matrix, matrix_type;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const Count& c = counts_[i];
    if (!c.executed) continue;
    total += c.executed;
    const BoundRow* row = first_[i].row;
    const InstClass k = row ? class_of(*row) : InstClass::kOther;
    by_class[static_cast<int>(k)] += c.executed;
    if (k != InstClass::kMfma) continue;
    for (Count* sum : {&matrix[row->mnemonic], &matrix_type[mfma_type(row->matrix)]}) {
      sum->executed += c.executed;
      sum->macs += c.macs;
    }
  }
  j.open("instructions").number("total", total);
  for (int k = 0; k < kInstClasses; ++k) j.number(class_name(static_cast<InstClass>(k)), by_class[k]);
  j.close();
  const auto write_matrix = [&](const char* name, const std::map<std::string, Count>& sums) {
    j.open(name);
    for (const auto& [key, c] : sums) {
      j.open(key.c_str()).number("count", c.executed).number("flops", 2 * c.macs).close();
    }
    j.close();
  };
  write_matrix("mfma", matrix);
  write_matrix("mfma_by_type", matrix_type);
}

void Profiler::write_memory(Json& j) const {
  const MemoryCounts& m = memory_;
  const Lines lines = count_lines();
  j.open("global").number("load_bytes", m.load_bytes).number("store_bytes", m.store_bytes);
  j.number("atomic_bytes", m.atomic_bytes).number("scalar_load_bytes", m.scalar_load_bytes);
  j.number("lines_touched", lines.any).number("lines_read", lines.read);
  j.number("lines_written", lines.written).close();
  j.open("scratch").number("load_bytes", m.scratch_load_bytes);
  j.number("store_bytes", m.scratch_store_bytes).close();
  j.open("lds").number("read_bytes", m.lds_read_bytes).number("write_bytes", m.lds_write_bytes);
  j.number("atomic_bytes", m.lds_atomic_bytes).close();
}

std::string Profiler::record(const LaunchResult& result) {
  caches_.end_kernel();
  Json j;
  j.open(nullptr).number("version", FMHA_EMU_PROFILE_VERSION).string("kernel", launch_.kernel->name);
  j.string("arch", arch_name(launch_.code->arch()));
  j.number("device", static_cast<uint64_t>(launch_.device)).triple("grid", launch_.grid);
  j.triple("block", launch_.block).number("hip_error", static_cast<uint64_t>(result.hip_error));
  j.open("counted");
  j.number("workgroups", result.stats.workgroups).number("waves", result.stats.waves);
  write_instructions(j);
  write_memory(j);
  j.close();
  j.open("modelled");
  j.open("lds").number("cycles", memory_.lds_cycles);
  j.number("conflict_cycles", memory_.lds_conflict_cycles).close();
  write_caches(j, caches_.counts());
  write_occupancy(j, occupancy_of(launch_));
  j.close();
  if (timing_ && !result.hip_error) timing_->write(j, allocated_);
  j.close();
  return j.text();
}

}  // namespace fmha::emu

using namespace fmha::emu;

int fmha_emu_profile_enable(int on) {
  if (on) {
    std::lock_guard lock(records_mutex);
    records.clear();
  }
  enabled.store(on != 0);
  return hipSuccess;
}

int fmha_emu_profile(char* out, size_t out_bytes) {
  std::lock_guard lock(records_mutex);
  return copy_out("[" + records + "]", out, out_bytes);
}

int fmha_emu_profile_constants(char* out, size_t out_bytes) {
  Json j;
  j.open(nullptr);
  for (const Constant Card::* member : kConstants) {
    const Constant& c = profile_card().*member;
    j.open(c.name).number("value", c.value).string("source", c.source).close();
  }
  j.close();
  return copy_out(j.text(), out, out_bytes);
}

int fmha_emu_cache_model(const fmha_emu_access* accesses, size_t count, char* out, size_t out_bytes) {
  int bytes = 0;
  const int error = guarded([&] {
    if (!accesses && count) return fail(hipErrorInvalidValue, "fmha_emu_cache_model: accesses is null");
    CacheModel model;
    for (size_t i = 0; i < count; ++i) {
      const fmha_emu_access& a = accesses[i];
      if (a.kind > FMHA_EMU_END_OF_KERNEL) {
        return fail(hipErrorInvalidValue, "fmha_emu_cache_model: accesses[%zu].kind is %u, expected 0 to 3",
                    i, a.kind);
      }
      const auto kind = static_cast<AccessKind>(a.kind);
      if (kind == AccessKind::kEndOfKernel) {
        model.end_kernel();
      } else {
        model.access_range(a.workgroup, a.address, a.bytes, kind);
      }
    }
    model.end_kernel();
    Json j;
    j.open(nullptr);
    write_caches(j, model.counts());
    j.close();
    bytes = copy_out(j.text(), out, out_bytes);
    return static_cast<int>(hipSuccess);
  });
  return error ? -error : bytes;
}

int fmha_emu_lds_cycles(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, int access,
                        uint32_t* groups, uint32_t* cycles) {
  if (!addresses || !groups || !cycles || bytes < 1 || bytes > 16 || access < 0 || access > 2) {
    return fail(hipErrorInvalidValue,
                "fmha_emu_lds_cycles: a null, or bytes %u outside 1 to 16, or access %d "
                "outside 0 to 2",
                bytes, access);
  }
  const ArchInfo& arch = device_arch();
  const UnitShape shape = unit_shape(arch, true, static_cast<uint32_t>(arch.wave_size));
  const LdsCycles c = lds_cycles(addresses, lanes, bytes, static_cast<LdsKind>(access), shape);
  *groups = c.groups;
  *cycles = c.cycles;
  return hipSuccess;
}

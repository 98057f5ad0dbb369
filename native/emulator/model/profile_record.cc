// SPDX-License-Identifier: MIT OR Apache-2.0
// The profile as JSON.
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/emu_tools.h"
#include "model/launch_timing.h"
#include "model/profile.h"

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

Json json_of(const Occupancy& o) {
  return {{"vgprs", o.vgprs},
          {"lds_bytes", o.lds_bytes},
          {"waves_per_workgroup", o.waves_per_workgroup},
          {"workgroups_per_cu", o.workgroups_per_cu},
          {"waves_per_simd", o.waves_per_simd},
          {"limit", o.limit}};
}

}  // namespace

Json json_of(const CacheCounts& c) {
  return {{"l2_requests", c.l2_requests},       {"l2_hits", c.l2_hits},
          {"l2_fill_bytes", c.l2_fill_bytes},   {"l2_writeback_bytes", c.l2_writeback_bytes},
          {"mall_hits", c.mall_hits},           {"mall_misses", c.mall_misses},
          {"hbm_read_bytes", c.hbm_read_bytes}, {"hbm_write_bytes", c.hbm_write_bytes}};
}

std::unique_ptr<LaunchObserver> make_profile(const Launch& launch, std::string*) {
  if (!enabled.load(std::memory_order_relaxed)) return nullptr;
  return std::make_unique<Profiler>(launch);
}

void Profiler::end(const LaunchResult& result) { keep(record(result)); }

void Profiler::write_instructions(Json& counted) const {
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
  Json& instructions = counted["instructions"] = {{"total", total}};
  for (int k = 0; k < kInstClasses; ++k) instructions[class_name(static_cast<InstClass>(k))] = by_class[k];
  const auto write_matrix = [&](const char* name, const std::map<std::string, Count>& sums) {
    Json& j = counted[name] = Json::object();
    for (const auto& [key, c] : sums) j[key] = {{"count", c.executed}, {"flops", 2 * c.macs}};
  };
  write_matrix("mfma", matrix);
  write_matrix("mfma_by_type", matrix_type);
}

void Profiler::write_memory(Json& counted) const {
  const MemoryCounts& m = memory_;
  const Lines lines = count_lines();
  counted["global"] = {{"load_bytes", m.load_bytes},     {"store_bytes", m.store_bytes},
                       {"atomic_bytes", m.atomic_bytes}, {"scalar_load_bytes", m.scalar_load_bytes},
                       {"lines_touched", lines.any},     {"lines_read", lines.read},
                       {"lines_written", lines.written}};
  counted["scratch"] = {{"load_bytes", m.scratch_load_bytes}, {"store_bytes", m.scratch_store_bytes}};
  counted["lds"] = {{"read_bytes", m.lds_read_bytes},
                    {"write_bytes", m.lds_write_bytes},
                    {"atomic_bytes", m.lds_atomic_bytes}};
}

std::string Profiler::record(const LaunchResult& result) {
  caches_.end_kernel();
  Json counted = {{"workgroups", result.stats.workgroups}, {"waves", result.stats.waves}};
  write_instructions(counted);
  write_memory(counted);
  const Json lds = {{"cycles", memory_.lds_cycles}, {"conflict_cycles", memory_.lds_conflict_cycles}};
  Json j = {
      {"version", FMHA_EMU_PROFILE_VERSION},
      {"kernel", launch_.kernel->name},
      {"arch", arch_name(launch_.code->arch())},
      {"device", launch_.device},
      {"grid", launch_.grid},
      {"block", launch_.block},
      {"hip_error", result.hip_error},
      {"counted", std::move(counted)},
      {"modelled",
       {{"lds", lds}, {"caches", json_of(caches_.counts())}, {"occupancy", json_of(occupancy_of(launch_))}}}};
  if (timing_ && !result.hip_error) j["time"] = timing_->json(allocated_);
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void enable_profile(bool on) {
  if (on) {
    std::lock_guard lock(records_mutex);
    records.clear();
  }
  enabled.store(on);
}

std::string profile_records() {
  std::lock_guard lock(records_mutex);
  return "[" + records + "]";
}

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/profile.h"

#include <algorithm>

#include "model/launch_timing.h"
#include "model/profile_lds.h"

namespace fmha::emu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint8_t kRead = 1, kWritten = 2;
// The L1 gives 64 bytes a cycle: assumed. AMD's CDNA 3 architecture white paper says that the bus from it is
// as wide as its line, 128 bytes, so this is on the slow side.
constexpr uint32_t kL1CyclesOfALine = static_cast<uint32_t>(kLineBytes / 64);

AccessKind access_kind(const Inst& inst) {
  if (inst.row->flags & kAtomic) return AccessKind::kAtomic;
  return inst.row->flags & kStore ? AccessKind::kWrite : AccessKind::kRead;
}

uint32_t round_up(uint32_t n, uint64_t to) { return static_cast<uint32_t>((n + to - 1) / to * to); }

}  // namespace

Occupancy occupancy_of(const Launch& launch) {
  const KernelCode& k = *launch.kernel;
  Occupancy o;
  const UnitShape shape = unit_shape(launch);
  const VgprFile file = vgpr_file(profile_card(), arch_info(launch.code->arch()), k.wave_size);
  o.vgprs = round_up(vgprs_of(k, arch_info(launch.code->arch())), file.granule);
  o.lds_bytes = round_up(k.lds_bytes + launch.dynamic_lds, profile_card().lds_granule_bytes.value);
  o.waves_per_workgroup = waves_of(launch);
  const auto by_registers = static_cast<uint32_t>(file.registers / o.vgprs);
  const uint32_t waves = std::min<uint32_t>(by_registers, profile_card().most_waves_per_simd.value);
  const auto room_for = [&](uint32_t waves_per_simd) {
    return shape.simds * waves_per_simd / o.waves_per_workgroup;
  };
  o.workgroups_per_cu = room_for(waves);
  o.limit = by_registers < profile_card().most_waves_per_simd.value ? "registers" : "waves";
  const uint64_t lds_bytes = profile_card().lds_bytes_per_cu.value * shape.units;
  if (o.lds_bytes && lds_bytes / o.lds_bytes < o.workgroups_per_cu) {
    o.workgroups_per_cu = static_cast<uint32_t>(lds_bytes / o.lds_bytes);
    o.limit = "lds";
  }
  // A workgroup of one wave needs no barrier.
  const auto most = static_cast<uint32_t>(profile_card().most_workgroups_per_cu.value * shape.units);
  if (o.waves_per_workgroup > 1 && most < o.workgroups_per_cu) {
    o.workgroups_per_cu = most;
    o.limit = "workgroups";
  }
  const uint32_t resident = o.workgroups_per_cu * o.waves_per_workgroup;
  o.waves_per_simd = round_up(resident, shape.simds) / shape.simds;
  return o;
}

Profiler::Profiler(const Launch& launch)
    : launch_(launch),
      shape_(unit_shape(launch)),
      first_(text_of(launch).insts.data()),
      counts_(text_of(launch).insts.size()) {
  const TimingRequest request = timing_request();
  if (request.on) timing_ = std::make_unique<LaunchTiming>(launch, request);
}

Profiler::~Profiler() = default;

uint32_t Profiler::events() const {
  return kEventBefore | kEventAfter | kEventGlobal | kEventScratch | kEventLds;
}

GroupObserver* Profiler::begin(const Workgroup& group) {
  workgroup_ = group.index;
  if (timing_) timing_->begin(group.index);
  return this;
}

bool Profiler::runs(uint64_t workgroup) const { return !timing_ || timing_->runs(workgroup); }

void Profiler::time(const Wave& w, const Inst& inst) {
  timing_->step(w.id, static_cast<uint32_t>(&inst - first_), use_, w.mfma_macs - macs_);
  use_ = PipeUse();
}

// The model's address of a device address.
uint64_t Profiler::place(uint64_t address) {
  if (address - last_.base >= last_.bytes) {
    if (!memory_find(address, &last_)) last_ = {address, 1, MemoryKind::kDevice, 0};  // not ours: as it is
    const auto [it, is_new] = placed_.try_emplace(last_.base, next_base_ + last_.base % kPage);
    if (is_new) {
      next_base_ = (it->second + last_.bytes + kPage - 1) / kPage * kPage;
      allocated_ += last_.bytes;
    }
    last_base_ = it->second;
  }
  return last_base_ + (address - last_.base);
}

bool Profiler::global(Wave& w, const Inst& inst, uint64_t address, uint32_t bytes, int lane) {
  const AccessKind kind = access_kind(inst);
  const uint64_t scratch = reinterpret_cast<uint64_t>(w.scratch);
  if (address - scratch < uint64_t{w.scratch_bytes} * w.lanes) {
    this->scratch(w, inst, bytes, lane);
    return true;
  }
  uint64_t& sum = inst.row->format == Format::kSmem ? memory_.scalar_load_bytes
                  : kind == AccessKind::kRead       ? memory_.load_bytes
                  : kind == AccessKind::kWrite      ? memory_.store_bytes
                                                    : memory_.atomic_bytes;
  sum += bytes;
  if (timing_ && kind == AccessKind::kAtomic) timing_->add(bytes);
  touched_ = true;
  uint64_t at = place(address);
  while (bytes) {
    const uint64_t first = at % kLineBytes, line = at / kLineBytes;
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(bytes, kLineBytes - first));
    // Neighbours mostly touch the line that was touched last.
    const auto same =
        std::find_if(pending_.rbegin(), pending_.rend(), [&](const Touched& t) { return t.line == line; });
    if (same != pending_.rend()) {
      same->mask |= line_mask(first, n);
    } else {
      pending_.push_back({line, line_mask(first, n)});
    }
    at += n;
    bytes -= n;
  }
  return true;
}

void Profiler::scratch(Wave&, const Inst& inst, uint32_t bytes, int) {
  (inst.row->flags & kStore ? memory_.scratch_store_bytes : memory_.scratch_load_bytes) += bytes;
}

void Profiler::settle(const Inst& inst) {
  touched_ = false;
  settle_lds(inst);
  const AccessKind kind = access_kind(inst);
  const uint8_t flags = kind == AccessKind::kRead    ? kRead
                        : kind == AccessKind::kWrite ? kWritten
                                                     : kRead | kWritten;
  for (const Touched& t : pending_) {
    lines_[t.line] |= flags;
    settle_line(t, kind, inst.row->format != Format::kSmem);
  }
  pending_.clear();
}

void Profiler::settle_line(const Touched& touched, AccessKind kind, bool vector) {
  const CacheLevel level = caches_.access(workgroup_, touched.line, touched.mask, kind);
  if (!timing_ || !timing_->recording() || !vector) return;
  use_.l1_cycles += kL1CyclesOfALine;
  const bool hit = kind == AccessKind::kRead && timing_->load(touched.line);
  if (!hit) timing_->request(kLineBytes);
  use_.level = std::max(use_.level, hit ? CacheLevel::kL1 : level);
}

void Profiler::lds(Wave& w, const Inst&, const uint32_t* address, uint64_t lanes, uint32_t bytes) {
  touched_ = true;
  LdsTouched t{{}, lanes, bytes};
  std::copy_n(address, w.lanes, t.address);
  pending_lds_.push_back(t);
}

void Profiler::settle_lds(const Inst& inst) {
  // Everything but DS and FLAT gets to LDS only by loading from memory to it.
  const bool direct = inst.row->format == Format::kDs || inst.row->format == Format::kFlat;
  const LdsKind kind = inst.row->flags & kAtomic             ? LdsKind::kAtomic
                       : inst.row->flags & kStore || !direct ? LdsKind::kWrite
                                                             : LdsKind::kRead;
  uint64_t& sum = kind == LdsKind::kAtomic  ? memory_.lds_atomic_bytes
                  : kind == LdsKind::kWrite ? memory_.lds_write_bytes
                                            : memory_.lds_read_bytes;
  for (const LdsTouched& t : pending_lds_) {
    sum += uint64_t{t.bytes} * static_cast<uint64_t>(__builtin_popcountll(t.lanes));
    const LdsCycles c = lds_cycles(t.address, t.lanes, t.bytes, kind, shape_);
    memory_.lds_cycles += c.cycles;
    memory_.lds_conflict_cycles += c.cycles - c.groups;
    use_.lds_cycles += c.cycles;
  }
  pending_lds_.clear();
}

Profiler::Lines Profiler::count_lines() const {
  Lines n;
  for (const auto& [line, flags] : lines_) {
    n.read += (flags & kRead) != 0;
    n.written += (flags & kWritten) != 0;
  }
  n.any = lines_.size();
  return n;
}

}  // namespace fmha::emu

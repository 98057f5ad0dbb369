// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/wave_checks.h"

#include <algorithm>

#include "base/errors.h"
#include "check/config.h"
#include "code/launch.h"
#include "core/dialect.h"

namespace fmha::emu {
namespace {

constexpr size_t kVector = static_cast<size_t>(Queue::kVector), kLds = static_cast<size_t>(Queue::kLds),
                 kFlat = static_cast<size_t>(Queue::kFlat);
constexpr uint32_t kLdsChecks = kCheckLdsUnwritten | kCheckLdsRace | kCheckLdsRaceEqual | kCheckWaits;

const char* counter_of(Queue queue) {
  switch (queue) {
    case Queue::kVector:
      return "vmcnt";
    case Queue::kFlat:
      return "vmcnt(0) lgkmcnt(0)";
    case Queue::kStore:
      return "vscnt";
    default:
      return "lgkmcnt";
  }
}

}  // namespace

void WaveChecks::reset(GroupChecks* group, uint32_t checks, const TextFacts* facts, const Launch& launch) {
  group_ = group;
  checks_ = checks;
  facts_ = facts;
  first_ = text_of(launch).insts.data();
  isa_ = arch_info(launch.code->arch()).isa;
  vector_count_ = store_count_ = lds_count_ = 0;
  progress = QueueProgress();
  for (auto& q : open_) q.clear();
  std::fill(std::begin(pending_), std::end(pending_), 0);
  hazards_.reset(facts, first_, launch.code->arch(), launch.kernel->wave_size, checks);
}

bool WaveChecks::before(Wave& w, const Inst& inst) {
  const auto index = static_cast<size_t>(&inst - first_);
  const Facts& f = facts_->hot(index);
  uint64_t loading = f.traits & kTooManyTrait, busy = loading;
  hazards_.arrive(static_cast<uint32_t>(index));
  for (int i = 0; i < f.words; ++i) {
    loading |= f.bits[i] & pending_[f.word[i]];
    busy |= f.bits[i] & hazards_.busy()[f.word[i]];
  }
  if (loading && !in_flight(w, inst, f, facts_->detail(index))) return false;
  if (busy && !hazards_.matrix(w, inst, f, facts_->detail(index))) return false;
  if (checks_ & kCheckHazards && !hazards_.step(w, inst, f, facts_->detail(index))) return false;
  if (f.traits & kWaitTrait) wait(inst);
  if (f.counted) return memory(w, inst, f);
  return true;
}

// A register is concerned that something in flight will write: look closely.
bool WaveChecks::in_flight(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  const auto find = [&](const RegisterRange* ranges, int n, bool writes) {
    for (size_t q = 0; q < kQueues; ++q) {
      // A later operation of a queue in order may overwrite the result of an earlier one.
      if (writes && f.counted && static_cast<size_t>(f.queue) == q && is_in_order(f.queue)) continue;
      for (const Flight& flight : open_[q]) {
        for (int i = 0; i < n; ++i) {
          if (!flight.loaded.count || !ranges[i].overlaps(flight.loaded)) continue;
          const Inst& load = first_[flight.inst];
          w.fault(inst, hipErrorLaunchFailure,
                  "missing wait: %s %s while the load of %s at pc 0x%llx `%s` is in flight; no s_waitcnt %s "
                  "covers it",
                  writes ? "writes" : "reads", to_string(ranges[i]).c_str(), to_string(flight.loaded).c_str(),
                  static_cast<unsigned long long>(load.pc),
                  disassemble(load, w.group->launch->code->arch()).c_str(),
                  counter_of(static_cast<Queue>(q)));
          return false;
        }
      }
    }
    return true;
  };
  return find(d.reads, d.n_reads, false) && find(d.writes, d.n_writes, true);
}

bool WaveChecks::memory(Wave& w, const Inst& inst, const Facts& f) {
  const auto index = static_cast<uint32_t>(&inst - first_);
  const FactsDetail& d = facts_->detail(index);
  Flight flight{index, progress.issued[static_cast<size_t>(f.queue)]++, 0, d.loaded};
  flight.stores = dialect_of(isa_).has_vscnt && inst.row->is(kStore | kAtomic) && !d.loaded.count;
  flight.writes_lds = d.lds.kind > LdsAccess::kRead || f.unit == Unit::kFlat;
  count(f.queue, &flight);
  const bool returns = d.lds.kind == LdsAccess::kAtomic && inst.dst.kind != OperandKind::kNone;
  if (returns) group_->global().signalled(w.id);
  if (checks_ & kLdsChecks && (d.lds.kind != LdsAccess::kNone || f.unit == Unit::kFlat)) {
    flight.stamp =
        group_->lds().stamp(w.id, index, f.queue, flight.sequence, d.lds.kind == LdsAccess::kAtomic);
    const bool fine = f.unit == Unit::kFlat ? flat(w, inst, flight.stamp) : lds(w, inst, d.lds, flight.stamp);
    if (!fine) return false;
  }
  issue(f.queue, flight);
  return true;
}

bool WaveChecks::lds(Wave& w, const Inst& inst, const LdsAccess& a, uint32_t stamp) {
  for (int place = 0; place < a.places; ++place) {
    if (!lds_place(w, inst, a, stamp, a.offset[place])) return false;
  }
  return true;
}

bool WaveChecks::lds_place(Wave& w, const Inst& inst, const LdsAccess& a, uint32_t stamp, uint32_t offset) {
  LdsShadow& shadow = group_->lds();
  const uint32_t* vaddr = w.vgpr[inst.src[0].index];
  const uint32_t limit = w.group->lds_bytes, m0 = w.m0_in_lds();
  const bool plain = a.kind != LdsAccess::kAtomic, read = a.kind == LdsAccess::kRead;
  if (plain && a.by_lane && !read && w.exec() == w.all_lanes && !((m0 + offset) & 3) &&
      limit >= m0 + offset + a.bytes * w.lanes) {
    const uint32_t bytes = a.bytes * w.lanes;
    uint32_t at = 0;  // of consecutive dwords
    for (; at < bytes && shadow.write16(stamp, m0 + offset + at); at += 16) {
    }
    if (at == bytes) return true;
  }
  for (uint64_t lanes = w.exec(); lanes; lanes &= lanes - 1) {
    const int l = __builtin_ctzll(lanes);
    const uint32_t address = a.by_lane ? m0 + offset + a.bytes * l : vaddr[l] + offset;
    if (address > limit || a.bytes > limit - address) return true;  // the instruction itself will say so
    if (plain && !(address & 3)) {
      if (a.bytes == 16 && (read ? shadow.read16(stamp, address) : shadow.write16(stamp, address))) continue;
      if (a.bytes == 4 && !read && shadow.write4(stamp, address)) continue;
    }
    if (!shadow.access(w, inst, a.kind, stamp, address, a.bytes, l)) return false;
  }
  return true;
}

// FLAT reaches LDS through an aperture.
bool WaveChecks::flat(Wave& w, const Inst& inst, uint32_t stamp) {
  const uint32_t flags = inst.row->flags;
  const LdsAccess::Kind kind = flags & kAtomic  ? LdsAccess::kAtomic
                               : flags & kStore ? LdsAccess::kWrite
                                                : LdsAccess::kRead;
  const uint32_t bytes = inst.row->bytes;
  for (uint64_t lanes = w.exec(); lanes; lanes &= lanes - 1) {
    const int l = __builtin_ctzll(lanes);
    const uint64_t address =
        (w.vgpr[inst.src[0].index][l] | static_cast<uint64_t>(w.vgpr[inst.src[0].index + 1][l]) << 32) +
        static_cast<int64_t>(inst.imm);
    const auto at = static_cast<uint32_t>(address);
    if (address >> 32 != kSharedApertureHi || at > w.group->lds_bytes || bytes > w.group->lds_bytes - at)
      continue;
    if (!group_->lds().access(w, inst, kind, stamp, at, bytes, l)) return false;
  }
  return true;
}

void WaveChecks::count(Queue queue, Flight* flight) {
  if (queue == Queue::kLds || queue == Queue::kFlat) flight->lds_before = lds_count_++;
  if (queue == Queue::kVector || queue == Queue::kStore || queue == Queue::kFlat)
    flight->before = flight->stores ? store_count_++ : vector_count_++;
}

void WaveChecks::issue(Queue queue, const Flight& flight) {
  const auto q = static_cast<size_t>(queue);
  if (!(checks_ & kCheckWaits)) {  // then everything counts as complete at once
    progress.done[q] = progress.issued[q];
    return;
  }
  open_[q].push_back(flight);
  set_bits(pending_, flight.loaded);
  const uint32_t most = queue == Queue::kLds ? kMaxLds : kMaxVector;
  if (is_in_order(queue) && open_[q].size() > most) {
    keep_last(queue, most);
    watch_pending();
  }
}

void WaveChecks::keep_last(Queue queue, size_t n) {
  const auto q = static_cast<size_t>(queue);
  auto& open = open_[q];
  if (open.size() > n) open.erase(open.begin(), open.end() - static_cast<std::ptrdiff_t>(n));
  progress.done[q] = progress.issued[q] - static_cast<uint32_t>(open.size());
}

// Keeps the operations of a queue that a counter of n may leave in flight. In RDNA the operations of a
// counter complete in order, FLAT ones among them; in CDNA the FLAT ones may be those that are left.
void WaveChecks::keep_uncovered(Queue queue, uint32_t n) {
  if (!is_rdna(isa_)) return keep_last(queue, n);
  const uint32_t issued = queue == Queue::kLds     ? lds_count_
                          : queue == Queue::kStore ? store_count_
                                                   : vector_count_;
  const auto& open = open_[static_cast<size_t>(queue)];
  const auto left = std::count_if(open.begin(), open.end(), [&](const Flight& f) {
    return issued - (queue == Queue::kLds ? f.lds_before : f.before) <= n;
  });
  keep_last(queue, static_cast<size_t>(left));
}

void WaveChecks::wait_flat(const Waits& waits) {
  const bool in_order = is_rdna(isa_);
  const auto covers = [&](uint32_t n, uint32_t later) { return n == 0 || (in_order && later >= n); };
  for (Flight& f : open_[kFlat]) {
    const uint32_t vector = f.stores ? waits.stores : waits.vector;
    f.vector_done |= covers(vector, (f.stores ? store_count_ : vector_count_) - f.before - 1);
    f.lds_done |= covers(waits.lds, lds_count_ - f.lds_before - 1);
  }
  std::erase_if(open_[kFlat], [](const Flight& f) { return f.vector_done && f.lds_done; });
  if (open_[kFlat].empty()) progress.done[kFlat] = progress.issued[kFlat];
}

void WaveChecks::wait(const Inst& inst) {
  const Waits waits = waits_of(inst, isa_);
  keep_uncovered(Queue::kVector, waits.vector);
  keep_uncovered(Queue::kStore, waits.stores);
  keep_uncovered(Queue::kLds, waits.lds);
  if (waits.scalars == 0) keep_last(Queue::kScalar, 0);
  wait_flat(waits);
  watch_pending();
}

void WaveChecks::watch_pending() {
  std::fill(std::begin(pending_), std::end(pending_), 0);
  for (const auto& q : open_) {
    for (const Flight& f : q) set_bits(pending_, f.loaded);
  }
}

void WaveChecks::at_barrier(bool ended) {
  for (size_t q = 0; q < kQueues; ++q) {
    if (ended) keep_last(static_cast<Queue>(q), 0);  // the hardware completes what an ended wave began
    progress.published[q] = progress.done[q];
    progress.arrived[q] = progress.issued[q];
  }
}

uint32_t WaveChecks::oldest_open() const {
  uint32_t oldest = 0;
  for (const auto& q : open_) {
    for (const Flight& f : q) {
      if (f.writes_lds && (!oldest || f.stamp < oldest)) oldest = f.stamp;
    }
  }
  return oldest;
}

void GroupChecks::reset(const Workgroup& group, uint32_t checks) {
  const Launch& launch = *group.launch;
  const TextFacts& facts = launch.code->facts(launch.kernel->wave_size);
  if (waves_.size() < group.waves) waves_.resize(group.waves);
  count_ = group.waves;
  std::vector<QueueProgress*> progress;
  for (uint32_t i = 0; i < count_; ++i) {
    waves_[i].reset(this, checks, &facts, launch);
    progress.push_back(&waves_[i].progress);
  }
  global_.reset(progress, checks);
  lds_.reset(group.lds_bytes, checks, std::move(progress));
}

void GroupChecks::barrier(uint32_t ended) {
  uint32_t oldest = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    waves_[i].at_barrier(ended >> i & 1);
    const uint32_t open = waves_[i].oldest_open();
    if (open && (!oldest || open < oldest)) oldest = open;
  }
  lds_.settle(oldest);
  global_.barrier();
}

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/time_wave.h"

#include <algorithm>

namespace fmha::emu {
namespace {

constexpr uint32_t kPriorityBits = 3;  // that s_setprio reads

Port port_of(const Inst& inst, Unit unit) {
  switch (unit) {
    case Unit::kMatrix:
      return Port::kMatrix;
    case Unit::kVector:
      return Port::kVector;
    case Unit::kLds:
      return Port::kLds;
    case Unit::kVectorMemory:
    case Unit::kFlat:
      return Port::kMemory;
    case Unit::kScalarMemory:
      return Port::kScalar;
    case Unit::kScalar:
      return inst.row->format == Format::kSopp ? Port::kInternal : Port::kScalar;
  }
  __builtin_unreachable();
}

bool is_set_priority(const Inst& inst) { return inst.row->immediate == Immediate::kPriority; }

}  // namespace

void TimedWave::begin(uint64_t slot) {
  free = slot;
  look();
}

void TimedWave::wait_until(uint64_t slot, Stall why) {
  if (slot <= earliest) return;
  earliest = slot;
  stall = why;
}

// When the next instruction is ready.
void TimedWave::look() {
  earliest = free;
  stall = Stall::kNone;
  if (over()) return;
  const uint32_t index = step().inst;
  const Inst& inst = first_[index];
  const Facts& f = facts_->hot(index);
  port_ = port_of(inst, f.unit);
  transcendental_ = f.unit == Unit::kVector && f.traits & kTransTrait;
  slots_ = slots_of(f);
  packed_ = f.unit == Unit::kVector && inst.row->dst == Type::kPkF32;
  wait_registers(f, facts_->detail(index));
  if (f.traits & kWaitTrait) wait_counters(inst);
  if (f.counted && f.unit != Unit::kScalarMemory) {
    if (f.unit != Unit::kLds && vector_.size() >= kMostVector)
      wait_until(vector_[vector_.size() - kMostVector], Stall::kMemory);
    if (f.unit == Unit::kLds && lds_.size() >= kMostLds)
      wait_until(lds_[lds_.size() - kMostLds], Stall::kLds);
  }
  if (stall == Stall::kMemory || stall == Stall::kLds || stall == Stall::kScalar)
    waited_latency += earliest - free;
}

void TimedWave::wait_registers(const Facts& f, const FactsDetail& d) {
  for (int i = 0; i < d.n_reads; ++i) {
    const RegisterRange& r = d.reads[i];
    // The accumulator of a chain is passed on within the matrix unit.
    const bool chained = f.unit == Unit::kMatrix && i == d.accumulator_read && r.first < kFirstScalar &&
                         written_[r.first] == r;
    const uint64_t* ready = chained ? ready_c_ : ready_;
    for (int k = r.first; k < r.first + r.count; ++k) wait_until(ready[k], Stall::kRegisters);
  }
  if (f.unit == Unit::kMatrix) return;  // they write in order
  for (int i = 0; i < d.n_writes; ++i) {
    const RegisterRange& r = d.writes[i];
    for (int k = r.first; k < r.first + r.count; ++k) wait_until(ready_[k], Stall::kRegisters);
  }
}

// Slots for which an instruction occupies its port.
uint32_t TimedWave::slots_of(const Facts& f) const {
  const auto whole = [this](TimingKey key) { return static_cast<uint32_t>(values_->whole(key)); };
  if (f.unit == Unit::kMatrix) {
    const uint32_t matrix = whole(TimingKey::kMatrixSlots);
    return matrix ? matrix : f.passes;
  }
  if (f.unit != Unit::kVector) return 1;
  return shape_->wave_slots * (transcendental_ ? whole(TimingKey::kTranscendentalSlots) : 1);
}

void TimedWave::wait_counters(const Inst& inst) {
  const Waits waits = waits_of(inst, shape_->isa);
  const auto keep = [this](const std::deque<uint64_t>& queue, uint32_t n, Stall why) {
    if (queue.size() > n) wait_until(queue[queue.size() - n - 1], why);
  };
  keep(vector_, waits.vector, Stall::kMemory);
  keep(stores_, waits.stores, Stall::kMemory);
  keep(lds_, waits.lds, Stall::kLds);
  if (waits.scalars == 0) wait_until(scalar_, Stall::kScalar);
}

// Slots from the instruction at hand to the wave's next one.
uint64_t TimedWave::gap(uint32_t index) const {
  const Inst& inst = first_[index];
  if (inst.row->immediate == Immediate::kWaitStates) return facts_->hot(index).wait_states;
  if (!inst.row->is(kBranch | kJump)) return 1;
  const bool taken = at_ + 1 < trace_->size() && (*trace_)[at_ + 1].inst != index + 1;
  return values_->whole(taken ? TimingKey::kTakenBranchSlots : TimingKey::kBranchSlots);
}

void TimedWave::write(const Facts& f, const FactsDetail& d, uint64_t now) {
  if (f.counted) return;  // s_waitcnt waits for these
  const bool matrix = f.unit == Unit::kMatrix;
  const uint64_t later = matrix                    ? values_->whole(TimingKey::kMatrixResultSlots)
                         : f.unit == Unit::kVector ? values_->whole(TimingKey::kVectorResultSlots)
                                                   : 0;
  const uint64_t done = now + slots_ + later;
  for (int i = 0; i < d.n_writes; ++i) {
    const RegisterRange& r = d.writes[i];
    for (int k = r.first; k < r.first + r.count; ++k) {
      ready_[k] = done;
      ready_c_[k] = matrix ? now + slots_ : done;
    }
    if (matrix && r.first < kFirstScalar) written_[r.first] = r;
  }
}

void TimedWave::issued(uint64_t now) {
  const uint32_t index = step().inst;
  const Inst& inst = first_[index];
  write(facts_->hot(index), facts_->detail(index), now);
  if (is_set_priority(inst)) priority = static_cast<uint32_t>(inst.imm) & kPriorityBits;
  free = now + std::max<uint64_t>(gap(index), 1);
  while (!vector_.empty() && vector_.front() <= now) vector_.pop_front();
  while (!stores_.empty() && stores_.front() <= now) stores_.pop_front();
  while (!lds_.empty() && lds_.front() <= now) lds_.pop_front();
  ++at_;
  if (!inst.row->is(kBarrier)) look();  // else when it leaves the barrier
}

void TimedWave::flight(const Inst& inst, Unit unit, uint64_t slot) {
  if (unit == Unit::kScalarMemory) {
    scalar_ = std::max(scalar_, slot);
    return;
  }
  const auto put = [slot](std::deque<uint64_t>& queue) {
    queue.push_back(queue.empty() ? slot : std::max(queue.back(), slot));
  };
  if (unit != Unit::kLds) put(queue_of(inst, shape_->isa) == Queue::kStore ? stores_ : vector_);
  if (unit == Unit::kLds || unit == Unit::kFlat) put(lds_);
}

uint64_t TimedWave::latency(CacheLevel level, bool store) const {
  if (store) return values_->whole(TimingKey::kStoreLatency);
  switch (level) {
    case CacheLevel::kNone:
    case CacheLevel::kL1:
      return values_->whole(TimingKey::kL1Latency);
    case CacheLevel::kL2:
      return values_->whole(TimingKey::kL2Latency);
    case CacheLevel::kMall:
      return values_->whole(TimingKey::kMallLatency);
    case CacheLevel::kHbm:
      return values_->whole(TimingKey::kHbmLatency);
  }
  __builtin_unreachable();
}

void TimedWave::leave_barrier(uint64_t slot) {
  waits_at_barrier = false;
  waited_barrier += slot - std::min(slot, free);
  const uint64_t from = free;
  free = std::max(free, slot);
  look();
  free = from;  // the time before counts as waited, not as busy
  if (stall == Stall::kNone) stall = Stall::kBarrier;
}

}  // namespace fmha::emu

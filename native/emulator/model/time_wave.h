// SPDX-License-Identifier: MIT OR Apache-2.0
// A wave in the model of a compute unit (time_cu.h): where it is, when its registers are written, what it has
// in flight.
#pragma once

#include <cstdint>
#include <deque>

#include "model/time_cu.h"

namespace fmha::emu {

// The ports of a SIMD, each for one instruction a slot. kInternal: s_nop, s_waitcnt, branches and the like
// need none.
enum class Port : uint8_t { kMatrix, kVector, kScalar, kLds, kMemory, kInternal };

class TimedWave {
 public:
  TimedWave(const WaveTrace& trace, const Inst* first, const TextFacts& facts, const TimingValues& values,
            const UnitShape& shape)
      : trace_(&trace), first_(first), facts_(&facts), values_(&values), shape_(&shape) {}

  // Its first instruction may issue at `slot`.
  void begin(uint64_t slot);
  bool over() const { return at_ == trace_->size(); }
  const TraceStep& step() const { return (*trace_)[at_]; }
  Port port() const { return port_; }
  uint32_t slots() const { return slots_; }  // for which the instruction occupies its port
  bool is_packed() const { return packed_; }
  bool is_transcendental() const { return transcendental_; }
  // The instruction is ready, and its port is not.
  void blocked(Stall why) { stall = why; }
  // Its instruction goes at `now`: books what it writes, and looks at the next one.
  void issued(uint64_t now);
  // A memory instruction completes at `slot`, but not before those in front of it.
  void flight(const Inst& inst, Unit unit, uint64_t slot);
  uint64_t latency(CacheLevel level, bool store) const;
  void leave_barrier(uint64_t slot);

  uint32_t id = 0, group = 0;
  uint32_t priority = 0;  // s_setprio
  uint64_t free = 0;      // when its last instruction let go of it
  uint64_t earliest = 0;  // when the next one is ready
  Stall stall = Stall::kNone;
  bool waits_at_barrier = false;
  uint64_t arrived_at = 0;
  // Slots that it waited for counters and barriers since its last matrix or vector instruction.
  uint64_t waited_latency = 0, waited_barrier = 0;

 private:
  static constexpr size_t kMostVector = 63, kMostLds = 15;  // that the counters count

  void look();
  void wait_until(uint64_t slot, Stall why);
  void wait_registers(const Facts& f, const FactsDetail& d);
  void wait_counters(const Inst& inst);
  void write(const Facts& f, const FactsDetail& d, uint64_t now);
  uint64_t gap(uint32_t inst) const;
  uint32_t slots_of(const Facts& f) const;

  const WaveTrace* trace_;
  const Inst* first_;
  const TextFacts* facts_;
  const TimingValues* values_;
  const UnitShape* shape_;
  size_t at_ = 0;
  Port port_ = Port::kInternal;
  uint32_t slots_ = 1;
  bool packed_ = false, transcendental_ = false;
  uint64_t ready_[kRegisters] = {};           // when a register may be read
  uint64_t ready_c_[kRegisters] = {};         // when a matrix instruction may read it as the same accumulator
  RegisterRange written_[kFirstScalar] = {};  // by first register: what a matrix instruction last wrote there
  std::deque<uint64_t> vector_, stores_, lds_;  // when what is in flight completes
  uint64_t scalar_ = 0;                         // the last of the scalar loads
};

}  // namespace fmha::emu

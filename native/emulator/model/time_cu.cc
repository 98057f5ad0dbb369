// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/time_cu.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "model/time_wave.h"

namespace fmha::emu {
namespace {

constexpr uint64_t kNever = ~uint64_t{0};

}  // namespace

const char* stall_name(Stall s) {
  constexpr const char* kNames[] = {"none", "registers", "port", "memory", "lds", "scalar", "barrier", "nop"};
  static_assert(std::size(kNames) == kStalls);
  return kNames[static_cast<size_t>(s)];
}

// One run: the state of the compute unit.
class CuModel::Run {
 public:
  Run(const CuModel& model, std::vector<IssueEvent>* events, size_t most)
      : first_(model.first_),
        facts_(model.facts_),
        values_(model.values_),
        shape_(model.shape_),
        events_(events),
        most_events_(most),
        queue_cycles_(values_.whole(TimingKey::kQueueCycles)),
        matrix_issue_(values_.whole(TimingKey::kMatrixIssueSlots)),
        transcendental_issue_(values_.whole(TimingKey::kTranscendentalIssueSlots)) {}

  CuTime run(const std::vector<WaveTrace>& traces, uint32_t copies);

 private:
  struct Simd {
    std::vector<uint32_t> waves;  // those that go first in front
    uint64_t matrix_free = 0, vector_free = 0, transcendental_free = 0;
    uint64_t packed_until = 0;
    uint64_t covered = 0;  // the matrix or the vector port is busy until then
  };
  // LDS and L1 of neighbouring SIMDs: cycles.
  struct Pipes {
    uint64_t lds_free = 0, l1_free = 0;
  };
  struct Group {
    uint32_t waves = 0, arrived = 0, ended = 0;
  };

  void start(const std::vector<WaveTrace>& traces, uint32_t copies);
  uint64_t step(Simd& simd, uint64_t now);
  uint64_t port_free(const Simd& simd, const TimedWave& w, uint64_t now) const;
  void issue(Simd& simd, TimedWave& w, uint64_t now);
  void count(Simd& simd, TimedWave& w, uint64_t now, uint32_t slots);
  Pipes& pipes_of(const TimedWave& w) { return pipes_[w.id % shape_.simds * shape_.pipes / shape_.simds]; }
  const Pipes& pipes_of(const TimedWave& w) const { return const_cast<Run*>(this)->pipes_of(w); }
  void memory(TimedWave& w, const TraceStep& step, const Facts& f, uint64_t now);
  void arrive(TimedWave& w, uint64_t now);
  void end(TimedWave& w, uint64_t now);
  void release(Group& group, uint64_t now);
  static void order(const std::vector<TimedWave>& waves, Simd& simd);

  const Inst* first_;
  const TextFacts& facts_;
  const TimingValues& values_;
  const UnitShape& shape_;
  std::vector<IssueEvent>* events_;
  const size_t most_events_;
  const uint64_t queue_cycles_, matrix_issue_, transcendental_issue_;
  std::vector<TimedWave> waves_;
  std::vector<Group> groups_;
  Simd simds_[kMostSimds];
  Pipes pipes_[kMostPipes];
  uint32_t live_ = 0;
  CuTime time_;
};

void CuModel::Run::order(const std::vector<TimedWave>& waves, Simd& simd) {
  std::stable_sort(simd.waves.begin(), simd.waves.end(), [&](uint32_t a, uint32_t b) {
    return waves[a].priority != waves[b].priority ? waves[a].priority > waves[b].priority : a < b;
  });
}

void CuModel::Run::start(const std::vector<WaveTrace>& traces, uint32_t copies) {
  // Workgroups come one after the other, so that copies do not run in step.
  constexpr uint64_t kApart = 64;
  groups_.resize(copies);
  waves_.reserve(copies * traces.size());
  for (uint32_t copy = 0; copy < copies; ++copy) {
    groups_[copy].waves = static_cast<uint32_t>(traces.size());
    for (const WaveTrace& trace : traces) {
      const auto id = static_cast<uint32_t>(waves_.size());
      waves_.emplace_back(trace, first_, facts_, values_, shape_);
      waves_.back().id = id;
      waves_.back().group = copy;
      waves_.back().begin(copy * kApart);
      simds_[id % shape_.simds].waves.push_back(id);
    }
  }
  live_ = static_cast<uint32_t>(waves_.size());
  for (TimedWave& w : waves_) {
    if (w.over()) end(w, 0);
  }
}

CuTime CuModel::Run::run(const std::vector<WaveTrace>& traces, uint32_t copies) {
  start(traces, copies);
  for (uint64_t now = 0; live_;) {
    uint64_t next = kNever;
    for (Simd& simd : std::span(simds_, shape_.simds)) next = std::min(next, step(simd, now));
    if (!live_ || next == kNever) break;
    now = std::max(next, now + 1);
  }
  return time_;
}

// Issues what a SIMD can in this slot; the next slot in which it may do something.
uint64_t CuModel::Run::step(Simd& simd, uint64_t now) {
  uint64_t next = kNever;
  uint32_t used = 0;  // a bit a port
  bool reorder = false;
  for (const uint32_t id : simd.waves) {
    TimedWave& w = waves_[id];
    if (w.over() || w.waits_at_barrier) continue;
    if (w.earliest > now) {
      next = std::min(next, w.earliest);
      continue;
    }
    const uint32_t port = 1u << static_cast<uint32_t>(w.port());
    const uint64_t free = used & port && w.port() != Port::kInternal ? now + 1 : port_free(simd, w, now);
    if (free > now) {
      w.blocked(Stall::kPort);
      next = std::min(next, free);
      continue;
    }
    used |= port;
    const uint32_t priority = w.priority;
    issue(simd, w, now);
    reorder |= w.priority != priority;
    if (!w.over() && !w.waits_at_barrier) next = std::min(next, w.earliest);
    next = std::min(next, now + 1);  // a barrier may have been released
  }
  if (reorder) order(waves_, simd);
  return next;
}

// When the pipe that the wave's next instruction needs takes it.
uint64_t CuModel::Run::port_free(const Simd& simd, const TimedWave& w, uint64_t now) const {
  const auto behind = [&](uint64_t pipe_free) {
    const uint64_t from = pipe_free > queue_cycles_ ? pipe_free - queue_cycles_ : 0;
    return (from + shape_.slot_cycles - 1) / shape_.slot_cycles;
  };
  const Pipes& pipes = pipes_of(w);
  switch (w.port()) {
    case Port::kMatrix:
      return std::max({simd.matrix_free, simd.packed_until, matrix_issue_ ? simd.vector_free : now});
    case Port::kVector:
      if (w.is_packed()) return std::max(simd.vector_free, simd.matrix_free);
      return w.is_transcendental() ? std::max(simd.vector_free, simd.transcendental_free) : simd.vector_free;
    case Port::kLds:
      return behind(pipes.lds_free);
    case Port::kMemory:
      return std::max(behind(pipes.l1_free), w.step().use.lds_cycles ? behind(pipes.lds_free) : now);
    default:
      return now;
  }
}

void CuModel::Run::count(Simd& simd, TimedWave& w, uint64_t now, uint32_t slots) {
  // Nothing ran since `covered`; this wave ends the gap, so what held it up explains the gap.
  if (now > simd.covered) {
    const uint64_t gap = now - simd.covered;
    const uint64_t latency = std::min(gap, w.waited_latency);
    time_.latency_slots += latency;
    time_.barrier_slots += std::min(gap - latency, w.waited_barrier);
  }
  w.waited_latency = w.waited_barrier = 0;
  simd.covered = std::max(simd.covered, now + slots);
}

void CuModel::Run::issue(Simd& simd, TimedWave& w, uint64_t now) {
  const TraceStep& step = w.step();
  const Facts& f = facts_.hot(step.inst);
  const uint32_t slots = w.slots();
  uint32_t port_slots = slots;
  if (events_ && events_->size() < most_events_) {
    events_->push_back({w.id, static_cast<uint32_t>(&simd - simds_), step.inst, now, slots,
                        static_cast<uint32_t>(now - w.free), now > w.free ? w.stall : Stall::kNone});
  }
  switch (w.port()) {
    case Port::kMatrix:
      simd.matrix_free = now + slots;
      if (matrix_issue_) simd.vector_free = now + matrix_issue_;
      time_.matrix_slots += slots;
      count(simd, w, now, slots);
      break;
    case Port::kVector:
      if (w.is_transcendental()) {
        simd.transcendental_free = now + slots;
        if (transcendental_issue_) port_slots = static_cast<uint32_t>(transcendental_issue_);
      }
      simd.vector_free = now + port_slots;
      if (w.is_packed()) simd.packed_until = now + slots;
      time_.vector_slots += port_slots;
      count(simd, w, now, slots);
      break;
    default:
      break;
  }
  if (f.counted) memory(w, step, f, now);
  time_.cycles = std::max(time_.cycles, (now + slots) * shape_.slot_cycles);
  const bool barrier = first_[step.inst].row->is(kBarrier);
  w.issued(now);
  if (w.over()) {
    end(w, now);
  } else if (barrier) {
    arrive(w, now);
  }
}

// A memory instruction: its turn at LDS and L1, and when it completes.
void CuModel::Run::memory(TimedWave& w, const TraceStep& step, const Facts& f, uint64_t now) {
  uint64_t done = now * shape_.slot_cycles;
  Pipes& pipes = pipes_of(w);
  const Inst& inst = first_[step.inst];
  if (f.unit == Unit::kScalarMemory) {
    w.flight(inst, f.unit, (done + values_.whole(TimingKey::kScalarLatency)) / shape_.slot_cycles);
    return;
  }
  const PipeUse& use = step.use;
  if (f.unit != Unit::kLds) {
    pipes.l1_free = std::max(pipes.l1_free, done) + use.l1_cycles;
    time_.l1_cycles += use.l1_cycles;
    done = pipes.l1_free + w.latency(use.level, inst.row->is(kStore));
  }
  if (use.lds_cycles || f.unit == Unit::kLds) {
    pipes.lds_free = std::max(pipes.lds_free, now * shape_.slot_cycles) + use.lds_cycles;
    time_.lds_cycles += use.lds_cycles;
    done = std::max(done, pipes.lds_free) + values_.whole(TimingKey::kLdsLatency);
  }
  w.flight(inst, f.unit, (done + shape_.slot_cycles - 1) / shape_.slot_cycles);
}

void CuModel::Run::arrive(TimedWave& w, uint64_t now) {
  Group& group = groups_[w.group];
  ++group.arrived;
  w.waits_at_barrier = true;
  w.arrived_at = now;
  release(group, now);
}

void CuModel::Run::end(TimedWave& w, uint64_t now) {
  --live_;
  Group& group = groups_[w.group];
  ++group.ended;
  release(group, now);
}

void CuModel::Run::release(Group& group, uint64_t now) {
  if (!group.arrived || group.arrived + group.ended < group.waves) return;
  group.arrived = 0;
  const uint64_t at = now + values_.whole(TimingKey::kBarrierSlots);
  const auto number = static_cast<uint32_t>(&group - groups_.data());
  for (TimedWave& w : waves_) {
    if (w.group == number && w.waits_at_barrier) w.leave_barrier(at);
  }
}

CuModel::CuModel(const Inst* first, const TextFacts& facts, const TimingValues& values,
                 const UnitShape& shape)
    : first_(first), facts_(facts), values_(values), shape_(shape) {}

CuTime CuModel::run(const std::vector<WaveTrace>& waves, uint32_t copies, std::vector<IssueEvent>* events,
                    size_t most_events) {
  return Run(*this, events, most_events).run(waves, copies);
}

}  // namespace fmha::emu

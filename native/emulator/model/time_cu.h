// SPDX-License-Identifier: MIT OR Apache-2.0
// How long a compute unit takes over workgroups whose waves' instructions are known.
//
// Time goes in slots: of four cycles on CDNA, whose SIMDs take as long for a wave, of one on RDNA, where the
// unit is a work-group processor (unit_shape.h). In a slot a SIMD issues at most one instruction of a wave
// and one of a port: matrix, vector, scalar, LDS, memory. Waves issue in their order, the wave with the
// higher priority first (s_setprio), then the older one. An instruction waits for
// - the registers it reads or writes, as far as matrix, vector and scalar instructions write them. Only
//   s_waitcnt waits for loads, as on the hardware;
// - its port: a matrix instruction occupies the matrix pipe for its passes, a transcendental one the vector
//   port for four slots; on RDNA that has a pipe of its own. Packed fp32 runs only while the matrix pipe is
//   idle (LLVM, isNeverCoissue);
// - the counters of s_waitcnt, s_nop, s_barrier.
// LDS moves 128 bytes a cycle and L1 64 for all four SIMDs, on RDNA for each two; requests queue before them,
// and a wave waits when the queue is full. Loads complete a latency behind their turn, in order. Not
// modelled: instruction fetch, register banks, forwarding within the vector unit.
#pragma once

#include <cstdint>
#include <vector>

#include "code/facts.h"
#include "model/timing_constants.h"
#include "model/unit_shape.h"
#include "model/wave_trace.h"

namespace fmha::emu {

// Why an instruction did not issue earlier.
enum class Stall : uint8_t { kNone, kRegisters, kPort, kMemory, kLds, kScalar, kBarrier, kNop };
constexpr size_t kStalls = 8;
const char* stall_name(Stall s);

// An instruction issued.
struct IssueEvent {
  uint32_t wave = 0, simd = 0, inst = 0;
  uint64_t slot = 0;
  uint32_t slots = 1, stalled = 0;  // how long it occupies its port, and how long it was held up
  Stall stall = Stall::kNone;
};

// The work of a compute unit, summed over its SIMDs.
struct CuTime {
  uint64_t cycles = 0;                            // to the end of the last wave
  uint64_t matrix_slots = 0, vector_slots = 0;    // of the ports
  uint64_t lds_cycles = 0, l1_cycles = 0;         // of the pipes
  uint64_t latency_slots = 0, barrier_slots = 0;  // neither matrix nor vector runs, for waits or barriers
};

class CuModel {
 public:
  // `first` is the text that the traces' instructions index.
  CuModel(const Inst* first, const TextFacts& facts, const TimingValues& values, const UnitShape& shape = {});

  // `copies` of a workgroup run side by side. Appends at most `most_events` events, if `events` is not null.
  CuTime run(const std::vector<WaveTrace>& waves, uint32_t copies, std::vector<IssueEvent>* events,
             size_t most_events);

 private:
  class Run;
  const Inst* first_;
  const TextFacts& facts_;
  const TimingValues values_;
  const UnitShape shape_;
};

}  // namespace fmha::emu

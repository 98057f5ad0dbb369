// SPDX-License-Identifier: MIT OR Apache-2.0
// Architectural state of a wave and of its workgroup, and the accessors through which instruction bodies
// touch memory. Checks live here and in memory.h, so that no body repeats them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "core/inst.h"
#include "core/memory.h"

namespace fmha::emu {

// The scalar registers that have names, by gfx9's operand numbers: they index Wave::sgpr on every arch.
enum SpecialReg : uint16_t {
  kFlatScratchLo = 102,
  kXnackMaskLo = 104,
  kVccLo = 106,
  kVccHi = 107,
  kM0 = 124,
  kExecLo = 126,
  kExecHi = 127,
  kNull = 128,  // what is written here is lost; reading it is a constant
};

// Upper halves of the addresses at which FLAT sees LDS and scratch. No user-space mapping lives there.
constexpr uint32_t kSharedApertureHi = 0x00010000;
constexpr uint32_t kPrivateApertureHi = 0x00020000;

// MODE register, as in rsrc1[19:12] of the kernel descriptor plus the bits s_setreg reaches.
struct Mode {
  static constexpr uint32_t kRound32 = 0, kRound64 = 2;    // 2 bits each: nearest even, +inf, -inf, zero
  static constexpr uint32_t kDenorm32 = 4, kDenorm64 = 6;  // bit 0 keeps inputs, bit 1 keeps outputs
  static constexpr uint32_t kDx10Clamp = 8, kIeee = 9;
  // No bit of the register, but of gfx12, which has neither of the two: it clamps NaNs to 0, and a signalling
  // NaN is a missing number to v_min_num and v_max_num.
  static constexpr uint32_t kMinimumNumber = 28;
  // The bits that no instruction reads or writes.
  static constexpr uint32_t hidden(uint32_t mode) {
    return mode >> kMinimumNumber & 1 ? 1u << kMinimumNumber | 1u << kDx10Clamp | 1u << kIeee : 0;
  }
  static constexpr uint32_t kGprIndex = 27;   // VGPR numbers are relative: gpr_index.h
  static constexpr uint32_t kForkDepth = 29;  // 3 bits: how many paths s_cbranch_*_fork has put aside
};

// The events that an observer may hear of: see events.h.
enum EventKind : uint32_t {
  kEventBefore = 1u << 0,
  kEventAfter = 1u << 1,
  kEventGlobal = 1u << 2,
  kEventScalar = 1u << 3,
  kEventScratch = 1u << 4,
  kEventLds = 1u << 5,
  kEventBarrier = 1u << 6,
};
constexpr uint32_t kEventCount = 7;
class Listeners;

// kIndexed: it runs, and its VGPR numbers are relative (gpr_index.h).
enum class WaveState : uint8_t { kRunning, kBarrier, kDone, kFaulted, kIndexed };

struct Workgroup;

// A wave of any size: arrays have room for kMostLanes, of which the first `lanes` are the wave's.
struct Wave {
  alignas(64) uint32_t vgpr[512][kMostLanes];  // 256 and up: AccVGPRs
  alignas(64) uint32_t tmp[4][4][kMostLanes];  // operands broadcast or modified: [source][dword][lane]
  alignas(64) uint32_t lane_mask[kMostLanes];  // EXEC spread out: ~0u or 0 a lane; see isa/lanes.h
  uint64_t lane_mask_of = 0;                   // the EXEC that lane_mask is spread from
  alignas(8) uint32_t sgpr[kNull + 16];        // by operand number: s0..s101, vcc, m0, exec, ...
  bool scc = false;
  bool signalled = false;  // the barrier, in its first part (gfx12)
  uint32_t mode = 0;       // see Mode
  WaveState state = WaveState::kRunning;
  const Inst* next = nullptr;  // the instruction that runs next
  Workgroup* group = nullptr;
  uint32_t id = 0;             // within the workgroup
  uint32_t lanes = 0;          // the wave size of its kernel
  uint64_t all_lanes = 0;      // a bit for each
  uint8_t* scratch = nullptr;  // lane l's private memory is at l * scratch_bytes
  uint32_t scratch_bytes = 0;
  uint64_t instructions = 0;  // executed, for statistics
  uint64_t mfma_macs = 0;     // multiply-adds done by MFMA
  MemoryCache memory;         // the allocations this wave touched last
  uint64_t clock = 0;         // what s_memtime reads: instructions of the launch so far
  uint32_t events = 0;        // those that somebody hears of: a set of EventKind
  const Listeners* listeners = nullptr;

  uint64_t sgpr64(int i) const {
    uint64_t v;
    std::memcpy(&v, &sgpr[i], 8);
    return v;
  }
  void set_sgpr64(int i, uint64_t v) { std::memcpy(&sgpr[i], &v, 8); }
  // The active lanes, a bit each. Instruction bodies, which know the wave size, use exec_mask()
  // (isa/lanes.h).
  uint64_t exec() const { return sgpr64(kExecLo) & all_lanes; }

  // Stops this wave and, through the workgroup, the launch. The message gets kernel, workgroup, wave, pc and
  // the instruction's text put in front of it.
  [[gnu::cold, gnu::format(printf, 4, 5)]] void fault(const Inst& inst, int hip_error, const char* format,
                                                      ...);

  // Host pointer for a device access of `bytes` at `address`, or nullptr after a fault that names address,
  // lane, pc and the nearest allocation.
  uint8_t* global(const Inst& inst, uint64_t address, uint32_t bytes, int lane) {
    if (uint8_t* p = memory.lookup(address, bytes)) [[likely]]
      return !hears(kEventGlobal) || tell_global(inst, address, bytes, lane) ? p : nullptr;
    return global_slow(inst, address, bytes, lane);
  }
  [[gnu::cold]] uint8_t* global_slow(const Inst& inst, uint64_t address, uint32_t bytes, int lane);

  // True if all of [address, address + bytes) lies in one allocation: then no lane need be checked again.
  bool global_covers(uint64_t address, uint64_t bytes) { return memory.lookup(address, bytes) != nullptr; }

  // Tells observers of an access that global_covers found inside, before it is made: `lanes` each touch
  // `bytes` at base + offset[lane]. False after a finding.
  bool global_allows(const Inst& inst, uint64_t base, const uint32_t* offset, uint64_t lanes,
                     uint32_t bytes) {
    return !hears(kEventGlobal) || tell_global_lanes(inst, base, offset, lanes, bytes);
  }

  // Telling observers (events.h); false after a finding. Callers ask hears() first.
  bool hears(EventKind e) const { return events & e; }
  bool tell_global(const Inst& inst, uint64_t address, uint32_t bytes, int lane);
  bool tell_global_lanes(const Inst& inst, uint64_t base, const uint32_t* offset, uint64_t lanes,
                         uint32_t bytes);
  bool tell_scalar(const Inst& inst, uint64_t address);
  void tell_scratch(const Inst& inst, uint32_t bytes, int lane);
  void tell_lds(const Inst& inst, const uint32_t* address, uint64_t lanes, uint32_t bytes);

  uint32_t m0_in_lds() const;
  // Pointer into LDS, or nullptr after a fault.
  uint8_t* lds(const Inst& inst, uint32_t address, uint32_t bytes, int lane);
};

struct Launch;  // code/launch.h

struct Workgroup {
  const Launch* launch = nullptr;
  // Kernel, workgroup, wave and instruction, as a message begins.
  std::string (*where)(const Wave& w, const Inst& inst) = nullptr;
  const DecodedText* text = nullptr;  // the code, as waves of this size read it
  int device = 0;
  Isa isa = Isa::kCdna3;
  uint64_t index = 0;  // in the grid
  uint32_t id[3] = {0, 0, 0};
  uint32_t waves = 0;
  uint32_t signals = 0;  // of the barrier's first part (gfx12), since the last barrier
  uint8_t* lds = nullptr;
  uint32_t lds_bytes = 0;
  uint32_t m0_lds_mask = 0xffff;  // the bits of M0 that say where in LDS
  bool is_rdna = false;
  bool permutes_halves = false;  // of Dialect
  std::string fault;             // the first one, in full
  int hip_error = 0;
};

inline uint32_t Wave::m0_in_lds() const { return sgpr[kM0] & group->m0_lds_mask; }

inline uint8_t* Wave::lds(const Inst& inst, uint32_t address, uint32_t bytes, int lane) {
  if (address <= group->lds_bytes && bytes <= group->lds_bytes - address) [[likely]]
    return group->lds + address;
  fault(inst, hipErrorIllegalAddress, "lane %d: LDS address 0x%x + %u is outside the workgroup's %u bytes",
        lane, address, bytes, group->lds_bytes);
  return nullptr;
}

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// The model of a compute unit against cycles counted by hand, one instruction after the other.
#include "model/time_cu.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "code/code_object.h"
#include "code/facts.h"

using namespace fmha::emu;

namespace {

// The text that all cases take their instructions from, as LLVM assembles it for gfx942.
enum Index : uint32_t {
  kMatrix,        // v_mfma_f32_32x32x8_f16 a[0:15], v[16:17], v[18:19], a[0:15]
  kOtherMatrix,   // the same with a[16:31]
  kSmallMatrix,   // v_mfma_f32_16x16x16_f16 a[0:3], v[16:17], v[18:19], a[0:3]
  kReadMatrix,    // v_accvgpr_read_b32 v20, a0
  kAdd,           // v_add_f32 v40, v41, v42
  kDependentAdd,  // v_add_f32 v40, v40, v42
  kExp,           // v_exp_f32 v40, v41
  kPackedAdd,     // v_pk_add_f32 v[40:41], v[42:43], v[44:45]
  kPriority,      // s_setprio 1
  kBarrierInst,   // s_barrier
  kRead,          // ds_read_b128 v[40:43], v1
  kWait,          // s_waitcnt lgkmcnt(0)
};
constexpr uint32_t kText[] = {
    0xd3cc8000, 0x04022510, 0xd3cc8010, 0x04422510, 0xd3cd8000, 0x04022510,
    0xd3d84014, 0x18000100, 0x02505529, 0x02505528, 0x7e504129, 0xd3b24028,
    0x1802592a, 0xbf8f0001, 0xbf8a0000, 0xd9fe0000, 0x28000001, 0xbf8cc07f,
};

constexpr uint64_t kSlot = UnitShape{}.slot_cycles;
constexpr uint64_t kBig = 8, kSmall = 4, kTranscendental = 4;  // slots of the ports
constexpr uint32_t kReadCycles = 8;                            // 64 lanes of 16 bytes, at 128 a cycle

// No latency and no cost but those that a case is about.
TimingValues exact() {
  TimingValues v;
  v.at(TimingKey::kQueueCycles) = 64;
  v.at(TimingKey::kTakenBranchSlots) = v.at(TimingKey::kBranchSlots) = v.at(TimingKey::kBarrierSlots) = 1;
  v.at(TimingKey::kMatrixResultSlots) = 4;
  v.at(TimingKey::kTranscendentalSlots) = kTranscendental;
  return v;
}

TimingValues exact_but(TimingKey key, double value) {
  TimingValues v = exact();
  v.at(key) = value;
  return v;
}

using Program = std::vector<Index>;

Program times(size_t n, const Program& part) {
  Program all;
  for (size_t i = 0; i < n; ++i) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Program operator+(Program a, const Program& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ComputeUnit {
 public:
  ComputeUnit()
      : text_(decode(Arch::kGfx942, 64, reinterpret_cast<const uint8_t*>(kText), sizeof kText, 0)),
        facts_(text_, Arch::kGfx942, 64) {}

  // One wave for each program; wave i is on SIMD i modulo 4.
  CuTime run(const std::vector<Program>& waves, const TimingValues& values = exact()) {
    std::vector<WaveTrace> traces;
    for (const Program& program : waves) {
      WaveTrace& trace = traces.emplace_back();
      for (const Index i : program) {
        TraceStep step;
        step.inst = i;
        if (i == kRead) step.use.lds_cycles = kReadCycles;
        trace.push_back(step);
      }
    }
    events.clear();
    return CuModel(text_.insts.data(), facts_, values).run(traces, 1, &events, 100000);
  }
  uint64_t slots(const std::vector<Program>& waves, const TimingValues& values = exact()) {
    return run(waves, values).cycles / kSlot;
  }
  // The slot in which a wave's last instruction goes.
  uint64_t last(uint32_t wave) const {
    uint64_t slot = 0;
    for (const IssueEvent& e : events) slot = e.wave == wave ? std::max(slot, e.slot) : slot;
    return slot;
  }
  const DecodedText& text() const { return text_; }

  std::vector<IssueEvent> events;

 private:
  DecodedText text_;
  TextFacts facts_;
};

// Two waves of SIMD 0: the first and the fifth of a workgroup.
std::vector<Program> pair(const Program& first, const Program& second) { return {first, {}, {}, {}, second}; }

TEST_CASE("text is what it says") {
  ComputeUnit unit;
  const char* const names[] = {"v_mfma_f32_32x32x8_f16",
                               "v_mfma_f32_32x32x8_f16",
                               "v_mfma_f32_16x16x16_f16",
                               "v_accvgpr_read",
                               "v_add_f32",
                               "v_add_f32",
                               "v_exp_f32",
                               "v_pk_add_f32",
                               "s_setprio",
                               "s_barrier",
                               "ds_read_b128",
                               "s_waitcnt"};
  CHECK_MESSAGE(unit.text().insts.size() == std::size(names) + 1, "instructions, and the end of the text");
  for (size_t i = 0; i < std::size(names); ++i) {
    const std::string text = disassemble(unit.text().insts[i], Arch::kGfx942);
    CHECK_MESSAGE(text.starts_with(names[i]), text);
  }
}

TEST_CASE("matrix instructions") {
  ComputeUnit unit;
  CHECK_MESSAGE(unit.slots({{kMatrix}}) == kBig, "one");
  CHECK_MESSAGE(unit.slots({{kMatrix, kMatrix, kMatrix}}) == 3 * kBig, "a chain");
  CHECK_MESSAGE(unit.slots({{kMatrix, kOtherMatrix, kMatrix}}) == 3 * kBig, "independent ones");
  CHECK_MESSAGE(unit.slots({{kSmallMatrix, kSmallMatrix}}) == 2 * kSmall, "small ones");
  // Other readers of the result wait for the passes and 4 slots.
  CHECK_MESSAGE(unit.slots({{kMatrix, kReadMatrix}}) == kBig + 4 + 1, "a result read");
  CHECK_MESSAGE(
      unit.slots({{kMatrix, kReadMatrix}}, exact_but(TimingKey::kMatrixResultSlots, 9)) == kBig + 9 + 1,
      "a result read, later");
  // Four SIMDs have a matrix pipe each, two waves of one SIMD share it.
  CHECK_MESSAGE(unit.slots({{kMatrix}, {kMatrix}, {kMatrix}, {kMatrix}}) == kBig, "on four SIMDs");
  CHECK_MESSAGE(unit.slots(pair({kMatrix}, {kMatrix})) == 2 * kBig, "on one SIMD");
  CHECK_MESSAGE(unit.run(pair({kMatrix}, {kMatrix})).matrix_slots == 2 * kBig, "slots of the pipe");
}

TEST_CASE("vector instructions") {
  ComputeUnit unit;
  CHECK_MESSAGE(unit.slots({times(10, {kAdd})}) == 10, "independent adds");
  CHECK_MESSAGE(unit.slots({times(10, {kDependentAdd})}) == 10, "a chain of adds");
  const TimingValues late = exact_but(TimingKey::kVectorResultSlots, 1);
  CHECK_MESSAGE(unit.slots({times(10, {kDependentAdd})}, late) == 19, "a chain whose results come late");
  CHECK_MESSAGE(unit.slots({times(3, {kExp})}) == 3 * kTranscendental, "exp");
  CHECK_MESSAGE(unit.slots({{kExp, kAdd}}) == kTranscendental + 1, "exp, add");
  CHECK_MESSAGE(unit.slots(pair(times(10, {kAdd}), times(10, {kAdd}))) == 20, "two waves' adds");
}

TEST_CASE("ports side by side") {
  ComputeUnit unit;
  // The wave of the matrix instructions needs no slot of the vector port.
  const Program matrix = {kMatrix, kOtherMatrix};
  CHECK_MESSAGE(unit.slots(pair(matrix, times(2 * kBig, {kAdd}))) == 2 * kBig, "adds beside matrix");
  CHECK_MESSAGE(unit.slots(pair(matrix, times(4, {kExp}))) == 2 * kBig, "exp beside matrix");
  // In one wave they follow each other, in order, and overlap.
  CHECK_MESSAGE(unit.slots({{kMatrix, kAdd, kAdd}}) == kBig, "adds behind matrix");
  CHECK_MESSAGE(unit.slots({{kAdd, kAdd, kMatrix}}) == 2 + kBig, "matrix behind adds");
  // Packed fp32 waits for the matrix pipe, and the matrix pipe for it.
  CHECK_MESSAGE(unit.slots({{kMatrix, kPackedAdd}}) == kBig + 1, "packed behind matrix");
  CHECK_MESSAGE(unit.slots({{kPackedAdd, kMatrix}}) == 1 + kBig, "packed, then matrix");
  CHECK_MESSAGE(unit.slots(pair(matrix, {kPackedAdd})) == 2 * kBig + 1, "packed beside matrix");
  // A matrix instruction that takes a slot of the vector port to issue.
  const TimingValues takes = exact_but(TimingKey::kMatrixIssueSlots, 1);
  CHECK_MESSAGE(unit.slots(pair(matrix, times(2 * kBig, {kAdd})), takes) == 2 * kBig + 2,
                "adds beside matrix that takes a slot");
}

// The wave with the higher priority goes first, though it is younger: its adds end before the other's.
TEST_CASE("priorities") {
  ComputeUnit unit;
  const Program adds = times(20, {kAdd});
  unit.run(pair(adds, adds));
  CHECK_MESSAGE(unit.last(0) == 19, "the older wave's last add");
  CHECK_MESSAGE(unit.last(4) == 39, "the younger wave's last add");
  unit.run(pair(adds, Program{kPriority} + adds));  // s_setprio goes in slot 0, beside an add
  CHECK_MESSAGE(unit.last(4) == 20, "the raised wave's last add");
  CHECK_MESSAGE(unit.last(0) == 39, "the other wave's last add");
}

TEST_CASE("barriers") {
  ComputeUnit unit;
  // Both arrive, the later one in slot 10, and go on one slot later.
  const auto waves = pair(times(10, {kAdd}) + Program{kBarrierInst, kAdd}, {kBarrierInst, kMatrix});
  CHECK_MESSAGE(unit.slots(waves) == 10 + 1 + kBig, "behind a barrier");
  CHECK_MESSAGE(unit.slots(waves, exact_but(TimingKey::kBarrierSlots, 5)) == 10 + 5 + kBig, "a slow barrier");
  // A wave that has ended is waited for no longer.
  CHECK_MESSAGE(unit.slots(pair({kAdd}, {kBarrierInst, kAdd})) == 2, "without the ended");
}

TEST_CASE("LDS is shared") {
  ComputeUnit unit;
  // n reads keep the pipe for 8 cycles each, whichever SIMD they come from; the wait sees the last one done.
  const Program reads = times(4, {kRead}) + Program{kWait};
  const uint64_t each = 4 * kReadCycles / kSlot;
  CHECK_MESSAGE(unit.slots({reads}) == each + 1, "one wave's reads");
  CHECK_MESSAGE(unit.slots({reads, reads}) == 2 * each + 1, "reads of two SIMDs");
  CHECK_MESSAGE(unit.slots({reads, reads, reads, reads}) == 4 * each + 1, "reads of four SIMDs");
  CHECK_MESSAGE(unit.run({reads, reads, reads, reads}).lds_cycles == 16 * kReadCycles, "cycles of the pipe");
  // 64 cycles of latency behind the turn.
  CHECK_MESSAGE(
      unit.slots({{kRead, kWait}}, exact_but(TimingKey::kLdsLatency, 64)) == (kReadCycles + 64) / kSlot + 1,
      "a latency");
}

}  // namespace

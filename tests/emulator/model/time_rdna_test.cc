// SPDX-License-Identifier: MIT OR Apache-2.0
// The model of a unit of RDNA against cycles counted by hand: as time_cu_test.cc, for what differs.
#include <doctest/doctest.h>

#include <iterator>
#include <string>
#include <vector>

#include "code/code_object.h"
#include "code/facts.h"
#include "model/time_cu.h"

using namespace fmha::emu;

namespace {

// The text that all cases take their instructions from, as LLVM assembles it for gfx1100.
enum Index : uint32_t {
  kAdd,           // v_add_f32 v40, v41, v42
  kDependentAdd,  // v_add_f32 v40, v40, v42
  kExp,           // v_exp_f32 v43, v41
  kMatrix,        // v_wmma_f32_16x16x16_f16 v[0:7], v[16:23], v[24:31], v[0:7]
  kRead,          // ds_load_b128 v[44:47], v1
  kWaitLds,       // s_waitcnt lgkmcnt(0)
  kStoreInst,     // global_store_b32 v[50:51], v52, off
  kWaitStores,    // s_waitcnt_vscnt null, 0x0
  kWaitLoads,     // s_waitcnt vmcnt(0)
};
constexpr uint32_t kText[] = {
    0x06505529, 0x06505528, 0x7e564b29, 0xcc404000, 0x1c023110, 0xdbfc0000,
    0x2c000001, 0xbf89fc07, 0xdc6a0000, 0x007c3432, 0xbc7c0000, 0xbf8903f7,
};
constexpr uint64_t kWmma = 32, kQuarter = 4, kStoreLatency = 100;
constexpr uint32_t kReadCycles = 4;  // 32 lanes of 16 bytes, at 128 a cycle

// No latency and no cost but those that a case is about.
TimingValues exact() {
  TimingValues v;
  v.at(TimingKey::kQueueCycles) = 64;
  v.at(TimingKey::kTakenBranchSlots) = v.at(TimingKey::kBranchSlots) = v.at(TimingKey::kBarrierSlots) = 1;
  v.at(TimingKey::kMatrixSlots) = kWmma;
  v.at(TimingKey::kTranscendentalSlots) = kQuarter;
  v.at(TimingKey::kTranscendentalIssueSlots) = 1;
  v.at(TimingKey::kStoreLatency) = kStoreLatency;
  return v;
}

TimingValues exact_but(TimingKey key, double value) {
  TimingValues v = exact();
  v.at(key) = value;
  return v;
}

using Program = std::vector<Index>;

Program times(size_t n, Index what) { return {n, what}; }

Program operator+(Program a, const Program& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Processor {
 public:
  explicit Processor(bool shares_lds, uint32_t lanes = 32)
      : shape_(unit_shape(arch_info(Arch::kGfx1100), shares_lds, lanes)),
        text_(decode(Arch::kGfx1100, 32, reinterpret_cast<const uint8_t*>(kText), sizeof kText, 0)),
        facts_(text_, Arch::kGfx1100, 32) {}

  // Cycles of one wave for each program; wave i is on SIMD i modulo the unit's.
  uint64_t cycles(const std::vector<Program>& waves, const TimingValues& values = exact()) const {
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
    return CuModel(text_.insts.data(), facts_, values, shape_).run(traces, 1, nullptr, 0).cycles;
  }
  const DecodedText& text() const { return text_; }

 private:
  UnitShape shape_;
  DecodedText text_;
  TextFacts facts_;
};

TEST_CASE("text is what it says") {
  const Processor unit(true);
  const char* const names[] = {"v_add_f32",    "v_add_f32", "v_exp_f32",        "v_wmma_f32_16x16x16_f16",
                               "ds_load_b128", "s_waitcnt", "global_store_b32", "s_waitcnt_vscnt",
                               "s_waitcnt"};
  CHECK_MESSAGE(unit.text().insts.size() == std::size(names) + 1, "instructions, and the end of the text");
  for (size_t i = 0; i < std::size(names); ++i) {
    const std::string text = disassemble(unit.text().insts[i], Arch::kGfx1100);
    CHECK_MESSAGE(text.starts_with(names[i]), text);
  }
}

TEST_CASE("vector instructions") {
  const Processor unit(true);
  CHECK_MESSAGE(unit.cycles({times(10, kAdd)}) == 10, "one a cycle");
  CHECK_MESSAGE(Processor(true, 64).cycles({times(10, kAdd)}) == 20, "waves of 64 take two");
  const TimingValues late = exact_but(TimingKey::kVectorResultSlots, 4);
  CHECK_MESSAGE(unit.cycles({{kAdd, kDependentAdd, kDependentAdd}}, late) == 11,
                "a result four cycles later");
  // The fifth wave is on the SIMD of the first.
  CHECK_MESSAGE(unit.cycles({{kAdd, kDependentAdd}, {}, {}, {}, {kAdd}}, late) == 6,
                "another wave fills the gaps");
}

TEST_CASE("transcendental ones have a pipe") {
  const Processor unit(true);
  CHECK_MESSAGE(unit.cycles({{kExp, kExp, kExp}}) == 3 * kQuarter, "one after the other");
  const std::vector<Program> pair = {{kExp}, {}, {}, {}, times(3, kAdd)};
  CHECK_MESSAGE(unit.cycles(pair) == kQuarter, "others go beside");
  const TimingValues alone = exact_but(TimingKey::kTranscendentalIssueSlots, kQuarter);
  CHECK_MESSAGE(unit.cycles(pair, alone) == kQuarter + 3, "or do not");
}

TEST_CASE("matrix instructions") {
  const Processor unit(true);
  CHECK_MESSAGE(unit.cycles({times(3, kMatrix)}) == 3 * kWmma, "a chain");
  const std::vector<Program> pair = {{kMatrix}, {}, {}, {}, times(30, kAdd)};
  CHECK_MESSAGE(unit.cycles(pair, exact_but(TimingKey::kMatrixIssueSlots, 1)) == kWmma, "others go beside");
  CHECK_MESSAGE(unit.cycles(pair, exact_but(TimingKey::kMatrixIssueSlots, kWmma)) == kWmma + 30, "or do not");
}

TEST_CASE("LDS of each pair") {
  const Processor whole(true), half(false);
  const Program reads = times(4, kRead) + Program{kWaitLds};
  const uint64_t each = 4 * kReadCycles;
  CHECK_MESSAGE(whole.cycles({reads, reads}) == 2 * each + 1, "reads of two SIMDs");
  CHECK_MESSAGE(whole.cycles({reads, reads, reads, reads}) == 2 * each + 1, "reads of four SIMDs");
  CHECK_MESSAGE(half.cycles({reads, reads, reads, reads}) == 4 * each + 1, "in CU mode there are two");
}

TEST_CASE("stores have a counter") {
  const Processor unit(false);
  CHECK_MESSAGE(unit.cycles({{kStoreInst, kWaitLoads}}) == 2, "loads are waited for");
  CHECK_MESSAGE(unit.cycles({{kStoreInst, kWaitStores}}) == kStoreLatency + 1, "stores are waited for");
}

}  // namespace

// SPDX-License-Identifier: MIT OR Apache-2.0
// The model of a unit of RDNA against cycles counted by hand: as time_cu_test.cc, for what differs.
#include <algorithm>
#include <cstdio>
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

int failures = 0;

void expect(const char* what, uint64_t got, uint64_t expected) {
  if (got == expected) return;
  std::fprintf(stderr, "%s: got %llu, expected %llu\n", what, static_cast<unsigned long long>(got),
               static_cast<unsigned long long>(expected));
  ++failures;
}

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

void text_is_what_it_says(const Processor& unit) {
  const char* const names[] = {"v_add_f32",    "v_add_f32", "v_exp_f32",        "v_wmma_f32_16x16x16_f16",
                               "ds_load_b128", "s_waitcnt", "global_store_b32", "s_waitcnt_vscnt",
                               "s_waitcnt"};
  expect("instructions, and the end of the text", unit.text().insts.size(), std::size(names) + 1);
  for (size_t i = 0; i < std::size(names); ++i) {
    const std::string text = disassemble(unit.text().insts[i], Arch::kGfx1100);
    expect(text.c_str(), text.starts_with(names[i]), true);
  }
}

void vector_instructions(const Processor& unit) {
  expect("one a cycle", unit.cycles({times(10, kAdd)}), 10);
  expect("waves of 64 take two", Processor(true, 64).cycles({times(10, kAdd)}), 20);
  const TimingValues late = exact_but(TimingKey::kVectorResultSlots, 4);
  expect("a result four cycles later", unit.cycles({{kAdd, kDependentAdd, kDependentAdd}}, late), 11);
  // The fifth wave is on the SIMD of the first.
  expect("another wave fills the gaps", unit.cycles({{kAdd, kDependentAdd}, {}, {}, {}, {kAdd}}, late), 6);
}

void transcendental_ones_have_a_pipe(const Processor& unit) {
  expect("one after the other", unit.cycles({{kExp, kExp, kExp}}), 3 * kQuarter);
  const std::vector<Program> pair = {{kExp}, {}, {}, {}, times(3, kAdd)};
  expect("others go beside", unit.cycles(pair), kQuarter);
  const TimingValues alone = exact_but(TimingKey::kTranscendentalIssueSlots, kQuarter);
  expect("or do not", unit.cycles(pair, alone), kQuarter + 3);
}

void matrix_instructions(const Processor& unit) {
  expect("a chain", unit.cycles({times(3, kMatrix)}), 3 * kWmma);
  const std::vector<Program> pair = {{kMatrix}, {}, {}, {}, times(30, kAdd)};
  expect("others go beside", unit.cycles(pair, exact_but(TimingKey::kMatrixIssueSlots, 1)), kWmma);
  expect("or do not", unit.cycles(pair, exact_but(TimingKey::kMatrixIssueSlots, kWmma)), kWmma + 30);
}

void lds_of_each_pair(const Processor& whole, const Processor& half) {
  const Program reads = times(4, kRead) + Program{kWaitLds};
  const uint64_t each = 4 * kReadCycles;
  expect("reads of two SIMDs", whole.cycles({reads, reads}), 2 * each + 1);
  expect("reads of four SIMDs", whole.cycles({reads, reads, reads, reads}), 2 * each + 1);
  expect("in CU mode there are two", half.cycles({reads, reads, reads, reads}), 4 * each + 1);
}

void stores_have_a_counter(const Processor& unit) {
  expect("loads are waited for", unit.cycles({{kStoreInst, kWaitLoads}}), 2);
  expect("stores are waited for", unit.cycles({{kStoreInst, kWaitStores}}), kStoreLatency + 1);
}

}  // namespace

int main() {
  const Processor processor(true), unit(false);
  text_is_what_it_says(processor);
  vector_instructions(processor);
  transcendental_ones_have_a_pipe(processor);
  matrix_instructions(processor);
  lds_of_each_pair(processor, unit);
  stores_have_a_counter(processor);
  return failures != 0;
}

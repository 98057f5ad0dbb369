// SPDX-License-Identifier: MIT OR Apache-2.0
// The facts that the checks need about each instruction. They are computed once a code object, so that the
// checked run loop tests only a few bits for most instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "code/code_object.h"
#include "code/queue.h"
#include "core/inst.h"

namespace fmha::emu {

// All registers in one numbering: the VGPRs, the AccVGPRs, then the scalar ones by operand number.
constexpr int kFirstScalar = 512, kRegisters = kFirstScalar + 128, kRegisterWords = kRegisters / 64;

// Halves are told apart only where an instruction leaves the other half of its register as it is.
enum Halves : uint8_t { kLowHalf = 1, kUpperHalf = 2, kBothHalves = 3 };

struct RegisterRange {
  uint16_t first = 0;
  uint8_t count = 0;
  uint8_t halves = kBothHalves;
  bool overlaps(const RegisterRange& o) const {
    return first < o.first + o.count && o.first < first + count && halves & o.halves;
  }
  bool operator==(const RegisterRange& o) const { return first == o.first && count == o.count; }
};
inline bool is_vector_register(const RegisterRange& r) { return r.first < kFirstScalar; }
// A bit a register: kRegisterWords words.
inline void set_bits(uint64_t* words, const RegisterRange& r) {
  const uint64_t bits = (uint64_t{1} << r.count) - 1;  // no range is longer than 32
  const uint32_t word = r.first / 64, shift = r.first % 64;
  words[word] |= bits << shift;
  if (shift + r.count > 64) words[word + 1] |= bits >> (64 - shift);
}
inline bool any_bits(const uint64_t* words, const RegisterRange& r) {
  const uint64_t bits = (uint64_t{1} << r.count) - 1;
  const uint32_t word = r.first / 64, shift = r.first % 64;
  if (words[word] & bits << shift) return true;
  return shift + r.count > 64 && words[word + 1] & bits >> (64 - shift);
}
// The assembler's name: "v[4:7]", "a3", "s[0:1]", "vcc".
std::string to_string(const RegisterRange& r);

enum class Unit : uint8_t { kScalar, kVector, kMatrix, kScalarMemory, kLds, kVectorMemory, kFlat };

// Properties that decide which rules an instruction can break, as producer or as consumer.
enum Trait : uint32_t {
  kTransTrait = 1u << 0,      // v_exp, v_rcp and the like
  kDppTrait = 1u << 1,        // reads other lanes' registers through DPP
  kDotTrait = 1u << 2,        // v_dot*
  kF64MatrixTrait = 1u << 3,  // v_mfma_f64_*
  kXdlTrait = 1u << 4,        // an MFMA of the XDL unit
  kHalfTrait = 1u << 5,       // writes part of its destination: SDWA dst_sel, op_sel[3]
  kBigStoreTrait = 1u << 6,   // stores more than 8 bytes a lane, without an SGPR offset
  kReadLaneTrait = 1u << 7,   // v_readlane, v_readfirstlane
  kLaneTrait = 1u << 8,       // these and v_writelane
  kDivFmasTrait = 1u << 9,    // reads VCC late
  kNeedsM0Trait = 1u << 10,   // reads M0 where the hardware does not wait for it
  kSetRegTrait = 1u << 11,
  kGetRegTrait = 1u << 12,
  kFma64Trait = 1u << 13,        // v_fma_f64, v_fmac_f64
  kReadsScalarTrait = 1u << 14,  // a vector instruction with an SGPR source
  kWritesScalarTrait = 1u << 15,
  kWaitTrait = 1u << 16,            // s_waitcnt and its kin
  kTooManyTrait = 1u << 17,         // touches more words of register bits than `touched` holds
  kBigStoreScalarTrait = 1u << 18,  // as kBigStoreTrait, but a buffer store with an SGPR offset
  kReadsVcczTrait = 1u << 19,       // VCCZ as an operand
  kReadsExeczTrait = 1u << 20,
  kSwapTrait = 1u << 22,  // v_permlane16_swap, v_permlane32_swap
  kBranchPairTrait =
      1u << 21,  // a branch, and behind it another: where a block ends in s_cbranch and s_branch
};

// How an instruction reaches LDS.
struct LdsAccess {
  enum Kind : uint8_t { kNone, kRead, kWrite, kAtomic, kLoadTo } kind = kNone;  // kLoadTo: buffer load to LDS
  uint8_t bytes = 0;                                                            // of a lane, at each place
  uint8_t places = 1;                                                           // 2: ds_read2 and the like
  bool by_lane = false;                                                         // at M0 + offset + 4 * lane
  uint32_t offset[2] = {0, 0};
};

// The facts that every step looks at: one cache line.
struct alignas(64) Facts {
  static constexpr int kWords = 6;
  uint64_t bits[kWords] = {};  // registers read or written, in word[i] of the register bits
  uint8_t word[kWords] = {};
  uint8_t words = 0;
  Unit unit = Unit::kScalar;
  uint32_t traits = 0;
  uint8_t wait_states = 1;       // that it counts for
  uint8_t passes = 0;            // of an MFMA
  bool counted = false;          // a memory instruction that a counter counts
  Queue queue = Queue::kVector;  // of a memory instruction
};

inline bool is_vector_alu(const Facts& f) { return f.unit == Unit::kVector || f.unit == Unit::kMatrix; }

// Does it wait until no VALU instruction has a VGPR to write: the field va_vdst of s_waitcnt_depctr?
inline bool waits_for_vgprs(const Inst& inst) {
  return inst.row->immediate == Immediate::kDependency && (inst.imm >> 12 & 15) == 0;
}

struct FactsDetail {
  RegisterRange reads[8], writes[4];
  uint8_t n_reads = 0, n_writes = 0;
  RegisterRange loaded;       // what a memory instruction writes when it completes
  RegisterRange accumulator;  // MFMA: the C operand
  int accumulator_read = -1;  // its place in `reads`
  LdsAccess lds;
};

// Does it write EXEC, or half of it?
bool writes_exec(const FactsDetail& d);

class TextFacts {
 public:
  TextFacts(const DecodedText& text, Arch arch, int wave_size);
  const Facts& hot(size_t i) const { return hot_[i]; }
  const FactsDetail& detail(size_t i) const { return detail_[i]; }

 private:
  std::vector<Facts> hot_;
  std::vector<FactsDetail> detail_;
};

}  // namespace fmha::emu

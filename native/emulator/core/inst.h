// SPDX-License-Identifier: MIT OR Apache-2.0
// The decoder's result: one Inst for each machine instruction, with its operands resolved. It points at the
// row of the instruction table that says what it is and does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "archs.h"

namespace fmha::emu {

struct Inst;
struct Wave;

// The primary encoding of an instruction. VOP1, VOP2 and VOPC ones also decode from their VOP3, SDWA and DPP
// forms.
enum class Format : uint8_t {
  kSop1,
  kSop2,
  kSopc,
  kSopp,
  kSopk,
  kSmem,
  kVop1,
  kVop2,
  kVopc,
  kVop3,   // VOP3A: modifiers on three sources
  kVop3b,  // VOP3 with a scalar destination (carry out, div_scale)
  kVop3p,  // packed and mixed-precision
  kMai,    // MFMA and AccVGPR moves
  kDs,
  kMubuf,
  kMtbuf,  // MUBUF with the data's format in the instruction
  kFlat,
  kGlobal,
  kScratch,
  kVopd,  // two VALU operations in one: Inst::dual
};

// How this very instruction was encoded; it gives the mnemonic its suffix.
enum class Encoding : uint8_t { kPlain, kVop3, kSdwa, kDpp, kVop3Dpp };
constexpr bool is_dpp(Encoding e) { return e >= Encoding::kDpp; }

// Type of an operand: its width, and how an inline constant or literal of it reads.
enum class Type : uint8_t {
  kNone,
  kI16,
  kF16,   // low half of a register
  kBf16,  // too
  kI32,
  kF32,
  kI64,
  kF64,
  kPkI16,
  kPkF16,   // two halves of a register
  kPkBf16,  // too
  kPkF32,   // two registers
  kMask,    // a bit a lane, in an SGPR pair (waves of 64) or one SGPR (32)
  kB96,
  kB128,
  kB192,
  kB256,
  kB512,
  kB1024,
};
constexpr int dwords_of(Type t) {
  switch (t) {
    case Type::kNone:
      return 0;
    case Type::kI64:
    case Type::kF64:
    case Type::kPkF32:
    case Type::kMask:
      return 2;
    case Type::kB96:
      return 3;
    case Type::kB128:
      return 4;
    case Type::kB192:
      return 6;
    case Type::kB256:
      return 8;
    case Type::kB512:
      return 16;
    case Type::kB1024:
      return 32;
    default:
      return 1;
  }
}

// Bits of Row::flags: properties of an instruction beside its operand types. Decoder, printer, checks and
// profile read these, and never a name.
using RowFlags = uint64_t;
enum RowFlag : RowFlags {
  // Operands.
  kReadsVcc = 1ull << 0,    // implicit VCC source in the e32 form; src2 in the e64 form (v_cndmask, v_addc).
                            // Other formats: reads VCC and does not say so (v_div_fmas, s_cbranch_vccz)
  kWritesVcc = 1ull << 1,   // implicit VCC destination in the e32 form; sdst in the e64 form (v_add_co)
  kReadsDst = 1ull << 2,    // the destination is a source too (fmac, writelane)
  kWritesExec = 1ull << 3,  // beside its destination (v_cmpx, s_and_saveexec)
  kScalarDst = 1ull << 4,   // VALU whose destination is an SGPR (readlane, readfirstlane, VOPC e64)
  kLiteralK = 1ull << 5,    // a mandatory literal, last (v_fmaak) or in the middle
  kLiteralMiddle = 1ull << 6,  // with kLiteralK: in the middle (v_fmamk)
  kHasModifiers = 1ull << 7,   // sources take neg and abs, the result clamp and omod (float VALU)
  kNoSrc = 1ull << 8,
  kWritesSrc0 = 1ull << 9,     // source 0 is a destination too (v_swap)
  kWritesM0 = 1ull << 10,      // without saying so (s_set_gpr_idx_on)
  kAccDst = 1ull << 11,        // the destination is an AccVGPR, whatever the encoding says (v_accvgpr_write)
  kAccSrc = 1ull << 12,        // source 0 is (v_accvgpr_read)
  kMixedSources = 1ull << 13,  // op_sel_hi makes each source f16 or f32 (v_fma_mix)
  kSelectsByte = 1ull << 14,   // op_sel[3:2] is the byte that is written (v_cvt_sr_fp8)
  kRegisterSrc = 1ull << 15,   // source 0 must be a register: an address, or one to count from (s_setpc)
  // Forms.
  kOneForm = 1ull << 16,        // VOP1 or VOP2 without VOP3, SDWA and DPP forms
  kNoSuffix = 1ull << 17,       // LLVM prints no _e32 or _e64
  kNoDstSel = 1ull << 18,       // the SDWA form has no destination select: it writes all (v_cvt_f32_fp8)
  kHalfConstants = 1ull << 19,  // the constants of source 1 are those of f16, though it is an i16 (v_ldexp)
  // Kind.
  kBranch = 1ull << 20,          // imm is a pc-relative target
  kJump = 1ull << 21,            // may go to an address in a register (s_setpc, s_cbranch_join)
  kBarrier = 1ull << 22,         // waits for the other waves
  kTranscendental = 1ull << 23,  // v_exp, v_rcp and the like: a unit of its own, at a quarter of the rate
  kDot = 1ull << 24,             // v_dot*
  kFma64 = 1ull << 25,           // v_fma_f64, v_fmac_f64
  kReadLane = 1ull << 26,        // one lane's value to an SGPR (v_readlane, v_readfirstlane)
  kWriteLane = 1ull << 27,       // v_writelane
  kRefused = 1ull << 28,  // exists, but what it does cannot be had here: exec stops the wave and says why
  // Memory.
  kLoad = 1ull << 29,
  kStore = 1ull << 30,
  kAtomic = 1ull << 31,
  kTwoOffsets = 1ull << 32,  // ds_read2 and the like: offset0 and offset1 are separate
  kStride64 = 1ull << 33,    // with kTwoOffsets: the offsets count 64 values, not one
  kByLane =
      1ull << 34,  // LDS at M0 + offset + 4 * lane (ds_read_addtid); memory at an SGPR's (global_load_addtid)
  kToLds = 1ull << 35,       // what is loaded goes to LDS (global_load_lds)
  kMayGoToLds = 1ull << 36,  // it does under the instruction's lds bit
  kHighHalf = 1ull << 37,    // the data is the upper half of the register (d16_hi)
  kCounted = 1ull << 38,     // vmcnt or lgkmcnt counts it, though it is no load, store or atomic
  kCacheControl = 1ull << 39,
  // Timing that software must see to.
  kNeedsM0 = 1ull << 40,  // reads M0, and the hardware does not wait for it
  kLateVcc = 1ull << 41,  // reads VCC late (v_div_fmas)
  // Constants.
  kTruthTable = 1ull << 43,     // the fields of modifiers are a table, in imm (v_bitop3)
  kOwnOpSel = 1ull << 45,       // op_sel[1:0] are no halves: fi and bound_ctrl (v_permlane16), a byte or a
                                // half of packed numbers (v_cvt_f32_fp8 of gfx12)
  kSignedLiteral = 1ull << 42,  // 64-bit sources are signed numbers: a literal is sign-extended (s_ashr_i64)
  // Lanes.
  kSwapsLanes = 1ull << 44,  // both registers' (v_permlane16_swap); op_sel[0] is fi, op_sel[1] bound_ctrl
  kPermlane = 1ull << 46,    // RDNA's v_permlane
  // Nothing.
  kVectorNop = 1ull << 47,
  // Modifiers.
  kNoResultModifiers = 1ull << 48,  // sources may have modifiers, the result has no clamp and no omod
  kSelectsSource = 1ull << 49,      // op_sel[0] is the half of source 0 that is read, though it is 32 bits
  kLoadsScales = 1ull << 50,        // v_mfma_ld_scale: its sources are scales, which op_sel picks bytes of
  kPlacesLate = 1ull << 51,         // with kSelectsByte: its byte is late even if it is the lowest
  // Mode.
  kSetsDenorms = 1ull << 52,  // s_denorm_mode
  kOfFloats = 1ull << 53,     // an atomic of memory's that MODE has a say in
  // Timing, again.
  kMad64 = 1ull << 54,  // v_mad_u64_u32, v_mad_i64_i32: in two parts, of which the second may read the first
  // Forms, again.
  kDppToo = 1ull << 55,  // from RDNA 3 on it has DPP, which other packed ones and other kOneForm have not
  // Modifiers, again.
  kSelectsShift = 1ull << 56,  // from RDNA 3 on op_sel[2] is the half of source 2 that is read (v_alignbit)
};

// The meaning of an immediate's 16 bits, or of the field that stands for them.
enum class Immediate : uint8_t {
  kNumber,
  kWaitCounts,  // s_waitcnt
  kStoreCount,  // s_waitcnt_vscnt
  kVectorCount,
  kLdsCount,
  kScalarCount,   // s_wait_kmcnt
  kLoadLdsCount,  // s_wait_loadcnt_dscnt: loads from bit 8, LDS from 0
  kStoreLdsCount,
  kHexadecimal,  // a number that LLVM prints so
  kDependency,   // s_waitcnt_depctr
  kDelay,        // s_delay_alu
  kWaitStates,   // s_nop
  kGprIndex,     // which operands s_set_gpr_idx_* makes relative
  kMessage,      // s_sendmsg
  kHwReg,        // s_getreg, s_setreg
  kSwizzle,      // ds_swizzle
  kProbe,        // s_atc_probe: what it asks for
  kLines,        // s_prefetch: how many, less one
  kExitCode,     // s_endpgm
  kPriority,     // s_setprio
  kVersion,      // s_version
};
// Does it say how many operations an instruction waits for?
constexpr bool is_wait(Immediate i) { return i >= Immediate::kWaitCounts && i <= Immediate::kStoreLdsCount; }

// Element type of A or B of a matrix instruction.
enum class Element : uint8_t {
  kNone,
  kF16,
  kBf16,
  kXf32,
  kF32,
  kF64,
  kI8,
  kI4,
  kFp8,
  kBf8,
  kF8F6F4
};  // the last: CBSZ and BLGP say which

// The sizes of a matrix instruction: D (m x m) += A (m x k) * B (k x m), `blocks` times.
struct MatrixShape {
  uint8_t m = 0, k = 0, blocks = 0;  // m = 0: no matrix instruction
  Element a = Element::kNone, b = Element::kNone;
  bool sparse = false;  // A holds two of every four elements along k (SMFMAC)
};

using Exec = void (*)(Wave&, const Inst&);

// Where a VOPD keeps what its first operation overwrites and its second reads: a register that no arch has
// which has VOPD.
constexpr uint16_t kVopdCopy = 511;

// One instruction, as a row of isa/{scalar,vector,matrix,memory}: what it is and does, on every arch that has
// it. How it is encoded is in the opcode tables (isa/opcodes.h). Adding one is a row, its name in an opcode
// table, and a test.
//
// The decoder reads a row by the format that the opcode table gives it:
// - VALU: src[i] types the sources as written; kNone ends them. kReadsVcc rows do not list the mask source:
//   Inst::src[2] is VCC (short, SDWA, DPP forms) or the SGPR pair of the VOP3 form. VOPC: dst is kMask.
//   kLiteralK: sources are the two registers; K is Inst::imm, and src[2] as a constant of type src[0].
// - DS: src = {address or kNone, data0 or kNone, data1 or kNone}; dst is what is loaded or returned.
// - MUBUF, MTBUF, FLAT, GLOBAL, SCRATCH: dst is what is loaded or returned, else kNone; src[0] is the data
//   stored or given to an atomic, else kNone (cmpswap: both values). Addresses are not in the row. An
//   atomic's row has dst set; without sc0 (glc) the instruction returns nothing and Inst::dst is kNone.
// - SMEM: dst, src[0] the type of sbase (kI64 for s_load, kB128 for s_buffer_load), kNone if there is none;
//   src[1] is the data stored or given to an atomic, as for MUBUF.
// - MFMA: src[2] is the accumulator, or the index register of SMFMAC (kReadsDst).
//
// When exec runs, Wave::next already points behind the instruction; a branch overwrites it.
struct Row {
  const char* mnemonic;  // as LLVM prints it, without _e32, _e64, _sdwa, _dpp
  Type dst;
  Type src[3];
  RowFlags flags;
  Exec exec;
  Immediate immediate = Immediate::kNumber;
  uint8_t bytes = 0;  // of a lane, at each of the places a memory instruction goes to; 0: its operands say
  MatrixShape matrix = {};

  bool is(RowFlags any) const { return (flags & any) != 0; }
};

// A row as an arch has it: under its name, encoded as the opcode table says.
struct BoundRow : Row {
  Format format;
  uint16_t opcode;  // VOP1, VOP2, VOPC: of the short form
  uint16_t index;   // of the row in isa_rows(wave size)
};

// Does it take half a register?
constexpr bool is_half(Type t) { return t == Type::kF16 || t == Type::kBf16 || t == Type::kI16; }

// Has a mask as its last source: VCC in the short form, any in the 64-bit one (v_cndmask, v_addc). Others
// that read VCC do not name it (v_div_fmas).
inline bool names_mask(const BoundRow& row) {
  const bool two_sources = row.format == Format::kVop3 && row.src[2] == Type::kNone;
  return row.is(kReadsVcc) && (row.format == Format::kVop2 || two_sources);
}

enum class OperandKind : uint8_t {
  kNone,
  kSgpr,     // index into Wave::sgpr: s0.., and vcc, m0, exec at their operand numbers on gfx9; kNull
  kVgpr,     // index into Wave::vgpr; 256 and up are the AccVGPRs
  kConst,    // inline constant or literal: value, and lanes
  kSpecial,  // apertures, vccz, execz, scc: index is the operand number
};

struct Operand {
  OperandKind kind = OperandKind::kNone;
  uint8_t dwords = 0;
  uint16_t index = 0;
  uint16_t encoded = 0;  // the operand number as encoded (255: literal), for the printer
  uint64_t value = 0;    // kConst: already expanded to the operand's type
  const uint32_t* lanes =
      nullptr;  // kConst of a vector instruction: value for kMostLanes lanes, dword j at +kMostLanes*j
};

// SDWA select codes: BYTE_0..3 = 0..3, WORD_0 = 4, WORD_1 = 5, DWORD = 6. Unused: PAD 0, SEXT 1, PRESERVE 2.
struct Sdwa {
  uint8_t dst_sel = 6, dst_unused = 0, src_sel[2] = {6, 6};
  uint8_t sext = 0;  // bit n: source n is sign-extended
};

struct Dpp {
  uint16_t ctrl = 0;
  uint8_t row_mask = 0xf, bank_mask = 0xf;
  bool bound_ctrl = false;
  bool fetch_inactive = false;  // inactive lanes can be read
  bool by8 = false;             // DPP8: `lanes` has three bits for each lane of eight
  uint32_t lanes = 0;
};

struct Inst {
  Exec exec = nullptr;
  const BoundRow* row = nullptr;  // null: not decodable; exec then stops the wave and says so; the two
                                  // words are in data.value, low word first
  uint64_t pc = 0;                // address in the loaded image
  uint8_t bytes = 4;
  Encoding encoding = Encoding::kPlain;

  Operand dst;     // vdst, sdst of SALU, vdata of loads
  Operand sdst;    // second, scalar destination (VOP3B, or VCC)
  Operand src[3];  // VALU: src0..2. Memory: see below
  // DS:      src[0] address, src[1] data0, src[2] data1
  // MUBUF:   src[0] vaddr, src[1] srsrc (4 SGPRs), src[2] soffset; stores' data is in `data`
  // FLAT...: src[0] vaddr, src[1] saddr; stores' data is in `data`
  // SMEM:    src[0] sbase, src[1] soffset; stores' data is in `data`
  Operand data;
  const Inst* scales = nullptr;  // v_mfma_scale: the v_mfma_ld_scale that it begins with
  const Inst* dual = nullptr;    // VOPD: the two operations, which read before either writes

  int32_t imm = 0;                   // simm16 (sign-extended), memory offset, literal K
  uint8_t offset0 = 0, offset1 = 0;  // kTwoOffsets. kProbe, kLines: offset0 is that
  int32_t target = -1;               // kBranch: index of the instruction jumped to, -1 outside the text

  uint8_t neg = 0, abs = 0;  // bit n: source n. VOP3P: neg is neg_lo
  uint8_t neg_hi = 0;        // VOP3P
  uint8_t op_sel = 0;        // bits 0..2 sources, bit 3 destination
  uint8_t op_sel_hi = 0;     // VOP3P, bits 0..2
  uint8_t omod = 0;          // 1: *2, 2: *4, 3: /2
  bool clamp = false;
  bool keeps_half = false;  // a 16-bit result leaves the other half of its register as it is
  Sdwa sdwa;
  Dpp dpp;

  bool offen = false, idxen = false, lds = false, gds = false;
  bool sc0 = false, sc1 = false, nt = false;   // glc, scc, slc on gfx90a
  uint8_t hint = 0, scope = 0;                 // gfx12: the fields th and scope
  uint8_t cbsz = 0, abid = 0, blgp = 0;        // MFMA
  uint8_t data_format = 0, number_format = 0;  // MTBUF
  uint8_t unified_format = 0;                  // the same on RDNA: unified_format.h
};

// Text decoded into records. Branch targets index `insts`.
struct DecodedText {
  std::vector<Inst> insts;
  std::vector<int32_t> index_of_dword;  // by (pc - base) / 4; -1: not the start of an instruction
  uint64_t base = 0;
  std::vector<std::unique_ptr<uint32_t[]>> constants;  // what Operand::lanes points at
  std::vector<std::unique_ptr<Inst[]>> duals;          // what Inst::dual and Inst::scales point at

  const Inst* at(uint64_t pc) const {
    const uint64_t d = (pc - base) / 4;
    if (pc < base || pc % 4 || d >= index_of_dword.size() || index_of_dword[d] < 0) return nullptr;
    return &insts[index_of_dword[d]];
  }
};

// Every arch runs waves of 64 lanes, and those whose waves have 32 if nobody asks for 64 run both: which, the
// kernel's descriptor says.
constexpr bool has_waves_of(const ArchInfo& info, int lanes) {
  return lanes == 64 || lanes == info.wave_size;
}
// A place for each arch and wave size.
constexpr int kWaveSizes = 2;
constexpr size_t place_of(Arch arch, int wave_size) {
  return static_cast<size_t>(arch) * kWaveSizes + (wave_size == 64 ? 1 : 0);
}

}  // namespace fmha::emu

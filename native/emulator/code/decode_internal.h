// SPDX-License-Identifier: MIT OR Apache-2.0
// The decoder's inner parts, shared by decode*.cc and disasm*.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "code/code_object.h"
#include "code/opcode_map.h"
#include "core/dialect.h"
#include "core/inst.h"
#include "isa/unified_format.h"

namespace fmha::emu {

// Operand numbers (9-bit source fields; the scalar ones also in 7- and 8-bit fields).
enum OperandCode : uint32_t {
  kOpVcc = 106,
  kOpTtmp = 108,  // ..123
  kOpM0 = 124,    // unless the dialect says 125: then null has this one
  kOpNull = 124,
  kOpOldNull = 125,  // where m0 kept its number
  kOpExec = 126,
  kOpInt = 128,  // 0, 1..64, then -1..-16
  kOpIntNegative = 193,
  kOpIntEnd = 209,
  kOpDpp8 = 233,
  kOpDpp8Inactive = 234,  // which reads inactive lanes too
  kOpAperture = 235,      // ..238
  kOpApertureEnd = 239,
  kOpFloat = 240,  // ..248
  kOpFloatEnd = 249,
  kOpSdwa = 249,
  kOpDpp = 250,
  kOpVccz = 251,
  kOpScc = 253,
  kOpLiteral = 255,
  kOpVgpr = 256,
};

// An inline constant (operand numbers 128..248) or literal, expanded to the operand's type. 64-bit types use
// all of it; 16-bit types have a zero high half; kB* types repeat the low dword.
uint64_t inline_constant(uint32_t code, Type type);
uint64_t literal_constant(uint32_t literal, Type type, bool is_signed);

// The part that all generations share: the walk, operands, and the scalar and vector ALU formats.
class Decoder {
 public:
  Decoder(Arch arch, int wave_size, const uint8_t* text, size_t bytes, uint64_t base, DecodedText* out)
      : map_(opcode_map(arch, wave_size)),
        dialect_(dialect_of(arch_info(arch).isa)),
        mask_dwords_(wave_size / 32),
        text_(text),
        bytes_(bytes),
        base_(base),
        out_(out) {}
  virtual ~Decoder() = default;

  // The instruction at byte `offset` of the text. An unknown encoding becomes an Inst without a row.
  Inst at(size_t offset);

 protected:
  // Each fills inst_ and returns false for reserved or unsupported encodings.
  virtual bool any() = 0;
  // The forms of VOP1, VOP2 and VOPC whose first source is no operand but a mark: SDWA, DPP. True if `code`
  // is one of them; *ok as the others.
  virtual bool extended(uint32_t code, bool* ok) = 0;
  virtual bool matrix() = 0;  // a VOP3P opcode of a matrix instruction
  bool scalar_alu();          // SOP1, SOP2, SOPC, SOPK and SOPP, whose places are everywhere the same
  bool short_vector();        // VOP1, VOP2, VOPC: the same
  bool sop1();
  bool sop2();
  bool sopc();
  bool sopp();
  bool sopk();
  bool vop1();
  bool vop2();
  bool vopc();
  bool vop3();
  bool vop3p();

  bool row(Space space, uint32_t opcode);
  uint32_t bits(int low, int count);  // of the first 64 bits of the instruction
  bool short_sources();
  bool short_source();  // of VOP1, VOP2 and VOPC: plain, SDWA or DPP
  bool short_register(uint32_t number, Type type, int n, Operand* out);
  bool implicit_vcc();
  bool sdwa();
  bool is_null(uint32_t code) const { return dialect_.has_null && code == kOpM0 + kOpOldNull - dialect_.m0; }
  bool writes_only_exec(const BoundRow& r) const { return dialect_.has_null && r.is(kWritesExec); }  // v_cmpx
  bool vop3_destinations();
  bool vop3_sources();
  bool mix_sources();
  void check_modifiers();  // neg, abs, omod and op_sel only if the row takes them
  void keep_half();        // what a 16-bit result does to its register

  bool scalar(uint32_t code, int dwords, Operand* out);
  bool vector(uint32_t n, int dwords, bool acc, Operand* out);
  bool source(uint32_t code, Type type, Operand* out);
  bool literal(Type type, Operand* out);
  bool constant(uint32_t code, uint64_t value, Type type, Operand* out);
  const uint32_t* lanes_of(uint32_t low, uint32_t high, int dwords);  // even dwords low, odd ones high
  bool is_vector() const { return inst_.row->format >= Format::kVop1; }
  int dwords(Type t) const { return t == Type::kMask ? mask_dwords_ : dwords_of(t); }
  uint32_t second() const { return static_cast<uint32_t>(word_ >> 32); }

  const OpcodeMap& map_;
  const Dialect dialect_;
  const int mask_dwords_;
  const uint8_t* text_;
  size_t bytes_;
  uint64_t base_;
  DecodedText* out_;
  Inst inst_;
  uint64_t word_ = 0;   // the first two dwords; zero past the end of the text
  uint32_t third_ = 0;  // the one after
  size_t left_ = 0;     // bytes of the text from there on
  bool literal_allowed_ = false;
  bool unsupported_ = false;  // a known instruction in a form the device does not model: runs into a fault
  std::map<std::tuple<uint32_t, uint32_t, int>, const uint32_t*> pool_;
};

class Gfx9Decoder : public Decoder {
 public:
  using Decoder::Decoder;

 private:
  bool any() override;
  bool extended(uint32_t code, bool* ok) override;
  bool matrix() override;
  bool scaled_matrix();
  void small_operands(Type (&types)[3]);
  bool dpp();
  bool smem();
  bool ds();
  bool mubuf();
  bool mtbuf();
  bool buffer_address();  // common to MUBUF and MTBUF
  bool buffer_data(bool acc);
  bool flat();
};

class Gfx11Decoder : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  bool any() override;
  bool extended(uint32_t code, bool* ok) override;
  bool matrix() override;
  bool long_or_dpp(bool packed);
  bool vopd();
  bool ds();
  void typed(uint32_t number, const unified::Table& formats);  // the format of MTBUF

 private:
  bool dpp_register(uint32_t number);
  bool dpp16(uint32_t word);
  bool dpp8(uint32_t word, bool inactive);
  struct Half;  // one of the two operations of a VOPD
  bool vopd_half(const Half& half, Inst* out);
  bool smem();
  bool mubuf();
  bool mtbuf();
  bool buffer();  // what MUBUF and MTBUF share
  bool flat();
};

// RDNA 2: memory instructions as gfx9 has them, but for single fields.
class Gfx10Decoder : public Gfx11Decoder {
 public:
  using Gfx11Decoder::Gfx11Decoder;

 private:
  bool any() override;
  bool extended(uint32_t code, bool* ok) override;
  bool smem();
  bool mubuf();
  bool mtbuf();
  bool buffer();
  bool flat();
};

// RDNA 4: memory instructions of 12 bytes.
class Gfx12Decoder : public Gfx11Decoder {
 public:
  using Gfx11Decoder::Gfx11Decoder;

 private:
  bool any() override;
  bool smem();
  bool buffer();
  bool flat();
  void cache_policy();
};

// Bodies of what cannot run: each stops the wave with a message.
void exec_unknown(Wave& w, const Inst& inst);
void exec_unsupported(Wave& w, const Inst& inst);
void exec_image(Wave& w, const Inst& inst);
void exec_gds(Wave& w, const Inst& inst);
void exec_past_end(Wave& w, const Inst& inst);

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// Machine code -> records: the walk over the text, the choice of encoding, and what all encodings share.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/errors.h"
#include "code/decode_internal.h"
#include "core/wave.h"

namespace fmha::emu {

namespace {

void resolve_targets(DecodedText* text) {
  for (Inst& inst : text->insts) {
    if (!inst.row || !(inst.row->flags & kBranch)) continue;
    const Inst* to = text->at(inst.pc + 4 + int64_t{inst.imm} * 4);
    if (to) inst.target = static_cast<int32_t>(to - text->insts.data());
  }
}

std::unique_ptr<Decoder> decoder_for(Arch arch, int wave_size, const uint8_t* text, size_t bytes,
                                     uint64_t base, DecodedText* out) {
  switch (arch_info(arch).generation) {
    case Generation::kGfx9:
      return std::make_unique<Gfx9Decoder>(arch, wave_size, text, bytes, base, out);
    case Generation::kGfx10:
      return std::make_unique<Gfx10Decoder>(arch, wave_size, text, bytes, base, out);
    case Generation::kGfx11:
      return std::make_unique<Gfx11Decoder>(arch, wave_size, text, bytes, base, out);
    case Generation::kGfx12:
      return std::make_unique<Gfx12Decoder>(arch, wave_size, text, bytes, base, out);
  }
  __builtin_unreachable();
}

}  // namespace

void exec_unknown(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorNoBinaryForGpu, "unknown instruction 0x%08x 0x%08x",
          static_cast<uint32_t>(inst.data.value), static_cast<uint32_t>(inst.data.value >> 32));
}

void exec_unsupported(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorNoBinaryForGpu,
          "the software device does not model these operands or modifiers of this instruction");
}

// HIP has no textures on these GPUs, so no image resource can be valid.
void exec_image(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorNoBinaryForGpu, "image instruction 0x%08x 0x%08x: HIP has no textures on this GPU",
          static_cast<uint32_t>(inst.data.value), static_cast<uint32_t>(inst.data.value >> 32));
}

// LLVM, too, has no gds modifier for these GPUs.
void exec_gds(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorNoBinaryForGpu, "this GPU has no global data share (gds)");
}

void exec_past_end(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorLaunchFailure, "ran past the end of the code");
}

DecodedText decode(Arch arch, int wave_size, const uint8_t* text, size_t bytes, uint64_t base) {
  DecodedText out;
  out.base = base;
  out.index_of_dword.assign(bytes / 4, -1);
  out.insts.reserve(bytes / 6 + 1);
  const auto decoder = decoder_for(arch, wave_size, text, bytes, base, &out);
  for (size_t offset = 0; offset + 4 <= bytes;) {
    out.index_of_dword[offset / 4] = static_cast<int32_t>(out.insts.size());
    out.insts.push_back(decoder->at(offset));
    offset += out.insts.back().bytes;
  }
  Inst end;
  end.exec = exec_past_end;
  end.pc = base + bytes;
  end.bytes = 0;
  out.insts.push_back(end);
  resolve_targets(&out);
  return out;
}

Inst Decoder::at(size_t offset) {
  uint32_t words[3] = {};
  const size_t left = bytes_ - offset;
  std::memcpy(words, text_ + offset, std::min(left, sizeof words));
  const uint32_t first = words[0];
  word_ = first | static_cast<uint64_t>(words[1]) << 32;
  third_ = words[2];
  left_ = left;
  inst_ = Inst();
  inst_.pc = base_ + offset;
  literal_allowed_ = unsupported_ = false;
  if (any() && inst_.row->exec && inst_.bytes <= left) {
    const bool refused = inst_.row->flags & kRefused;  // which says why itself
    inst_.exec = refused        ? inst_.row->exec
                 : inst_.gds    ? exec_gds
                 : unsupported_ ? exec_unsupported
                                : inst_.row->exec;
    return inst_;
  }
  Inst unknown;
  const bool image = first >> 26 == 0x3c && dialect_.has_images && left >= 8;  // MIMG
  unknown.exec = image ? exec_image : exec_unknown;
  unknown.pc = base_ + offset;
  unknown.data.value = word_;
  return unknown;
}

bool Decoder::scalar_alu() {
  const uint32_t w = static_cast<uint32_t>(word_);
  switch (w >> 23) {
    case 0x17d:
      return sop1();
    case 0x17e:
      return sopc();
    case 0x17f:
      return sopp();
    default:
      return w >> 28 == 0xb ? sopk() : sop2();
  }
}

// VOP2, and VOP1 and VOPC in its last two opcodes.
bool Decoder::short_vector() {
  const uint32_t op = static_cast<uint32_t>(word_) >> 25;
  return op == 0x3f ? vop1() : op == 0x3e ? vopc() : vop2();
}

bool Gfx9Decoder::any() {
  const uint32_t w = static_cast<uint32_t>(word_);
  if (w >> 31 == 0) return short_vector();
  if (w >> 30 == 2) return scalar_alu();
  inst_.bytes = 8;
  switch (w >> 26) {
    case 0x30:
      return smem();
    case 0x34:
      return w >> 23 == 0x1a7 ? vop3p() : vop3();
    case 0x36:
      return ds();
    case 0x37:
      return flat();
    case 0x38:
      return mubuf();
    case 0x3a:
      return mtbuf();
    default:
      return false;
  }
}

bool Decoder::row(Space space, uint32_t opcode) {
  inst_.row = map_.find(space, opcode);
  return inst_.row != nullptr;
}

uint32_t Decoder::bits(int low, int count) {
  return static_cast<uint32_t>(word_ >> low) & ((1ull << count) - 1);
}

// A scalar register or pair, as destination or source.
bool Decoder::scalar(uint32_t code, int dwords, Operand* out) {
  const uint32_t sgprs = dialect_.sgprs;
  if (is_null(code)) {  // only as a destination: source() has made it a constant
    *out = Operand();
    out->kind = OperandKind::kSgpr;
    out->dwords = static_cast<uint8_t>(dwords);
    out->index = out->encoded = kNull;
    return true;
  }
  if (code == dialect_.m0) code = kOpM0;
  const uint32_t aligned = code & ~(dwords >= 4 ? 3u : dwords > 1 ? 1u : 0u);
  const bool tuple = code < sgprs || (code >= kOpTtmp && code < kOpM0) || dwords == 2;
  if (tuple && aligned != code) {  // the hardware ignores the low bits; no compiler counts on that
    unsupported_ = true;
    code = aligned;
  }
  const uint32_t end = code + dwords;
  const bool special = code >= sgprs && code < kOpM0;
  if (code < sgprs && end > sgprs) return false;
  if (special && end > kOpM0) return false;
  if (code == kOpM0 && dwords > 1) return false;
  if (code == 125 || code > 127 || (code >= kOpExec && end > 128)) return false;
  *out = Operand();
  out->kind = OperandKind::kSgpr;
  out->dwords = static_cast<uint8_t>(dwords);
  out->index = out->encoded = static_cast<uint16_t>(code);
  return true;
}

bool Decoder::vector(uint32_t n, int dwords, bool acc, Operand* out) {
  if (n + dwords > 256) return false;
  *out = Operand();
  out->kind = OperandKind::kVgpr;
  out->dwords = static_cast<uint8_t>(dwords);
  out->encoded = static_cast<uint16_t>(kOpVgpr + n);
  out->index = static_cast<uint16_t>(n + (acc ? 256 : 0));
  return true;
}

bool Decoder::constant(uint32_t code, uint64_t value, Type type, Operand* out) {
  *out = Operand();
  out->kind = OperandKind::kConst;
  out->dwords = static_cast<uint8_t>(dwords(type));
  out->encoded = static_cast<uint16_t>(code);
  out->value = value;
  if (is_vector() && type != Type::kMask) {
    // Operands wider than 64 bits are accumulators: every dword reads the same 32-bit constant.
    const uint32_t low = static_cast<uint32_t>(value);
    out->lanes = lanes_of(low, out->dwords > 2 ? low : static_cast<uint32_t>(value >> 32), out->dwords);
  }
  return true;
}

bool Decoder::source(uint32_t code, Type type, Operand* out) {
  if (code >= kOpVgpr) return vector(code - kOpVgpr, dwords(type), false, out);
  if (is_null(code)) return constant(kOpNull, 0, type, out);
  if (code < kOpInt) return scalar(code, dwords(type), out);
  if (code < kOpIntEnd || (code >= kOpFloat && code < kOpFloatEnd)) {
    return constant(code, inline_constant(code, type), type, out);
  }
  if (code == kOpLiteral) return literal_allowed_ && literal(type, out);
  const bool aperture = code >= kOpAperture && code < kOpApertureEnd;
  if (!aperture && (code < kOpVccz || code > kOpScc)) return false;
  if (aperture && dwords(type) != 2) unsupported_ = true;  // what 32-bit reads give is not documented
  *out = Operand();
  out->kind = OperandKind::kSpecial;
  out->dwords = static_cast<uint8_t>(dwords(type));
  out->index = out->encoded = static_cast<uint16_t>(code);
  return true;
}

// The dword behind the instruction's own.
bool Decoder::literal(Type type, Operand* out) {
  const bool behind8 = inst_.row->format >= Format::kVop3 || inst_.encoding == Encoding::kVop3;
  inst_.bytes = behind8 ? 12 : 8;
  const bool is_signed = inst_.row->is(kSignedLiteral);
  const uint32_t word = behind8 ? third_ : second();
  // A scalar instruction of 16 bits has all of it, and uses the lower half.
  if (!is_vector() && type == Type::kF16) return constant(kOpLiteral, word, type, out);
  return constant(kOpLiteral, literal_constant(word, type, is_signed), type, out);
}

bool Decoder::sop1() {
  if (!row(kSpaceSop1, bits(8, 8))) return false;
  literal_allowed_ = true;
  const BoundRow& r = *inst_.row;
  if (r.dst != Type::kNone && !scalar(bits(16, 7), dwords(r.dst), &inst_.dst)) return false;
  if (r.immediate == Immediate::kMessage) inst_.imm = static_cast<int32_t>(bits(0, 8));  // s_sendmsg_rtn
  if (r.src[0] == Type::kNone) return true;
  if (!source(bits(0, 8), r.src[0], &inst_.src[0])) return false;
  if (r.is(kRegisterSrc) && inst_.src[0].kind != OperandKind::kSgpr) unsupported_ = true;
  return true;
}

bool Decoder::sop2() {
  if (!row(kSpaceSop2, bits(23, 7))) return false;
  literal_allowed_ = true;
  const BoundRow& r = *inst_.row;
  if (r.dst != Type::kNone && !scalar(bits(16, 7), dwords(r.dst), &inst_.dst)) return false;
  if (r.is(kLiteralK)) {  // s_fmaak_f32: a source may refer to the K too
    inst_.bytes = 8;
    inst_.imm = static_cast<int32_t>(bits(32, 32));
  }
  return source(bits(0, 8), r.src[0], &inst_.src[0]) && source(bits(8, 8), r.src[1], &inst_.src[1]);
}

bool Decoder::sopc() {
  if (!row(kSpaceSopc, bits(16, 7))) return false;
  literal_allowed_ = true;
  const BoundRow& r = *inst_.row;
  inst_.imm = static_cast<int32_t>(bits(8, 8));  // s_set_gpr_idx_on: an immediate in the field of src1
  return source(bits(0, 8), r.src[0], &inst_.src[0]) &&
         (r.src[1] == Type::kNone || source(bits(8, 8), r.src[1], &inst_.src[1]));
}

bool Decoder::sopp() {
  inst_.imm = static_cast<int16_t>(bits(0, 16));
  if (!row(kSpaceSopp, bits(16, 7))) return false;
  return !(inst_.row->flags & kNoSrc) || inst_.imm == 0;
}

bool Decoder::sopk() {
  if (!row(kSpaceSopk, bits(23, 5))) return false;
  const BoundRow& r = *inst_.row;
  inst_.imm = static_cast<int16_t>(bits(0, 16));
  if (r.flags & kLiteralK) {  // s_setreg_imm32_b32
    literal_allowed_ = true;
    return source(kOpLiteral, Type::kI32, &inst_.src[0]);
  }
  if (r.dst != Type::kNone) return scalar(bits(16, 7), dwords(r.dst), &inst_.dst);
  return r.src[0] == Type::kNone || scalar(bits(16, 7), dwords(r.src[0]), &inst_.src[0]);
}

bool Gfx9Decoder::smem() {
  if (!row(kSpaceSmem, bits(18, 8))) return false;
  const BoundRow& r = *inst_.row;
  inst_.sc0 = bits(16, 1);
  if (r.dst != Type::kNone && !scalar(bits(6, 7), dwords(r.dst), &inst_.dst)) return false;
  if (r.src[0] == Type::kNone) return bits(14, 4) == 0;  // no offset, no glc
  if (r.flags & kAtomic && !inst_.sc0) inst_.dst = Operand();
  if (r.src[1] != Type::kNone && !scalar(bits(6, 7), dwords(r.src[1]), &inst_.data)) return false;
  inst_.offset0 = static_cast<uint8_t>(bits(6, 7));
  // The field counts SGPR pairs.
  if (!scalar(bits(0, 6) * 2, dwords(r.src[0]), &inst_.src[0])) return false;
  const bool imm = bits(17, 1), soffset_en = bits(14, 1);
  if (imm) inst_.imm = static_cast<int32_t>(bits(32, 21) << 11) >> 11;
  if (soffset_en) return scalar(bits(57, 7), 1, &inst_.src[1]);
  return imm || scalar(bits(32, 7), 1, &inst_.src[1]);  // neither: the offset field names an SGPR
}

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// Decoding of the vector ALU: VOP1, VOP2, VOPC with their SDWA and DPP forms, VOP3, VOP3P and MFMA.
#include <cstring>

#include "code/decode_internal.h"

namespace fmha::emu {
namespace {

int source_count(const Row& row) {
  int n = 0;
  while (n < 3 && row.src[n] != Type::kNone) ++n;
  return n;
}

bool is_float(Type t) { return t == Type::kF16 || t == Type::kBf16 || t == Type::kF32 || t == Type::kF64; }

}  // namespace

bool Decoder::implicit_vcc() {
  const uint32_t flags = inst_.row->flags;
  if (flags & kReadsVcc && inst_.row->format == Format::kVop2 && !scalar(kOpVcc, mask_dwords_, &inst_.src[2]))
    return false;
  return !(flags & kWritesVcc) || scalar(kOpVcc, mask_dwords_, &inst_.sdst);
}

// Source n of a short form, or its destination (3). Where short forms have halves, the upper 128 numbers are
// the upper halves of the lower 128 registers.
bool Decoder::short_register(uint32_t number, Type type, int n, Operand* out) {
  const bool half = is_half(type) || (n == 0 && inst_.row->is(kSelectsSource));
  if (dialect_.short_halves && half && number & 0x80) {
    inst_.op_sel |= 1u << n;
    number &= 0x7f;
  }
  return vector(number, dwords(type), false, out);
}

// Source 0 of a short form, which may be what is no register.
bool Decoder::short_source() {
  const uint32_t code = bits(0, 9);
  const Type type = inst_.row->src[0];
  return code >= kOpVgpr ? short_register(code - kOpVgpr, type, 0, &inst_.src[0])
                         : source(code, type, &inst_.src[0]);
}

bool Decoder::short_sources() {
  const BoundRow& r = *inst_.row;
  const bool second = r.format != Format::kVop1 && r.src[1] != Type::kNone;
  if (second && !short_register(bits(9, 8), r.src[1], 1, &inst_.src[1])) return false;
  if (bool ok; extended(bits(0, 9), &ok)) return ok;
  literal_allowed_ = true;
  return r.src[0] == Type::kNone || short_source();
}

bool Decoder::vop1() {
  if (!row(kSpaceVop1, bits(9, 8))) return false;
  const BoundRow& r = *inst_.row;
  const uint32_t n = bits(17, 8);
  if (r.flags & kScalarDst) {
    if (!scalar(n, dwords(r.dst), &inst_.dst)) return false;
  } else if (r.dst != Type::kNone && !short_register(n, r.dst, 3, &inst_.dst)) {
    return false;
  }
  if (r.src[0] == Type::kNone && (n || (bits(0, 9) && bits(0, 9) != kOpDpp))) return false;
  if (!short_sources()) return false;
  keep_half();
  if ((has_one_form(r) || r.is(kWritesSrc0)) && inst_.src[0].kind != OperandKind::kVgpr) return false;
  if (r.is(kAccDst)) inst_.dst.index += 256;
  if (r.is(kAccSrc)) inst_.src[0].index += 256;
  return true;
}

bool Decoder::vop2() {
  if (!row(kSpaceVop2, bits(25, 6))) return false;
  const BoundRow& r = *inst_.row;
  if (!short_register(bits(17, 8), r.dst, 3, &inst_.dst) || !implicit_vcc()) return false;
  keep_half();
  if (!(r.flags & kLiteralK)) return short_sources();
  if (!short_register(bits(9, 8), r.src[1], 1, &inst_.src[1])) return false;
  literal_allowed_ = true;  // src0 may refer to the K too
  if (!short_source()) return false;
  inst_.bytes = 8;
  inst_.imm = static_cast<int32_t>(bits(32, 32));
  return constant(kOpLiteral, literal_constant(bits(32, 32), r.src[0], false), r.src[0], &inst_.src[2]);
}

bool Decoder::vopc() {
  if (!row(kSpaceVopc, bits(17, 8))) return false;
  return scalar(writes_only_exec(*inst_.row) ? kOpExec : kOpVcc, mask_dwords_, &inst_.dst) && short_sources();
}

bool Gfx9Decoder::extended(uint32_t code, bool* ok) {
  if (code == kOpSdwa) return *ok = sdwa(), true;
  if (code == kOpDpp) return *ok = dpp(), true;
  return false;
}

bool Decoder::sdwa() {
  const BoundRow& r = *inst_.row;
  if (has_one_form(r) || r.src[0] == Type::kNone) return false;
  // There is no SDWA form of instructions that accumulate, nor of 64-bit ones but those that write all of
  // their destination.
  const bool wide = dwords(r.src[0]) > 1 || (dwords(r.dst) > 1 && r.format != Format::kVopc);
  if (r.flags & kReadsDst || (wide && !r.is(kNoDstSel))) return false;
  inst_.encoding = Encoding::kSdwa;
  inst_.bytes = 8;
  const bool two = inst_.src[1].kind == OperandKind::kVgpr;
  const uint32_t code0 = bits(32, 8) + (bits(55, 1) ? 0u : 256u);
  if (!source(code0, r.src[0], &inst_.src[0])) return false;
  if (bits(63, 1) && (!two || !source(bits(9, 8), r.src[1], &inst_.src[1]))) return false;
  Sdwa& s = inst_.sdwa;
  if (r.format == Format::kVopc) {
    const bool named = bits(47, 1) && !writes_only_exec(r);
    if (named && !scalar(bits(40, 7), mask_dwords_, &inst_.dst)) return false;
  } else {
    s.dst_sel = bits(40, 3);
    s.dst_unused = bits(43, 2);
    inst_.clamp = bits(45, 1);
    inst_.omod = bits(46, 2);
  }
  s.src_sel[0] = bits(48, 3);
  s.src_sel[1] = two ? bits(56, 3) : 6;
  s.sext = bits(51, 1) | (two ? bits(59, 1) << 1 : 0);
  inst_.neg = bits(52, 1) | (two ? bits(60, 1) << 1 : 0);
  inst_.abs = bits(53, 1) | (two ? bits(61, 1) << 1 : 0);
  if (s.dst_sel > 6 || s.dst_unused > 2 || s.src_sel[0] > 6 || s.src_sel[1] > 6) return false;
  if (r.is(kNoDstSel) && s.dst_sel != 6) return false;
  check_modifiers();
  return true;
}

bool Gfx9Decoder::dpp() {
  const BoundRow& r = *inst_.row;
  if (has_one_form(r) || r.is(kSwapsLanes) || r.format == Format::kVopc) return false;
  inst_.encoding = Encoding::kDpp;
  inst_.bytes = 8;
  if (r.src[0] == Type::kNone) {  // v_nop
    if (bits(32, 8)) return false;
  } else if (!vector(bits(32, 8), dwords(r.src[0]), false, &inst_.src[0])) {
    return false;
  }
  inst_.dpp.ctrl = bits(40, 9);
  inst_.dpp.bound_ctrl = bits(51, 1);
  inst_.neg = bits(52, 1) | bits(54, 1) << 1;
  inst_.abs = bits(53, 1) | bits(55, 1) << 1;
  inst_.dpp.bank_mask = bits(56, 4);
  inst_.dpp.row_mask = bits(60, 4);
  constexpr uint32_t kRowNewbcast = 0x150;
  const bool wide = dwords(r.src[0]) > 1 || (r.format != Format::kVopc && dwords(r.dst) > 1);
  if (wide && bits(44, 5) != kRowNewbcast >> 4) return false;  // 64-bit data has only this form
  check_modifiers();
  return true;
}

// The 64-bit form: VOP3A, or VOP3B if there is a second, scalar destination.
bool Decoder::vop3_destinations() {
  const BoundRow& r = *inst_.row;
  const bool has_sdst = r.format == Format::kVop3b || r.flags & kWritesVcc;
  inst_.clamp = bits(15, 1);
  if (has_sdst) {
    if (!scalar(bits(8, 7), mask_dwords_, &inst_.sdst)) return false;
  } else {
    inst_.abs = bits(8, 3);
    inst_.op_sel = bits(11, 4);
  }
  if (r.format == Format::kVopc) {
    return scalar(writes_only_exec(r) ? kOpExec : bits(0, 8), mask_dwords_, &inst_.dst);
  }
  if (r.flags & kScalarDst) return scalar(bits(0, 8), dwords(r.dst), &inst_.dst);
  return r.dst == Type::kNone || vector(bits(0, 8), dwords(r.dst), false, &inst_.dst);
}

bool Decoder::vop3_sources() {
  const BoundRow& r = *inst_.row;
  const int n = source_count(r);
  const bool read_lane = r.is(kReadLane), write_lane = r.is(kWriteLane);
  for (int i = 0; i < n; ++i) {
    Operand& o = inst_.src[i];
    const Type type = i == 1 && r.is(kHalfConstants) ? Type::kF16 : r.src[i];
    if (!source(bits(32 + 9 * i, 9), type, &o)) return false;
    const bool is_vgpr = o.kind == OperandKind::kVgpr;
    // A lane number is the same for all lanes, as is what v_writelane writes; and nothing but VGPRs has
    // lanes.
    if ((read_lane || write_lane) && is_vgpr != (read_lane && i == 0)) return false;
    if (r.is(kScalarDst) && !read_lane && is_vgpr && r.format == Format::kVop3) return false;  // v_s_exp
    if ((dwords(r.src[i]) > 2 || r.is(kWritesSrc0)) && !is_vgpr) return false;
  }
  if (names_mask(r)) return source(bits(50, 9), Type::kMask, &inst_.src[2]);
  return true;
}

bool Decoder::vop3() {
  if (!row(kSpaceVop3, bits(16, 10))) return false;
  const BoundRow& r = *inst_.row;
  if (r.format < Format::kVop3) inst_.encoding = Encoding::kVop3;
  literal_allowed_ = dialect_.wide_literals;
  if (!vop3_destinations() || !vop3_sources()) return false;
  inst_.omod = bits(59, 2);
  inst_.neg = bits(61, 3);
  if (r.is(kTruthTable)) {
    inst_.imm = inst_.omod << 6 | inst_.abs << 3 | inst_.neg;
    inst_.omod = inst_.abs = inst_.neg = 0;
  }
  check_modifiers();
  keep_half();
  return true;
}

void Decoder::keep_half() { inst_.keeps_half = dialect_.keeps_halves && is_half(inst_.row->dst); }

void Decoder::check_modifiers() {
  const BoundRow& r = *inst_.row;
  const bool takes_any = r.flags & kHasModifiers;
  // omod is ignored for integer results, which conversions of one source have. The manual does not say
  // whether the halves that v_cvt_pkrtz packs are floats to it.
  if (inst_.omod && !(takes_any && (is_float(r.dst) || r.format == Format::kVop1))) unsupported_ = true;
  // op_sel picks halves, so it goes with 16-bit operands; or it picks the byte to write.
  const bool own = r.is(kOwnOpSel | kSwapsLanes), bare = r.is(kNoResultModifiers);
  if (bare && (inst_.omod || inst_.clamp)) unsupported_ = true;
  uint32_t halves = r.is(kSelectsByte) ? 0xc : own ? 0x3 : 0;
  if (is_half(r.dst) && !r.is(kSelectsByte) && (!own || bare)) halves |= 0x8;
  if (r.is(kSelectsSource)) halves |= 0x1;
  if (r.is(kSelectsShift) && dialect_.short_halves) halves |= 0x4;
  for (int i = 0; i < 3; ++i) {
    if (is_half(r.src[i]) && !r.is(kSelectsByte)) halves |= 1u << i;
    const bool modified = (inst_.neg | inst_.abs) >> i & 1;
    if (modified && !(takes_any && is_float(r.src[i]))) unsupported_ = true;
  }
  if (r.format < Format::kVop3 && !dialect_.short_halves && !own) halves = 0;
  if (inst_.op_sel & ~halves) unsupported_ = true;
}

// v_fma_mix: op_sel_hi says for each source whether it is f16 or f32, so also how a constant reads.
bool Decoder::mix_sources() {
  for (int i = 0; i < 3; ++i) {
    const Type t = inst_.op_sel_hi >> i & 1 ? Type::kF16 : Type::kF32;
    if (!source(bits(32 + 9 * i, 9), t, &inst_.src[i])) return false;
  }
  return true;
}

bool Decoder::vop3p() {
  if (!row(kSpaceVop3p, bits(16, 7))) return false;
  const BoundRow& r = *inst_.row;
  if (r.format == Format::kMai || r.matrix.m) return matrix();
  if (!vector(bits(0, 8), dwords(r.dst), false, &inst_.dst)) return false;
  literal_allowed_ = dialect_.wide_literals;
  inst_.neg_hi = bits(8, 3);
  inst_.op_sel = bits(11, 3);
  inst_.op_sel_hi = bits(59, 2) | bits(14, 1) << 2;
  inst_.clamp = bits(15, 1);
  inst_.neg = bits(61, 3);
  if (r.is(kMixedSources)) return mix_sources();
  return vop3_sources();
}

// A scaled MFMA is 16 bytes: v_mfma_ld_scale, and an MFMA that says by ABID that it takes scales.
bool Gfx9Decoder::scaled_matrix() {
  inst_.op_sel = bits(11, 3);
  inst_.op_sel_hi = bits(59, 2);
  const bool strange = bits(0, 11) || bits(15, 1) || bits(61, 3) || inst_.op_sel & 4;
  for (int i = 0; i < 2; ++i) {
    if (!source(bits(32 + 9 * i, 9), Type::kI32, &inst_.src[i])) return false;
  }
  uint64_t next = 0;
  if (left_ >= 16) std::memcpy(&next, text_ + (bytes_ - left_) + 8, sizeof next);
  constexpr uint32_t kScaled = 0x100;  // in the opcode table
  const auto low = static_cast<uint32_t>(next);
  const BoundRow* row = low >> 23 == 0x1a7 && (low >> 11 & 15) == 1
                            ? map_.find(kSpaceVop3p, kScaled + (low >> 16 & 127))
                            : nullptr;
  if (!row) return true;
  auto scales = std::make_unique<Inst[]>(1);
  scales[0] = inst_;
  word_ = next;
  inst_.row = row;
  inst_.op_sel = inst_.op_sel_hi = 0;
  inst_.src[0] = inst_.src[1] = Operand();
  if (!matrix()) return false;
  inst_.bytes = 16;
  inst_.scales = scales.get();
  out_->duals.push_back(std::move(scales));
  if (strange) unsupported_ = true;
  return true;
}

// CBSZ and BLGP are the types of A and B, and so how many registers they take.
void Gfx9Decoder::small_operands(Type (&types)[3]) {
  constexpr Type kOfKind[8] = {Type::kB256, Type::kB256, Type::kB192, Type::kB192,
                               Type::kB128, Type::kNone, Type::kNone, Type::kNone};
  types[0] = kOfKind[bits(8, 3)];
  types[1] = kOfKind[bits(61, 3)];
}

bool Gfx9Decoder::matrix() {
  const BoundRow& r = *inst_.row;
  if (r.is(kLoadsScales)) return scaled_matrix();
  const bool small = r.matrix.a == Element::kF8F6F4;
  Type types[3] = {r.src[0], r.src[1], r.src[2]};
  if (small) small_operands(types);
  if (small && (types[0] == Type::kNone || types[1] == Type::kNone)) return false;
  const bool read = r.is(kAccSrc), write = r.is(kAccDst), sparse = r.matrix.sparse;
  const bool acc_cd = write || (!read && bits(15, 1));
  const uint32_t acc = read ? 1 : write ? 0 : bits(59, 2);
  if (!vector(bits(0, 8), dwords(r.dst), acc_cd, &inst_.dst)) return false;
  const int n = source_count(r);
  for (int i = 0; i < n; ++i) {
    Operand& o = inst_.src[i];
    if (!source(bits(32 + 9 * i, 9), types[i], &o)) return false;
    const bool in_acc = i == 2 ? acc_cd && !sparse : acc >> i & 1;
    if (in_acc && o.kind == OperandKind::kVgpr) o.index += 256;
    // A and B are registers; only the accumulator, and what v_accvgpr_write moves, may be something else.
    if (i < 2 && !write && o.kind != OperandKind::kVgpr) return false;
    if (i == 2 && o.kind != OperandKind::kVgpr && (sparse || o.kind != OperandKind::kConst)) return false;
  }
  if (read || write) return true;
  inst_.cbsz = bits(8, 3);
  inst_.abid = bits(11, 4);
  inst_.blgp = bits(61, 3);
  if (sparse && inst_.blgp) unsupported_ = true;
  if (small && inst_.abid != (r.opcode > 127 ? 1 : 0)) unsupported_ = true;
  if (small) inst_.abid = 0;  // which LLVM does not print
  Operand& c = inst_.src[2];
  if (c.kind == OperandKind::kConst && r.matrix.a == Element::kF64) {
    c.value = inline_constant(c.encoded, Type::kF64);
    c.lanes = lanes_of(static_cast<uint32_t>(c.value), static_cast<uint32_t>(c.value >> 32), c.dwords);
  }
  return true;
}

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// RDNA 3: the choice of encoding, what the vector ALU has that gfx9 has not (DPP of 64-bit forms, DPP8,
// VOPD, WMMA), and literals behind 64-bit encodings.
#include "code/decode_internal.h"

namespace fmha::emu {

bool Gfx11Decoder::any() {
  const uint32_t w = static_cast<uint32_t>(word_);
  if (w >> 31 == 0) return short_vector();
  if (w >> 30 == 2) return scalar_alu();
  inst_.bytes = 8;
  switch (w >> 26) {
    case 0x32:
      return vopd();
    case 0x33:
      return w >> 23 == 0x198 && long_or_dpp(true);
    case 0x35:
      return long_or_dpp(false);
    case 0x36:
      return ds();
    case 0x37:
      return flat();
    case 0x38:
      return mubuf();
    case 0x3a:
      return mtbuf();
    case 0x3d:
      return smem();
    default:
      return false;
  }
}

bool Gfx11Decoder::extended(uint32_t code, bool* ok) {
  if (code != kOpDpp && code != kOpDpp8 && code != kOpDpp8Inactive) return false;
  inst_.bytes = 8;
  inst_.encoding = Encoding::kDpp;
  *ok = (!has_one_form(*inst_.row) || inst_.row->is(kDppToo)) &&
        (code == kOpDpp ? dpp16(second()) : dpp8(second(), code == kOpDpp8Inactive));
  return true;
}

// The 64-bit forms, whose first source may be a mark of DPP too; the packed ones, of which few have DPP.
bool Gfx11Decoder::long_or_dpp(bool packed) {
  const uint32_t code = bits(32, 9);
  const bool by16 = code == kOpDpp, by8 = code == kOpDpp8 || code == kOpDpp8Inactive;
  // Any register: dpp*() names the right one.
  if (by16 || by8) word_ = (word_ & ~(0x1ffull << 32)) | uint64_t{kOpVgpr} << 32;
  if (!(packed ? vop3p() : vop3())) return false;
  if (!by16 && !by8) return true;
  const BoundRow& r = *inst_.row;
  if (r.src[0] == Type::kNone || (packed && !r.is(kDppToo)) || inst_.bytes == 12) return false;
  inst_.bytes = 12;
  inst_.encoding = Encoding::kVop3Dpp;
  return by16 ? dpp16(third_) : dpp8(third_, code == kOpDpp8Inactive);
}

// The register that DPP moves. Short forms name halves by it, the 64-bit ones by op_sel.
bool Gfx11Decoder::dpp_register(uint32_t number) {
  const Type type = inst_.row->src[0];
  return inst_.encoding == Encoding::kVop3Dpp ? vector(number, dwords(type), false, &inst_.src[0])
                                              : short_register(number, type, 0, &inst_.src[0]);
}

bool Gfx11Decoder::dpp16(uint32_t word) {
  const BoundRow& r = *inst_.row;
  if (r.src[0] != Type::kNone && !dpp_register(word & 0xff)) return false;
  inst_.dpp.ctrl = static_cast<uint16_t>(word >> 8 & 0x1ff);
  inst_.dpp.fetch_inactive = word >> 18 & 1;
  inst_.dpp.bound_ctrl = word >> 19 & 1;
  inst_.dpp.bank_mask = word >> 24 & 15;
  inst_.dpp.row_mask = static_cast<uint8_t>(word >> 28);
  if (dwords(r.src[0]) > 1 || (r.format != Format::kVopc && dwords(r.dst) > 1)) unsupported_ = true;
  if (inst_.encoding == Encoding::kVop3Dpp) return true;  // which has its own bits of modifiers
  inst_.neg = static_cast<uint8_t>((word >> 20 & 1) | (word >> 22 & 1) << 1);
  inst_.abs = static_cast<uint8_t>((word >> 21 & 1) | (word >> 23 & 1) << 1);
  check_modifiers();
  return true;
}

bool Gfx11Decoder::dpp8(uint32_t word, bool inactive) {
  const BoundRow& r = *inst_.row;
  if (r.src[0] == Type::kNone || !dpp_register(word & 0xff)) return false;
  inst_.dpp.by8 = true;
  inst_.dpp.fetch_inactive = inactive;
  inst_.dpp.lanes = word >> 8;
  if (dwords(r.src[0]) > 1) unsupported_ = true;
  if (inst_.encoding != Encoding::kVop3Dpp) check_modifiers();
  return true;
}

// WMMA: A and B are registers, C may be a constant.
bool Gfx11Decoder::matrix() {
  const BoundRow& r = *inst_.row;
  literal_allowed_ = false;
  if (!vector(bits(0, 8), dwords(r.dst), false, &inst_.dst)) return false;
  for (int i = 0; i < 3; ++i) {
    Operand& o = inst_.src[i];
    if (!source(bits(32 + 9 * i, 9), r.src[i], &o)) return false;
    const bool constant = i == 2 && o.kind == OperandKind::kConst;
    if (o.kind != OperandKind::kVgpr && !constant) return false;
  }
  inst_.neg_hi = static_cast<uint8_t>(bits(8, 3));
  inst_.op_sel = static_cast<uint8_t>(bits(11, 3));
  inst_.op_sel_hi = static_cast<uint8_t>(bits(59, 2) | bits(14, 1) << 2);
  inst_.clamp = bits(15, 1);
  inst_.neg = static_cast<uint8_t>(bits(61, 3));
  return true;
}

struct Gfx11Decoder::Half {
  const BoundRow* row;
  uint32_t source, register_source, destination;
};

namespace {

// The operations of VOPD, by their number: how the table has them.
struct DualOperation {
  Space space;
  uint16_t opcode;
};
constexpr DualOperation kNoDual = {kSpaceCount, 0};
DualOperation dual_operation(uint32_t number, uint16_t min_f32) {
  constexpr DualOperation kX[] = {
      {kSpaceVop2, 0x2b},  // v_fmac_f32
      {kSpaceVop2, 0x2d},  // v_fmaak_f32
      {kSpaceVop2, 0x2c},  // v_fmamk_f32
      {kSpaceVop2, 0x08},  // v_mul_f32
      {kSpaceVop2, 0x03},  // v_add_f32
      {kSpaceVop2, 0x04},  // v_sub_f32
      {kSpaceVop2, 0x05},  // v_subrev_f32
      {kSpaceVop2, 0x07},  // v_mul_dx9_zero_f32
      {kSpaceVop1, 0x01},  // v_mov_b32
      {kSpaceVop2, 0x01},  // v_cndmask_b32
      kNoDual,             // v_max_f32, v_min_f32: below
      kNoDual,
      {kSpaceVop2, 0x02},  // v_dot2acc_f32_f16
  };
  // From 16 on, which only the second operation's number reaches.
  constexpr DualOperation kY[] = {
      {kSpaceVop2, 0x25},  // v_add_nc_u32
      {kSpaceVop2, 0x18},  // v_lshlrev_b32
      {kSpaceVop2, 0x1b},  // v_and_b32
  };
  constexpr uint32_t kMax = 10, kMin = 11;
  if (number == kMax || number == kMin)
    return {kSpaceVop2, static_cast<uint16_t>(min_f32 + (number == kMax ? 1 : 0))};
  if (number < std::size(kX)) return kX[number];
  if (number >= 16 && number - 16 < std::size(kY)) return kY[number - 16];
  return kNoDual;
}

bool reads(const Inst& inst, uint16_t vgpr) {
  for (const Operand& o : inst.src) {
    if (o.kind == OperandKind::kVgpr && o.index == vgpr) return true;
  }
  return false;
}

}  // namespace

bool Gfx11Decoder::vopd_half(const Half& half, Inst* out) {
  const Inst whole = inst_;
  inst_ = Inst();
  inst_.pc = whole.pc;
  inst_.bytes = 8;
  inst_.row = half.row;
  inst_.exec = half.row->exec;
  const BoundRow& r = *half.row;
  // The literal, of either half, is behind both dwords.
  const auto operand = [&] {
    if (!vector(half.destination, 1, false, &inst_.dst) || !implicit_vcc()) return false;
    if (half.source == kOpLiteral) {
      if (!constant(kOpLiteral, third_, r.src[0], &inst_.src[0])) return false;
      inst_.bytes = 12;
    } else if (!source(half.source, r.src[0], &inst_.src[0])) {
      return false;
    }
    if (r.format == Format::kVop1) return true;
    if (!vector(half.register_source, 1, false, &inst_.src[1])) return false;
    if (!r.is(kLiteralK)) return true;
    inst_.bytes = 12;
    inst_.imm = static_cast<int32_t>(third_);
    return constant(kOpLiteral, third_, r.src[0], &inst_.src[2]);
  };
  const bool ok = operand();
  *out = inst_;
  inst_ = whole;
  return ok;
}

bool Gfx11Decoder::vopd() {
  if (!row(kSpaceVopd, 0)) return false;
  const BoundRow* dual = inst_.row;
  const DualOperation x = dual_operation(bits(22, 4), dialect_.min_f32),
                      y = dual_operation(bits(17, 5), dialect_.min_f32);
  if (x.space == kSpaceCount || y.space == kSpaceCount) return false;
  const uint32_t to_x = bits(56, 8), to_y = bits(49, 7) << 1 | (~to_x & 1);
  const Half halves[2] = {{map_.find(x.space, x.opcode), bits(0, 9), bits(9, 8), to_x},
                          {map_.find(y.space, y.opcode), bits(32, 9), bits(41, 8), to_y}};
  auto pair = std::make_unique<Inst[]>(2);
  for (int i = 0; i < 2; ++i) {
    if (!halves[i].row || !vopd_half(halves[i], &pair[i])) return false;
    inst_.bytes = std::max(inst_.bytes, pair[i].bytes);
  }
  // Y reads the old value of a register that X writes: the body keeps a copy behind the registers
  // (isa/vector/vopd.h).
  const uint16_t written = pair[0].dst.index;
  if (reads(pair[1], written)) {
    for (Operand& o : pair[1].src) {
      if (o.kind == OperandKind::kVgpr && o.index == written) o.index = kVopdCopy;
    }
    inst_.op_sel = 1;
  }
  inst_.row = dual;
  inst_.dual = pair.get();
  out_->duals.push_back(std::move(pair));
  return true;
}

}  // namespace fmha::emu

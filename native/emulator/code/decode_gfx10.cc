// SPDX-License-Identifier: MIT OR Apache-2.0
// RDNA 2: what it encodes otherwise than RDNA 3, which is memory; and SDWA, which that has no more.
#include "code/decode_internal.h"

namespace fmha::emu {

bool Gfx10Decoder::any() {
  const uint32_t w = static_cast<uint32_t>(word_);
  inst_.bytes = 8;
  switch (w >> 26) {
    case 0x32:
      return false;  // VOPD
    case 0x35:       // of v_dot2c and v_dot4c there is no such form
      return vop3() && !(inst_.row->format == Format::kVop2 && inst_.row->is(kDot));
    case 0x37:
      return flat();
    case 0x38:
      return mubuf();
    case 0x3a:
      return mtbuf();
    case 0x3d:
      return smem();
    default:
      inst_.bytes = Inst().bytes;
      return Gfx11Decoder::any();
  }
}

bool Gfx10Decoder::extended(uint32_t code, bool* ok) {
  if (code == kOpSdwa) return *ok = sdwa(), true;
  if (!Gfx11Decoder::extended(code, ok)) return false;
  *ok &= inst_.row->format != Format::kVopc && !has_one_form(*inst_.row);  // which have no DPP
  return true;
}

bool Gfx10Decoder::smem() {
  if (!row(kSpaceSmem, bits(18, 8))) return false;
  const BoundRow& r = *inst_.row;
  inst_.sc1 = bits(14, 1);
  inst_.sc0 = bits(16, 1);
  if (r.dst != Type::kNone && !scalar(bits(6, 7), dwords(r.dst), &inst_.dst)) return false;
  if (r.src[0] == Type::kNone) return true;
  inst_.offset0 = static_cast<uint8_t>(bits(6, 7));                            // of s_atc_probe
  if (!scalar(bits(0, 6) * 2, dwords(r.src[0]), &inst_.src[0])) return false;  // the field counts pairs
  inst_.imm = static_cast<int32_t>(bits(32, 21) << 11) >> 11;
  const uint32_t soffset = bits(57, 7);
  return is_null(soffset) || scalar(soffset, 1, &inst_.src[1]);
}

bool Gfx10Decoder::buffer() {
  const BoundRow& r = *inst_.row;
  inst_.imm = static_cast<int32_t>(bits(0, 12));
  inst_.offen = bits(12, 1);
  inst_.idxen = bits(13, 1);
  inst_.sc0 = bits(14, 1);
  inst_.sc1 = bits(15, 1);
  inst_.nt = bits(54, 1);
  if (bits(55, 1)) return false;  // tfe
  const int address = inst_.offen + inst_.idxen;
  if (address && !vector(bits(32, 8), address, false, &inst_.src[0])) return false;
  if (!scalar(bits(48, 5) * 4, 4, &inst_.src[1])) return false;
  literal_allowed_ = false;
  if (!source(bits(56, 8), Type::kI32, &inst_.src[2])) return false;
  if (inst_.lds) return r.is(kMayGoToLds);  // the vdata field means nothing then
  const uint32_t data = bits(40, 8);
  if (r.src[0] != Type::kNone && !vector(data, dwords(r.src[0]), false, &inst_.data)) return false;
  if (r.dst == Type::kNone || (r.is(kAtomic) && !inst_.sc0)) return true;
  return vector(data, dwords(r.dst), false, &inst_.dst);
}

bool Gfx10Decoder::mubuf() {
  if (!row(kSpaceMubuf, bits(18, 8))) return false;
  const BoundRow& r = *inst_.row;
  if (r.dst == Type::kNone && r.src[0] == Type::kNone && r.is(kCacheControl)) return true;
  inst_.lds = bits(16, 1);
  return buffer();
}

bool Gfx10Decoder::mtbuf() {
  if (!row(kSpaceMtbuf, bits(16, 3) | bits(53, 1) << 3)) return false;
  typed(bits(19, 7), unified::kOfRdna2);
  return buffer();
}

bool Gfx10Decoder::flat() {
  constexpr uint32_t kNoAddress = 127;  // of SCRATCH, as SADDR: neither register
  const uint32_t segment = bits(14, 2), saddr = bits(48, 7);
  constexpr Space kSpaces[] = {kSpaceFlat, kSpaceScratch, kSpaceGlobal};
  if (segment > 2 || bits(13, 1) || !row(kSpaces[segment], bits(18, 7))) return false;
  const BoundRow& r = *inst_.row;
  // FLAT's offset is unsigned, 11 bits; the others' signed, 12 bits.
  if (segment == 0 && bits(11, 1)) return false;
  inst_.imm = static_cast<int32_t>(bits(0, 12) << 20) >> 20;
  inst_.sc1 = bits(12, 1);
  inst_.sc0 = bits(16, 1);
  inst_.nt = bits(17, 1);
  const bool none = segment == 1 && saddr == kNoAddress;
  const bool has_saddr = segment != 0 && !none && !is_null(saddr);
  const bool has_vaddr = !r.is(kByLane) && !none && (segment != 1 || !has_saddr);
  if (has_vaddr && !vector(bits(32, 8), segment == 1 || has_saddr ? 1 : 2, false, &inst_.src[0]))
    return false;
  if (has_saddr && !scalar(saddr, segment == 2 ? 2 : 1, &inst_.src[1])) return false;
  if (r.src[0] != Type::kNone && !vector(bits(40, 8), dwords(r.src[0]), false, &inst_.data)) return false;
  if (r.dst == Type::kNone || (r.is(kAtomic) && !inst_.sc0)) return true;
  return vector(bits(56, 8), dwords(r.dst), false, &inst_.dst);
}

}  // namespace fmha::emu

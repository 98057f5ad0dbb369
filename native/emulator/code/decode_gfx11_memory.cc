// SPDX-License-Identifier: MIT OR Apache-2.0
// RDNA 3: decoding of SMEM, DS, MUBUF, MTBUF, FLAT, GLOBAL and SCRATCH.
#include "code/decode_internal.h"

namespace fmha::emu {

bool Gfx11Decoder::smem() {
  if (!row(kSpaceSmem, bits(18, 8))) return false;
  const BoundRow& r = *inst_.row;
  inst_.sc1 = bits(13, 1);
  inst_.sc0 = bits(14, 1);
  if (r.dst != Type::kNone && !scalar(bits(6, 7), dwords(r.dst), &inst_.dst)) return false;
  if (r.src[0] == Type::kNone) return true;
  if (r.immediate == Immediate::kProbe) inst_.offset0 = static_cast<uint8_t>(bits(6, 7));
  if (!scalar(bits(0, 6) * 2, dwords(r.src[0]), &inst_.src[0])) return false;  // the field counts pairs
  inst_.imm = static_cast<int32_t>(bits(32, 21) << 11) >> 11;
  const uint32_t soffset = bits(57, 7);
  return soffset == kOpNull || scalar(soffset, 1, &inst_.src[1]);
}

bool Gfx11Decoder::ds() {
  if (!row(kSpaceDs, bits(18, 8))) return false;
  const BoundRow& r = *inst_.row;
  inst_.offset0 = static_cast<uint8_t>(bits(0, 8));
  inst_.offset1 = static_cast<uint8_t>(bits(8, 8));
  if (!(r.flags & kTwoOffsets)) inst_.imm = static_cast<int32_t>(bits(0, 16));
  inst_.gds = bits(17, 1);
  if (r.dst != Type::kNone && !vector(bits(56, 8), dwords(r.dst), false, &inst_.dst)) return false;
  if (r.src[0] != Type::kNone && !vector(bits(32, 8), 1, false, &inst_.src[0])) return false;
  if (r.src[1] != Type::kNone && !vector(bits(40, 8), dwords(r.src[1]), false, &inst_.src[1])) return false;
  return r.src[2] == Type::kNone || vector(bits(48, 8), dwords(r.src[2]), false, &inst_.src[2]);
}

bool Gfx11Decoder::buffer() {
  const BoundRow& r = *inst_.row;
  inst_.imm = static_cast<int32_t>(bits(0, 12));
  inst_.nt = bits(12, 1);
  inst_.sc1 = bits(13, 1);
  inst_.sc0 = bits(14, 1);
  inst_.lds = r.is(kToLds);
  inst_.offen = bits(54, 1);
  inst_.idxen = bits(55, 1);
  if (bits(53, 1)) return false;  // tfe
  const int address = inst_.offen + inst_.idxen;
  if (address && !vector(bits(32, 8), address, false, &inst_.src[0])) return false;
  if (!scalar(bits(48, 5) * 4, 4, &inst_.src[1])) return false;
  const uint32_t soffset = bits(56, 8);
  literal_allowed_ = false;
  if (!source(soffset, Type::kI32, &inst_.src[2])) return false;
  const uint32_t data = bits(40, 8);
  if (r.src[0] != Type::kNone && !vector(data, dwords(r.src[0]), false, &inst_.data)) return false;
  if (r.dst == Type::kNone || (r.is(kAtomic) && !inst_.sc0)) return true;
  return vector(data, dwords(r.dst), false, &inst_.dst);
}

bool Gfx11Decoder::mubuf() {
  if (!row(kSpaceMubuf, bits(18, 8))) return false;
  const BoundRow& r = *inst_.row;
  if (r.dst == Type::kNone && r.src[0] == Type::kNone && r.is(kCacheControl)) return true;
  return buffer();
}

void Gfx11Decoder::typed(uint32_t number, const unified::Table& formats) {
  inst_.unified_format = static_cast<uint8_t>(number);
  inst_.data_format = formats.of[number].data;
  inst_.number_format = formats.of[number].number;
}

bool Gfx11Decoder::mtbuf() {
  if (!row(kSpaceMtbuf, bits(15, 4))) return false;
  typed(bits(19, 7), unified::kFromRdna3On);
  return buffer();
}

bool Gfx11Decoder::flat() {
  const uint32_t segment = bits(16, 2);
  constexpr Space kSpaces[] = {kSpaceFlat, kSpaceScratch, kSpaceGlobal};
  if (segment > 2 || !row(kSpaces[segment], bits(18, 8))) return false;
  const BoundRow& r = *inst_.row;
  // FLAT's offset is unsigned, 12 bits; the others' signed, 13 bits.
  inst_.imm =
      segment == 0 ? static_cast<int32_t>(bits(0, 12)) : static_cast<int32_t>(bits(0, 13) << 19) >> 19;
  if (segment == 0 && bits(12, 1)) return false;
  inst_.sc1 = bits(13, 1);
  inst_.sc0 = bits(14, 1);
  inst_.nt = bits(15, 1);
  const bool sve = bits(55, 1);  // of SCRATCH: there is a VGPR address
  const uint32_t saddr = bits(48, 7);
  const bool has_saddr = segment != 0 && saddr != kOpNull;
  if (r.is(kByLane)) {
    if (!has_saddr) return false;
  } else if (segment != 1) {
    if (sve || !vector(bits(32, 8), has_saddr ? 1 : 2, false, &inst_.src[0])) return false;
  } else if (sve && !vector(bits(32, 8), 1, false, &inst_.src[0])) {
    return false;
  }
  if (has_saddr && !scalar(saddr, segment == 2 ? 2 : 1, &inst_.src[1])) return false;
  if (r.src[0] != Type::kNone && !vector(bits(40, 8), dwords(r.src[0]), false, &inst_.data)) return false;
  if (r.dst == Type::kNone || (r.is(kAtomic) && !inst_.sc0)) return true;
  return vector(bits(56, 8), dwords(r.dst), false, &inst_.dst);
}

}  // namespace fmha::emu

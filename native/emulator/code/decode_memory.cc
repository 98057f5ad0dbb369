// SPDX-License-Identifier: MIT OR Apache-2.0
// Decoding of DS, MUBUF, MTBUF, FLAT, GLOBAL and SCRATCH.
#include "code/decode_internal.h"

namespace fmha::emu {

bool Gfx9Decoder::ds() {
  if (!row(kSpaceDs, bits(17, 8))) return false;
  const BoundRow& r = *inst_.row;
  const bool acc = bits(25, 1);
  inst_.offset0 = bits(0, 8);
  inst_.offset1 = bits(8, 8);
  if (!(r.flags & kTwoOffsets)) inst_.imm = static_cast<int32_t>(bits(0, 16));
  inst_.gds = bits(16, 1);
  if (r.dst != Type::kNone && !vector(bits(56, 8), dwords(r.dst), acc, &inst_.dst)) return false;
  // The first field is an address, except in ds_gws_*, whose data it is.
  const bool acc_first = acc && r.flags & kRefused;
  if (r.src[0] != Type::kNone && !vector(bits(32, 8), 1, acc_first, &inst_.src[0])) return false;
  if (r.src[1] != Type::kNone && !vector(bits(40, 8), dwords(r.src[1]), acc, &inst_.src[1])) return false;
  return r.src[2] == Type::kNone || vector(bits(48, 8), dwords(r.src[2]), acc, &inst_.src[2]);
}

bool Gfx9Decoder::buffer_address() {
  inst_.imm = static_cast<int32_t>(bits(0, 12));
  inst_.offen = bits(12, 1);
  inst_.idxen = bits(13, 1);
  inst_.sc0 = bits(14, 1);
  const int address = inst_.offen + inst_.idxen;
  if (address && !vector(bits(32, 8), address, false, &inst_.src[0])) return false;
  return scalar(bits(48, 5) * 4, 4, &inst_.src[1]) && source(bits(56, 8), Type::kI32, &inst_.src[2]);
}

bool Gfx9Decoder::buffer_data(bool acc) {
  const BoundRow& r = *inst_.row;
  const uint32_t n = bits(40, 8);
  const bool atomic = r.flags & kAtomic;
  if (r.src[0] != Type::kNone && !vector(n, dwords(r.src[0]), acc, &inst_.data)) return false;
  if (r.dst == Type::kNone || (atomic && !inst_.sc0)) return true;
  return vector(n, dwords(r.dst), acc, &inst_.dst);
}

bool Gfx9Decoder::mubuf() {
  if (!row(kSpaceMubuf, bits(18, 7))) return false;
  const BoundRow& r = *inst_.row;
  inst_.sc1 = bits(15, 1);
  inst_.lds = bits(16, 1);
  inst_.nt = bits(17, 1);
  if (r.flags & kRefused) return inst_.lds && buffer_address();  // buffer_store_lds_dword
  const bool has_data = r.dst != Type::kNone || r.src[0] != Type::kNone;
  if (!has_data) {  // cache control
    inst_.sc0 = bits(14, 1);
    return !inst_.nt && (dialect_.has_scopes || !(inst_.sc0 || inst_.sc1));
  }
  if (!buffer_address()) return false;
  if (inst_.lds) return r.is(kMayGoToLds);  // the vdata field means nothing then
  return buffer_data(bits(55, 1));
}

bool Gfx9Decoder::mtbuf() {
  if (!row(kSpaceMtbuf, bits(15, 4))) return false;
  inst_.data_format = static_cast<uint8_t>(bits(19, 4));
  inst_.number_format = static_cast<uint8_t>(bits(23, 3));
  inst_.sc1 = bits(53, 1);
  inst_.nt = bits(54, 1);
  return buffer_address() && buffer_data(bits(55, 1));
}

bool Gfx9Decoder::flat() {
  const uint32_t segment = bits(14, 2);
  constexpr Space kSpaces[] = {kSpaceFlat, kSpaceScratch, kSpaceGlobal};
  if (segment > 2 || !row(kSpaces[segment], bits(18, 7))) return false;
  const BoundRow& r = *inst_.row;
  const bool acc = bits(55, 1);
  const bool sve = bits(13, 1);  // of SCRATCH, if the dialect has it; else the lds bit
  // FLAT's offset is unsigned, 12 bits; the others' signed, 13 bits.
  inst_.imm =
      segment == 0 ? static_cast<int32_t>(bits(0, 12)) : static_cast<int32_t>(bits(0, 13) << 19) >> 19;
  if (segment == 0 && bits(12, 1)) return false;
  inst_.sc0 = bits(16, 1);
  inst_.nt = bits(17, 1);
  inst_.sc1 = bits(25, 1);
  const uint32_t saddr = bits(48, 7);
  constexpr uint32_t kOff = 0x7f;
  const bool has_saddr = segment != 0 && saddr != kOff;
  if (segment != 1) {
    if (sve) return false;
    if (!vector(bits(32, 8), has_saddr ? 1 : 2, false, &inst_.src[0])) return false;
  } else if (dialect_.has_sve ? sve : !has_saddr) {
    if (!vector(bits(32, 8), 1, false, &inst_.src[0])) return false;
  }
  if (has_saddr && !scalar(saddr, segment == 2 ? 2 : 1, &inst_.src[1])) return false;
  if (r.src[0] != Type::kNone && !vector(bits(40, 8), dwords(r.src[0]), acc, &inst_.data)) return false;
  const bool atomic = r.flags & kAtomic;
  if (r.dst == Type::kNone || (atomic && !inst_.sc0)) return true;
  return vector(bits(56, 8), dwords(r.dst), acc, &inst_.dst);
}

}  // namespace fmha::emu

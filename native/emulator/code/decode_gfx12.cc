// SPDX-License-Identifier: MIT OR Apache-2.0
// RDNA 4: what it encodes otherwise than RDNA 3, which is memory.
#include "code/decode_internal.h"

namespace fmha::emu {

bool Gfx12Decoder::any() {
  const uint32_t w = static_cast<uint32_t>(word_);
  switch (w >> 26) {
    case 0x31:
      inst_.bytes = 12;
      return buffer();
    case 0x3b:
      inst_.bytes = 12;
      return flat();
    case 0x3d:
      inst_.bytes = 8;
      return smem();
    case 0x37:
    case 0x38:
    case 0x3a:
      return false;  // gfx11's
    default:
      return Gfx11Decoder::any();
  }
}

bool Gfx12Decoder::smem() {
  if (!row(kSpaceSmem, bits(13, 6))) return false;
  const BoundRow& r = *inst_.row;
  inst_.scope = static_cast<uint8_t>(bits(21, 2));
  inst_.hint = static_cast<uint8_t>(bits(23, 2));
  if (r.dst != Type::kNone && !scalar(bits(6, 7), dwords(r.dst), &inst_.dst)) return false;
  const bool prefetches = r.immediate == Immediate::kLines;
  if (prefetches) inst_.offset0 = static_cast<uint8_t>(bits(6, 5));
  if (r.immediate == Immediate::kProbe) inst_.offset0 = static_cast<uint8_t>(bits(6, 7));
  if (r.src[0] == Type::kNone && !prefetches) return true;
  // The field counts pairs.
  if (r.src[0] != Type::kNone && !scalar(bits(0, 6) * 2, dwords(r.src[0]), &inst_.src[0])) return false;
  inst_.imm = static_cast<int32_t>(bits(32, 24) << 8) >> 8;
  const uint32_t soffset = bits(57, 7);
  return soffset == kOpNull || scalar(soffset, 1, &inst_.src[1]);
}

void Gfx12Decoder::cache_policy() {
  constexpr uint8_t kDevice = 2;
  inst_.scope = static_cast<uint8_t>(bits(50, 2));
  inst_.hint = static_cast<uint8_t>(bits(52, 3));
  inst_.sc0 = inst_.row->is(kAtomic) && inst_.hint & 1;  // it returns
  inst_.sc1 = inst_.scope >= kDevice;
}

bool Gfx12Decoder::buffer() {
  constexpr uint32_t kTyped = 0x80;
  const uint32_t opcode = bits(14, 8);
  if (!row(opcode & kTyped ? kSpaceMtbuf : kSpaceMubuf, opcode & ~kTyped)) return false;
  const BoundRow& r = *inst_.row;
  if (bits(22, 1)) return false;  // tfe
  if (r.format == Format::kMtbuf) typed(bits(55, 7), unified::kFromRdna3On);
  cache_policy();
  inst_.imm = static_cast<int32_t>(third_ >> 8);
  inst_.offen = bits(62, 1);
  inst_.idxen = bits(63, 1);
  const int address = inst_.offen + inst_.idxen;
  if (address && !vector(third_ & 0xff, address, false, &inst_.src[0])) return false;
  if (!scalar(bits(41, 9), 4, &inst_.src[1])) return false;
  if (!source(bits(0, 7), Type::kI32, &inst_.src[2])) return false;
  const uint32_t data = bits(32, 8);
  if (r.src[0] != Type::kNone && !vector(data, dwords(r.src[0]), false, &inst_.data)) return false;
  if (r.dst == Type::kNone || (r.is(kAtomic) && !inst_.sc0)) return true;
  return vector(data, dwords(r.dst), false, &inst_.dst);
}

bool Gfx12Decoder::flat() {
  const uint32_t segment = bits(24, 2);  // 0xec, 0xed, 0xee
  constexpr Space kSpaces[] = {kSpaceFlat, kSpaceScratch, kSpaceGlobal};
  if (segment > 2 || !row(kSpaces[segment], bits(14, 8))) return false;
  const BoundRow& r = *inst_.row;
  cache_policy();
  if (r.is(kCacheControl)) return true;
  inst_.imm = static_cast<int32_t>(third_) >> 8;
  const bool sve = bits(49, 1);  // of SCRATCH: there is a VGPR address
  const uint32_t saddr = bits(0, 7), address = third_ & 0xff;
  const bool has_saddr = saddr != kOpNull;
  if (segment == 0 && has_saddr) return false;
  if (r.is(kByLane)) {
    if (!has_saddr) return false;
  } else if (segment != 1) {
    if (sve || !vector(address, has_saddr ? 1 : 2, false, &inst_.src[0])) return false;
  } else if (sve && !vector(address, 1, false, &inst_.src[0])) {
    return false;
  }
  if (has_saddr && !scalar(saddr, segment == 2 ? 2 : 1, &inst_.src[1])) return false;
  if (r.src[0] != Type::kNone && !vector(bits(55, 8), dwords(r.src[0]), false, &inst_.data)) return false;
  if (r.dst == Type::kNone || (r.is(kAtomic) && !inst_.sc0)) return true;
  return vector(bits(32, 8), dwords(r.dst), false, &inst_.dst);
}

}  // namespace fmha::emu

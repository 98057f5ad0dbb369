// SPDX-License-Identifier: MIT OR Apache-2.0
// Where scalar memory instructions go.
#pragma once

#include "isa/scalar/scalar_operand.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

constexpr int kScalarLane = -1;  // the lane number of an access that no lane makes

inline uint64_t scalar_offset(const Wave& w, const Inst& i) {
  return i.src[1].kind == OperandKind::kNone ? 0 : read32(w, i.src[1]);
}

// Finds the address of an access, rounded down to dwords. False after a finding.
inline bool scalar_address(Wave& w, const Inst& i, uint64_t* out) {
  const uint64_t given = w.sgpr64(i.src[0].index) + static_cast<int64_t>(i.imm) + scalar_offset(w, i);
  *out = given & ~3ull;
  return !w.hears(kEventScalar) || w.tell_scalar(i, given);
}

// An access by a buffer resource: base + offset, of which offsets below `size` are in range.
struct ScalarBuffer {
  uint64_t base, size, offset;
};
inline bool scalar_buffer(Wave& w, const Inst& i, ScalarBuffer* out) {
  const uint32_t* v = &w.sgpr[i.src[0].index];
  const uint64_t base = v[0] | static_cast<uint64_t>(v[1] & 0xffff) << 32;
  const uint64_t stride = v[1] >> 16 & 0x3fff;
  const uint32_t offset = static_cast<uint32_t>(i.imm) + static_cast<uint32_t>(scalar_offset(w, i));
  *out = {base & ~3ull, stride ? v[2] * stride : v[2], offset & ~3u};
  return !w.hears(kEventScalar) || w.tell_scalar(i, base + offset);
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL

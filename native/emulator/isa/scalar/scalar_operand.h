// SPDX-License-Identifier: MIT OR Apache-2.0
// Reading and writing the operands of scalar instructions.
#pragma once

#include <ctime>

#include "isa/lanes.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

// Operands that are neither registers nor constants, by operand number.
inline uint64_t special_value(const Wave& w, uint32_t code) {
  switch (code) {
    case 235:
      return static_cast<uint64_t>(kSharedApertureHi) << 32;
    case 236:
      return static_cast<uint64_t>(kSharedApertureHi) << 32 | 0xffffffff;
    case 237:
      return static_cast<uint64_t>(kPrivateApertureHi) << 32;
    case 238:
      return static_cast<uint64_t>(kPrivateApertureHi) << 32 | 0xffffffff;
    case 251:
      return vcc_mask(w) == 0;
    case 252:
      return exec_mask(w) == 0;
    default:
      return w.scc;  // 253
  }
}

inline uint32_t read32(const Wave& w, const Operand& o) {
  if (o.kind == OperandKind::kSgpr) return w.sgpr[o.index];
  if (o.kind == OperandKind::kConst) return static_cast<uint32_t>(o.value);
  return static_cast<uint32_t>(special_value(w, o.index));
}
inline uint64_t read64(const Wave& w, const Operand& o) {
  if (o.kind == OperandKind::kSgpr) return w.sgpr64(o.index);
  if (o.kind == OperandKind::kConst) return o.value;
  return special_value(w, o.index);
}
inline void write32(Wave& w, const Operand& o, uint32_t v) { w.sgpr[o.index] = v; }
inline void write64(Wave& w, const Operand& o, uint64_t v) { w.set_sgpr64(o.index, v); }

// A clock of 100 MHz.
inline uint64_t real_time() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 100000000 + static_cast<uint64_t>(t.tv_nsec) / 10;
}

template <typename T>
inline T read(const Wave& w, const Operand& o) {
  if constexpr (sizeof(T) == 8)
    return static_cast<T>(read64(w, o));
  else
    return static_cast<T>(read32(w, o));
}
template <typename T>
inline void write(Wave& w, const Operand& o, T v) {
  if constexpr (sizeof(T) == 8)
    write64(w, o, static_cast<uint64_t>(v));
  else
    write32(w, o, static_cast<uint32_t>(v));
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL

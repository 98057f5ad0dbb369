// SPDX-License-Identifier: MIT OR Apache-2.0
// Addresses of buffer instructions: they go through a resource of four SGPRs (V#), which also bounds them.
#pragma once

#include "isa/memory/memory_access.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

// The fields of a V#.
struct Resource {
  uint64_t base, records;
  uint32_t stride, index_stride;
  bool swizzle, add_lane;
  uint8_t data_format, number_format;
  uint16_t select;  // three bits a destination component, x lowest

  explicit Resource(const uint32_t* s)
      : base(s[0] | static_cast<uint64_t>(s[1] & 0xffff) << 32),
        records(s[2]),
        stride(s[1] >> 16 & 0x3fff),
        index_stride(8u << (s[3] >> 21 & 3)),
        swizzle(s[1] >> 31),
        add_lane(s[3] >> 23 & 1),
        data_format(s[3] >> 15 & 15),
        number_format(s[3] >> 12 & 7),
        select(s[3] & 0xfff) {
    if (add_lane) stride |= uint32_t{data_format} << 14;  // which is then no data format
  }
};

// Where the lanes go: base + offset. `inside` are the active lanes wholly in range.
struct BufferAccess {
  uint64_t base, limit;  // a dword is in range if it ends at or before `limit`; see raw()
  uint64_t inside;
  alignas(64) uint32_t offset[kLanes];
};

inline uint32_t buffer_offset(const Wave& w, const Operand& op) {
  if (op.kind == OperandKind::kSgpr) return w.sgpr[op.index];
  return op.kind == OperandKind::kConst ? static_cast<uint32_t>(op.value) : 0;
}

// Raw buffers: (VGPR offset + instruction's offset, in 32 bits) + scalar offset + size <= records.
inline bool raw(Wave& w, const Inst& inst, const Resource& r, uint32_t bytes, BufferAccess& a) {
  const uint32_t scalar = buffer_offset(w, inst.src[2]), fixed = static_cast<uint32_t>(inst.imm);
  a.base = r.base + scalar;
  a.limit = r.records > scalar ? r.records - scalar : 0;
  if (inst.offen) {
    const uint32_t* v = w.vgpr[inst.src[0].index + (inst.idxen ? 1 : 0)];
    for (int l = 0; l < kLanes; ++l) a.offset[l] = v[l] + fixed;
  } else {
    for (int l = 0; l < kLanes; ++l) a.offset[l] = fixed;
  }
  a.inside = exec_mask(w);
  if (static_cast<uint64_t>(span_of(a.offset, a.inside).high) + bytes <= a.limit) [[likely]]
    return true;
  for_lanes(exec_mask(w), [&](int l) {
    if (static_cast<uint64_t>(a.offset[l]) + bytes > a.limit) a.inside &= ~(1ull << l);
  });
  return true;
}

inline bool is_private(const Wave& w, const Resource& r) {
  return r.add_lane && r.base == reinterpret_cast<uint64_t>(w.scratch);
}

// Private memory: here a lane's bytes are together, where the hardware interleaves the lanes by dwords. The
// scalar offset of a frame counts the bytes of all lanes.
inline uint32_t offset_of_frame(const Wave& w, const Resource& r, uint32_t scalar) {
  return is_private(w, r) ? scalar / kLanes : scalar;
}

// Structured buffers: the index, times the stride; the range is in elements. Swizzled: index_stride elements
// are interleaved dword by dword.
inline bool structured(Wave& w, const Inst& inst, const Resource& r, BufferAccess& a) {
  const uint32_t* vindex = inst.idxen ? w.vgpr[inst.src[0].index] : nullptr;
  const uint32_t* voffset = inst.offen ? w.vgpr[inst.src[0].index + (inst.idxen ? 1 : 0)] : nullptr;
  a.base = r.base + offset_of_frame(w, r, buffer_offset(w, inst.src[2]));
  a.limit = 0;
  a.inside = 0;
  bool far = false;
  for_lanes(exec_mask(w), [&](int l) {
    const uint64_t index = uint64_t{vindex ? vindex[l] : 0} + (r.add_lane ? l : 0);
    const uint64_t offset = (voffset ? voffset[l] : 0) + static_cast<uint32_t>(inst.imm);
    if (index >= r.records || (r.swizzle && offset >= r.stride)) return;
    uint64_t at = index * r.stride + offset;
    if (r.swizzle) {
      const uint64_t group = index / r.index_stride, within = index % r.index_stride;
      at = (group * r.stride + offset / 4 * 4) * r.index_stride + within * 4 + offset % 4;
    }
    far = far || at >> 32;
    a.offset[l] = static_cast<uint32_t>(at);
    a.inside |= 1ull << l;
  });
  if (far)
    w.fault(inst, hipErrorLaunchFailure,
            "a structured buffer access 4 GiB or more past the buffer's start is not implemented");
  return !far;
}

// RDNA's resource has other fields: of its kinds only raw buffers are modelled, whose bound is in bytes.
inline bool is_raw_rdna(Wave& w, const Inst& inst) {
  constexpr uint32_t kRawBounds = 3;  // OOB_SELECT
  const uint32_t* s = &w.sgpr[inst.src[1].index];
  const bool plain = s[1] >> 16 == 0 && !(s[3] >> 23 & 1);  // no stride, no swizzle, no lane's number
  if (plain && (s[3] >> 28 & 3) == kRawBounds) return true;
  w.fault(inst, hipErrorLaunchFailure,
          "a buffer resource that is not raw (stride 0, OOB_SELECT 3) is not modelled on this arch");
  return false;
}

inline bool resolve(Wave& w, const Inst& inst, uint32_t bytes, BufferAccess& a) {
  const Resource r(&w.sgpr[inst.src[1].index]);
  const bool rdna = kLanes == 32 || w.group->is_rdna;  // only RDNA has waves of 32
  if (rdna && !is_private(w, r) && !is_raw_rdna(w, inst)) return false;
  if (r.stride == 0 || !(inst.idxen || r.add_lane || r.swizzle)) [[likely]]
    return raw(w, inst, r, bytes, a);
  return structured(w, inst, r, a);
}

// True if all that the lanes of `inside` touch is in one allocation.
inline bool covered(Wave& w, const BufferAccess& a, uint32_t bytes) {
  const Span s = span_of(a.offset, a.inside);
  return w.global_covers(a.base + s.low, uint64_t{s.high} - s.low + bytes);
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL

// SPDX-License-Identifier: MIT OR Apache-2.0
// Buffer instructions: addresses through a resource of four SGPRs (V#) that also says how far they may reach.
// Out of range, loads give 0 and stores do nothing: dword by dword, atomics and elements below a dword whole.
// The cache bits mean nothing here; typed conversion (the *_format_* instructions) is not implemented.
#include "atomic_ops.h"
#include "host_rounding.h"
#include "memory_access.h"
#include "rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

// The fields of a V#.
struct Resource {
  uint64_t base, records;
  uint32_t stride, index_stride;
  bool swizzle, add_lane;

  explicit Resource(const uint32_t* s)
      : base(s[0] | static_cast<uint64_t>(s[1] & 0xffff) << 32),
        records(s[2]),
        stride(s[1] >> 16 & 0x3fff),
        index_stride(8u << (s[3] >> 21 & 3)),
        swizzle(s[1] >> 31),
        add_lane(s[3] >> 23 & 1) {
    if (add_lane) stride |= (s[3] >> 15 & 15) << 14;  // the data format's place
  }
};

// Where the lanes go: base + offset. `inside` are the active lanes wholly in range.
struct BufferAccess {
  uint64_t base, limit;  // a dword is in range if it ends at or before `limit`; see raw()
  uint64_t inside;
  alignas(64) uint32_t offset[kLanes];
};

uint32_t scalar_offset(const Wave& w, const Operand& op) {
  if (op.kind == OperandKind::kSgpr) return w.sgpr[op.index];
  return op.kind == OperandKind::kConst ? static_cast<uint32_t>(op.value) : 0;
}

// Raw buffers: (VGPR offset + instruction's offset, in 32 bits) + scalar offset + size <= records.
bool raw(Wave& w, const Inst& inst, const Resource& r, uint32_t bytes, BufferAccess& a) {
  const uint32_t scalar = scalar_offset(w, inst.src[2]), fixed = static_cast<uint32_t>(inst.imm);
  a.base = r.base + scalar;
  a.limit = r.records > scalar ? r.records - scalar : 0;
  if (inst.offen) {
    const uint32_t* v = w.vgpr[inst.src[0].index + (inst.idxen ? 1 : 0)];
    for (int l = 0; l < kLanes; ++l) a.offset[l] = v[l] + fixed;
  } else {
    for (int l = 0; l < kLanes; ++l) a.offset[l] = fixed;
  }
  a.inside = w.exec();
  if (static_cast<uint64_t>(span_of(a.offset, a.inside).high) + bytes <= a.limit) [[likely]]
    return true;
  for_lanes(w.exec(), [&](int l) {
    if (static_cast<uint64_t>(a.offset[l]) + bytes > a.limit) a.inside &= ~(1ull << l);
  });
  return true;
}

// Structured buffers: the index, times the stride; the range is in elements. Swizzled: index_stride elements
// are interleaved dword by dword.
bool structured(Wave& w, const Inst& inst, const Resource& r, BufferAccess& a) {
  const uint32_t* vindex = inst.idxen ? w.vgpr[inst.src[0].index] : nullptr;
  const uint32_t* voffset = inst.offen ? w.vgpr[inst.src[0].index + (inst.idxen ? 1 : 0)] : nullptr;
  a.base = r.base + scalar_offset(w, inst.src[2]);
  a.limit = 0;
  a.inside = 0;
  bool far = false;
  for_lanes(w.exec(), [&](int l) {
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
    w.fault(inst, 719, "a structured buffer access 4 GiB or more past the buffer's start is not implemented");
  return !far;
}

bool resolve(Wave& w, const Inst& inst, uint32_t bytes, BufferAccess& a) {
  const Resource r(&w.sgpr[inst.src[1].index]);
  if (r.stride == 0 || !(inst.idxen || r.add_lane || r.swizzle)) [[likely]]
    return raw(w, inst, r, bytes, a);
  return structured(w, inst, r, a);
}

// True if all that the lanes of `inside` touch is in one allocation.
bool covered(Wave& w, const BufferAccess& a, uint32_t bytes) {
  const Span s = span_of(a.offset, a.inside);
  return w.global_covers(a.base + s.low, uint64_t{s.high} - s.low + bytes);
}

// A lane not wholly in range: the dwords that are, and zeros.
template <Width kWidth>
[[gnu::noinline]] bool load_partly(Wave& w, const Inst& inst, const BufferAccess& a, int l, uint32_t* d) {
  uint8_t data[16] = {};
  for (uint32_t j = 0; j + 4 <= bytes_of(kWidth); j += 4) {
    if (uint64_t{a.offset[l]} + j + 4 > a.limit) break;
    const uint8_t* p = w.global(inst, a.base + a.offset[l] + j, 4, l);
    if (!p) return false;
    std::memcpy(data + j, p, 4);
  }
  load_lane<kWidth>(d, l, data);
  return true;
}

template <Width kWidth>
bool load_lanes(Wave& w, const Inst& inst, const BufferAccess& a, uint32_t* d) {
  bool ok = true;
  for_lanes(w.exec() & ~a.inside, [&](int l) { ok = ok && load_partly<kWidth>(w, inst, a, l, d); });
  if (!a.inside || !ok) return ok;
  if (covered(w, a, bytes_of(kWidth))) [[likely]] {
    if (!w.global_allows(inst, a.base, a.offset, a.inside, bytes_of(kWidth))) return false;
    gather<kWidth>(d, a.inside, reinterpret_cast<const uint8_t*>(a.base), a.offset);
    return true;
  }
  for_lanes(a.inside, [&](int l) {
    const uint8_t* p = ok ? w.global(inst, a.base + a.offset[l], bytes_of(kWidth), l) : nullptr;
    ok = p != nullptr;
    if (p) load_lane<kWidth>(d, l, p);
  });
  return ok;
}

template <Width kWidth>
void load(Wave& w, const Inst& inst) {
  BufferAccess a;
  if (!w.exec() || !resolve(w, inst, bytes_of(kWidth), a)) return;
  if (!inst.lds) [[likely]] {
    load_lanes<kWidth>(w, inst, a, w.vgpr[inst.dst.index]);
    return;
  }
  if (bytes_of(kWidth) > 4 || keeps_half(kWidth)) return w.fault(inst, 719, "this width cannot load to LDS");
  alignas(64) uint32_t values[kLanes];
  if (load_lanes<kWidth>(w, inst, a, values)) store_to_lds(w, inst, w.exec(), values);
}

template <Width kWidth>
void store(Wave& w, const Inst& inst) {
  BufferAccess a;
  if (!w.exec() || !resolve(w, inst, bytes_of(kWidth), a)) return;
  const uint32_t* s = w.vgpr[inst.data.index];
  for_lanes(w.exec() & ~a.inside, [&](int l) {
    for (uint32_t j = 0; j + 4 <= bytes_of(kWidth) && uint64_t{a.offset[l]} + j + 4 <= a.limit; j += 4) {
      uint8_t* p = w.global(inst, a.base + a.offset[l] + j, 4, l);
      if (!p) return;
      std::memcpy(p, &s[j / 4 * kLanes + l], 4);
    }
  });
  if (!a.inside) return;
  if (covered(w, a, bytes_of(kWidth))) [[likely]] {
    if (!w.global_allows(inst, a.base, a.offset, a.inside, bytes_of(kWidth))) return;
    return scatter<kWidth>(s, a.inside, reinterpret_cast<uint8_t*>(a.base), a.offset);
  }
  bool ok = true;
  for_lanes(a.inside, [&](int l) {
    uint8_t* p = ok ? w.global(inst, a.base + a.offset[l], bytes_of(kWidth), l) : nullptr;
    ok = p != nullptr;
    if (p) store_lane<kWidth>(s, l, p);
  });
}

template <class T, auto kOp>
void atomic(Wave& w, const Inst& inst) {
  BufferAccess a;
  if (!w.exec() || !resolve(w, inst, sizeof(T), a)) return;
  if (inst.lds) return w.fault(inst, 719, "an atomic cannot go to LDS");
  const HostRounding rounding(false);
  const u32* data = w.vgpr[inst.data.index];
  u32* result = inst.dst.kind == OperandKind::kNone ? nullptr : w.vgpr[inst.dst.index];
  bool ok = true;
  for_lanes(a.inside, [&](int l) {
    const u64 address = a.base + a.offset[l];
    u8* p = ok && aligned<T>(w, inst, address, l) ? w.global(inst, address, sizeof(T), l) : nullptr;
    ok = p != nullptr;
    if (p) atomic_lane<T, kOp>(data, l, p, result);
  });
  if (result) for_lanes(w.exec() & ~a.inside, [&](int l) { write_lane<T>(result, l, T{}); });
}

// Caches are coherent here.
void nothing(Wave&, const Inst&) {}

constexpr Type kNo = Type::kNone;

// clang-format off
#define LOAD(name, width, op) \
  {"buffer_" name, Format::kMubuf, {op, op}, type_of(width), {kNo, kNo, kNo}, load_flags(width), load<width>},
#define STORE(name, width, op) \
  {"buffer_" name, Format::kMubuf, {op, op}, kNo, {type_of(width), kNo, kNo}, kStore, store<width>},
#define ATOMIC(name, T, kOp, op)                                                                              \
  {"buffer_atomic_" name, Format::kMubuf, {op, op}, type_for<T>(), {atomic_data_type<T, kOp>(), kNo, kNo}, \
   kAtomic, atomic<T, kOp>},
#define CACHE(name, gfx90a, gfx942) \
  {name, Format::kMubuf, {gfx90a, gfx942}, kNo, {kNo, kNo, kNo}, 0, nothing},

constexpr Row kRows[] = {
    FMHA_EMU_LOADS(LOAD)
    FMHA_EMU_STORES(STORE)
    FMHA_EMU_MEMORY_ATOMICS(ATOMIC)
    ATOMIC("add_f32", float, kAdd, 0x4d)
    ATOMIC("pk_add_f16", u32, kAddPkF16, 0x4e)
    CACHE("buffer_wbl2", 0x28, 0x28)
    CACHE("buffer_invl2", 0x29, -1)
    CACHE("buffer_inv", -1, 0x29)
    CACHE("buffer_wbinvl1", 0x3e, 0x3e)
    CACHE("buffer_wbinvl1_vol", 0x3f, 0x3f)
};
#undef LOAD
#undef STORE
#undef ATOMIC
#undef CACHE
// clang-format on

}  // namespace

std::span<const Row> mubuf_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

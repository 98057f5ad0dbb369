// SPDX-License-Identifier: MIT OR Apache-2.0
// FLAT, GLOBAL and SCRATCH. A FLAT address whose upper half is an aperture's is an address in LDS or scratch.
#include "isa/host_rounding.h"
#include "isa/memory/atomic_ops.h"
#include "isa/memory/memory_access.h"
#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

// Where some lanes go, all checked: host memory at base + offset[lane], or at pointer[lane].
struct Places {
  Places(uint64_t which, int32_t at) : lanes(which), imm(at) {}
  uint64_t lanes;  // a bit each
  int32_t imm;     // added to every address
  uint8_t* base = nullptr;
  alignas(64) uint32_t offset[kLanes];
  uint8_t* pointer[kLanes];  // if base is null
  uint8_t* at(int l) const { return base ? base + offset[l] : pointer[l]; }
};

uint8_t* scratch_at(Wave& w, const Inst& inst, uint32_t offset, uint32_t bytes, int lane) {
  if (offset <= w.scratch_bytes && bytes <= w.scratch_bytes - offset) [[likely]] {
    if (w.hears(kEventScratch)) [[unlikely]]
      w.tell_scratch(inst, bytes, lane);
    return w.scratch + static_cast<size_t>(lane) * w.scratch_bytes + offset;
  }
  w.fault(inst, hipErrorIllegalAddress, "lane %d: scratch address 0x%x + %u is outside the lane's %u bytes",
          lane, offset, bytes, w.scratch_bytes);
  return nullptr;
}

bool resolve_scratch(Wave& w, const Inst& inst, uint32_t bytes, Places& p) {
  uint32_t fixed = static_cast<uint32_t>(p.imm);
  if (inst.src[1].kind != OperandKind::kNone) fixed += w.sgpr[inst.src[1].index];
  const uint32_t* v = inst.src[0].kind == OperandKind::kNone ? nullptr : w.vgpr[inst.src[0].index];
  bool ok = true;
  for_lanes(p.lanes, [&](int l) {
    const uint8_t* place = ok ? scratch_at(w, inst, fixed + (v ? v[l] : 0), bytes, l) : nullptr;
    ok = place != nullptr;
    if (ok) p.offset[l] = static_cast<uint32_t>(place - w.scratch);
  });
  p.base = w.scratch;
  return ok;
}

// `address` holds the active lanes' addresses.
template <bool kApertures>
[[gnu::noinline]] bool resolve_each(Wave& w, const Inst& inst, uint32_t bytes, const uint64_t* address,
                                    Places& p) {
  p.base = nullptr;
  bool ok = true;
  uint32_t in_lds[kLanes] = {};
  uint64_t lds_lanes = 0;
  for_lanes(p.lanes, [&](int l) {
    if (!ok) return;
    const uint32_t high = static_cast<uint32_t>(address[l] >> 32), low = static_cast<uint32_t>(address[l]);
    if (kApertures && high == kSharedApertureHi) {
      in_lds[l] = low;
      lds_lanes |= 1ull << l;
      p.pointer[l] = w.lds(inst, low, bytes, l);
    } else if (kApertures && high == kPrivateApertureHi) {
      p.pointer[l] = scratch_at(w, inst, low, bytes, l);
    } else {
      p.pointer[l] = w.global(inst, address[l], bytes, l);
    }
    ok = p.pointer[l] != nullptr;
  });
  if (lds_lanes && w.hears(kEventLds)) w.tell_lds(inst, in_lds, lds_lanes, bytes);
  return ok;
}

// Scalar base and, in `p`, a 32-bit offset a lane.
bool resolve_offsets(Wave& w, const Inst& inst, uint32_t bytes, Places& p) {
  const uint64_t base = w.sgpr64(inst.src[1].index) + static_cast<int64_t>(p.imm);
  const Span s = span_of(p.offset, p.lanes);
  if (w.global_covers(base + s.low, uint64_t{s.high} - s.low + bytes)) [[likely]] {
    p.base = reinterpret_cast<uint8_t*>(base);
    return w.global_allows(inst, base, p.offset, p.lanes, bytes);
  }
  uint64_t address[kLanes];
  for (int l = 0; l < kLanes; ++l) address[l] = base + p.offset[l];
  return resolve_each<false>(w, inst, bytes, address, p);
}

bool resolve_saddr(Wave& w, const Inst& inst, uint32_t bytes, Places& p) {
  std::memcpy(p.offset, w.vgpr[inst.src[0].index], sizeof p.offset);
  return resolve_offsets(w, inst, bytes, p);
}

// Lane after lane from a scalar base on, 0 if there is none (global_load_addtid).
bool resolve_by_lane(Wave& w, const Inst& inst, uint32_t bytes, Places& p) {
  if (!p.lanes) return false;
  for (uint32_t l = 0; l < kLanes; ++l) p.offset[l] = bytes * l;
  if (inst.src[1].kind != OperandKind::kNone) return resolve_offsets(w, inst, bytes, p);
  uint64_t address[kLanes];
  for (int l = 0; l < kLanes; ++l)
    address[l] = static_cast<uint64_t>(static_cast<int64_t>(p.imm)) + p.offset[l];
  return resolve_each<false>(w, inst, bytes, address, p);
}

// A 64-bit address a lane.
template <bool kApertures>
bool resolve_vaddr(Wave& w, const Inst& inst, uint32_t bytes, Places& p) {
  const uint32_t *low = w.vgpr[inst.src[0].index], *high = w.vgpr[inst.src[0].index + 1];
  alignas(64) uint64_t address[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    address[l] = (low[l] | static_cast<uint64_t>(high[l]) << 32) + static_cast<int64_t>(p.imm);
  }
  uint64_t first = ~0ull, last = 0;
  const auto widen = [&](int l) {
    first = address[l] < first ? address[l] : first;
    last = address[l] > last ? address[l] : last;
  };
  if (p.lanes == kAllLanes) [[likely]] {
    for (int l = 0; l < kLanes; ++l) widen(l);
  } else {
    for_lanes(p.lanes, widen);
  }
  if (last - first < 0xffff0000u && w.global_covers(first, last - first + bytes)) [[likely]] {
    for (int l = 0; l < kLanes; ++l) p.offset[l] = static_cast<uint32_t>(address[l] - first);
    p.base = reinterpret_cast<uint8_t*>(first);
    return w.global_allows(inst, first, p.offset, p.lanes, bytes);
  }
  return resolve_each<kApertures>(w, inst, bytes, address, p);
}

template <Format kFormat>
bool resolve(Wave& w, const Inst& inst, uint32_t bytes, Places& p) {
  if (!p.lanes) return false;
  if constexpr (kFormat == Format::kScratch) {
    return resolve_scratch(w, inst, bytes, p);
  } else {
    if (inst.src[1].kind != OperandKind::kNone) return resolve_saddr(w, inst, bytes, p);
    return resolve_vaddr < kFormat == Format::kFlat > (w, inst, bytes, p);
  }
}

template <Width kWidth>
void load_lanes(uint32_t* d, const Places& p) {
  if (p.base) [[likely]]
    return gather<kWidth>(d, p.lanes, p.base, p.offset);
  for_lanes(p.lanes, [&](int l) { load_lane<kWidth>(d, l, p.pointer[l]); });
}

template <Width kWidth, Format kFormat>
void load(Wave& w, const Inst& inst) {
  Places p(exec_mask(w), inst.imm);
  if (resolve<kFormat>(w, inst, bytes_of(kWidth), p)) load_lanes<kWidth>(w.vgpr[inst.dst.index], p);
}

template <Width kWidth, Format kFormat>
void load_to_lds(Wave& w, const Inst& inst) {
  Places p(exec_mask(w), inst.imm);
  if (!resolve<kFormat>(w, inst, bytes_of(kWidth), p)) return;
  if constexpr (bytes_of(kWidth) > 4) {
    alignas(64) uint32_t values[bytes_of(kWidth) / 4 * kMostLanes];
    load_lanes<kWidth>(values, p);
    store_wide_to_lds(w, inst, p.lanes, values, bytes_of(kWidth) / 4);
  } else {
    alignas(64) uint32_t values[kLanes];
    load_lanes<kWidth>(values, p);
    store_to_lds(w, inst, p.lanes, values);
  }
}

template <Width kWidth>
void store_lanes(const uint32_t* s, const Places& p) {
  if (p.base) [[likely]]
    return scatter<kWidth>(s, p.lanes, p.base, p.offset);
  for_lanes(p.lanes, [&](int l) { store_lane<kWidth>(s, l, p.pointer[l]); });
}

template <Width kWidth, Format kFormat>
void store(Wave& w, const Inst& inst) {
  Places p(exec_mask(w), inst.imm);
  if (resolve<kFormat>(w, inst, bytes_of(kWidth), p)) store_lanes<kWidth>(w.vgpr[inst.data.index], p);
}

// The lane that element j comes from, of the eight elements of lane l in a wave of 32.
template <class Element>
constexpr int source_lane(int l, int j) {
  if constexpr (sizeof(Element) == 2) return l / 8 * 8 + j;
  return l / 16 * 16 + l / 8 % 2 * 4 + j / 4 * 8 + j % 4;
}

// gfx12's transposing loads: each of the first 32 lanes loads eight elements that lie side by side, and gets
// one of each of eight lanes, its own number modulo 8. In waves of 64 the lanes from 32 on get the last four
// of what 32 lanes would get, and load nothing. Sources: the RDNA4 ISA guide, 11.6.2, what was published of
// measurements on gfx1201 in waves of 32, and for those of 64 the layouts of both waves in AMD's matrix
// instruction calculator.
template <class Element>
void load_transposed(Wave& w, const Inst& inst) {
  constexpr int kSources = 32, kRun = 8, kOfLane = kRun * kSources / kLanes;
  if (!exec_mask(w)) return;
  if (!all_active(w))
    return w.fault(inst, hipErrorLaunchFailure, "a transposing load needs all lanes on, or none");
  Places p(~0u, inst.imm);
  Element loaded[kSources][kRun];
  if (!resolve<Format::kGlobal>(w, inst, sizeof loaded[0], p)) return;
  for (int l = 0; l < kSources; ++l) std::memcpy(loaded[l], p.at(l), sizeof loaded[l]);
  uint32_t* dst = w.vgpr[inst.dst.index];
  for (int l = 0; l < kLanes; ++l) {
    Element column[kOfLane];
    for (int j = 0; j < kOfLane; ++j) {
      const int from = source_lane<Element>(l % kSources, l / kSources * kOfLane + j);
      column[j] = loaded[from][l % kRun];
    }
    for (size_t r = 0; r < sizeof column / 4; ++r)
      std::memcpy(&dst[r * kMostLanes + static_cast<size_t>(l)], &column[r * 4 / sizeof(Element)], 4);
  }
}

// gfx12's blocks: of 32 registers those that have a bit in M0. Each has its place in memory, transferred or
// not.
template <Format kFormat>
void load_block(Wave& w, const Inst& inst) {
  alignas(64) uint32_t values[32][kMostLanes];  // what is loaded may overwrite the address
  const uint32_t which = w.sgpr[kM0];
  for_lanes(which, [&](int r) {
    Places p(exec_mask(w), inst.imm + 4 * r);
    if (w.state != WaveState::kFaulted && resolve<kFormat>(w, inst, 4, p))
      load_lanes<Width::kB32>(values[r], p);
  });
  if (w.state == WaveState::kFaulted) return;
  for_lanes(which, [&](int r) {
    uint32_t* d = w.vgpr[inst.dst.index + r];
    for_lanes(exec_mask(w), [&](int l) { d[l] = values[r][l]; });
  });
}
template <Format kFormat>
void store_block(Wave& w, const Inst& inst) {
  for_lanes(w.sgpr[kM0], [&](int r) {
    Places p(exec_mask(w), inst.imm + 4 * r);
    if (w.state != WaveState::kFaulted && resolve<kFormat>(w, inst, 4, p))
      store_lanes<Width::kB32>(w.vgpr[inst.data.index + r], p);
  });
}

void load_by_lane(Wave& w, const Inst& inst) {
  Places p(exec_mask(w), inst.imm);
  if (resolve_by_lane(w, inst, 4, p)) load_lanes<Width::kB32>(w.vgpr[inst.dst.index], p);
}
void store_by_lane(Wave& w, const Inst& inst) {
  Places p(exec_mask(w), inst.imm);
  if (resolve_by_lane(w, inst, 4, p)) store_lanes<Width::kB32>(w.vgpr[inst.data.index], p);
}

template <class T, auto kOp, Format kFormat>
void atomic(Wave& w, const Inst& inst) {
  Places p(exec_mask(w), inst.imm);
  if (!resolve<kFormat>(w, inst, sizeof(T), p)) return;
  const HostRounding rounding(false);
  const u32* data = w.vgpr[inst.data.index];
  u32* result = inst.dst.kind == OperandKind::kNone ? nullptr : w.vgpr[inst.dst.index];
  bool ok = true;
  for_lanes(p.lanes, [&](int l) {
    ok = ok && aligned<T>(w, inst, reinterpret_cast<u64>(p.at(l)), l);
    if (ok) atomic_lane<T, kOp>(data, l, p.at(l), result);
  });
}

void nothing(Wave&, const Inst&) {}
void no_order(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorLaunchFailure,
          "a sum in the order of primitives, which only the graphics pipeline has");
}

constexpr Type kNo = Type::kNone;
constexpr Type kTransposed16 = kLanes == 32 ? Type::kB128 : Type::kI64;
constexpr Type kTransposed8 = kLanes == 32 ? Type::kI64 : Type::kI32;

// clang-format off
#define LOAD(prefix, format, name, width) \
  sized({prefix name, type_of(width), {kNo, kNo, kNo}, load_flags(width), load<width, format>}, bytes_of(width)),
#define STORE(prefix, format, name, width) \
  sized({prefix name, kNo, {type_of(width), kNo, kNo}, store_flags(width), store<width, format>}, bytes_of(width)),
#define ATOMIC(prefix, format, name, T, kOp)                                           \
  sized({prefix "atomic_" name, type_for<T>(), {atomic_data_type<T, kOp>(), kNo, kNo}, \
         atomic_flags<T>(), atomic<T, kOp, format>}, sizeof(T)),
#define GLOBAL_TO_LDS(name, width)                                          \
  sized({"global_load_lds_" name, kNo, {kNo, kNo, kNo}, kLoad | kToLds,     \
         load_to_lds<width, Format::kGlobal>}, bytes_of(width)),
#define TO_LDS(name, width)                                                 \
  GLOBAL_TO_LDS(name, width)                                                \
  sized({"scratch_load_lds_" name, kNo, {kNo, kNo, kNo}, kLoad | kToLds,    \
         load_to_lds<width, Format::kScratch>}, bytes_of(width)),

#define BLOCKS(prefix, format)                                                                              \
  sized({prefix "load_block", Type::kB1024, {kNo, kNo, kNo}, kLoad, load_block<format>}, 4),                \
  sized({prefix "store_block", kNo, {Type::kB1024, kNo, kNo}, kStore, store_block<format>}, 4),

#define FLAT_LOAD(name, width) LOAD("flat_", Format::kFlat, name, width)
#define FLAT_STORE(name, width) STORE("flat_", Format::kFlat, name, width)
#define FLAT_ATOMIC(name, T, kOp) ATOMIC("flat_", Format::kFlat, name, T, kOp)
#define GLOBAL_LOAD(name, width) LOAD("global_", Format::kGlobal, name, width)
#define GLOBAL_STORE(name, width) STORE("global_", Format::kGlobal, name, width)
#define GLOBAL_ATOMIC(name, T, kOp) ATOMIC("global_", Format::kGlobal, name, T, kOp)
#define SCRATCH_LOAD(name, width) LOAD("scratch_", Format::kScratch, name, width)
#define SCRATCH_STORE(name, width) STORE("scratch_", Format::kScratch, name, width)

constexpr Row kRows[] = {
    FMHA_EMU_LOADS(FLAT_LOAD)
    FMHA_EMU_STORES(FLAT_STORE)
    FMHA_EMU_MEMORY_ATOMICS(FLAT_ATOMIC)
    FMHA_EMU_RDNA_ATOMICS(FLAT_ATOMIC)
    ATOMIC("flat_", Format::kFlat, "cmpswap_f64", double, kCompareSwap)
    ATOMIC("flat_", Format::kFlat, "add_f32", float, kAdd)
    ATOMIC("flat_", Format::kFlat, "pk_add_f16", u32, kAddPkF16)
    ATOMIC("flat_", Format::kFlat, "pk_add_bf16", u32, kAddPkBf16)
    FMHA_EMU_LOADS(GLOBAL_LOAD)
    FMHA_EMU_STORES(GLOBAL_STORE)
    FMHA_EMU_MEMORY_ATOMICS(GLOBAL_ATOMIC)
    FMHA_EMU_RDNA_ATOMICS(GLOBAL_ATOMIC)
    ATOMIC("global_", Format::kGlobal, "cmpswap_f64", double, kCompareSwap)
    ATOMIC("global_", Format::kGlobal, "add_f32", float, kAdd)
    ATOMIC("global_", Format::kGlobal, "pk_add_f16", u32, kAddPkF16)
    ATOMIC("global_", Format::kGlobal, "pk_add_bf16", u32, kAddPkBf16)
    TO_LDS("ubyte", Width::kU8)
    TO_LDS("sbyte", Width::kI8)
    TO_LDS("ushort", Width::kU16)
    TO_LDS("sshort", Width::kI16)
    TO_LDS("dword", Width::kB32)
    sized({"global_load_addtid_b32", Type::kI32, {kNo, kNo, kNo}, kLoad | kByLane, load_by_lane}, 4),
    sized({"global_store_addtid_b32", kNo, {Type::kI32, kNo, kNo}, kStore | kByLane, store_by_lane}, 4),
    GLOBAL_TO_LDS("dwordx3", Width::kB96)
    GLOBAL_TO_LDS("dwordx4", Width::kB128)
    sized({"global_load_tr_b128", kTransposed16, {kNo, kNo, kNo}, kLoad, load_transposed<uint16_t>}, 16),
    sized({"global_load_tr_b64", kTransposed8, {kNo, kNo, kNo}, kLoad, load_transposed<uint8_t>}, 8),
    BLOCKS("global_", Format::kGlobal)
    BLOCKS("scratch_", Format::kScratch)
    {"global_atomic_ordered_add_b64", Type::kI64, {Type::kI64, kNo, kNo}, kAtomic | kRefused, no_order},
    // gfx12 has them here. Caches are coherent on this device.
    {"global_inv", kNo, {kNo, kNo, kNo}, kCacheControl, nothing},
    {"global_wb", kNo, {kNo, kNo, kNo}, kCacheControl | kCounted, nothing},
    {"global_wbinv", kNo, {kNo, kNo, kNo}, kCacheControl | kCounted, nothing},
    FMHA_EMU_LOADS(SCRATCH_LOAD)
    FMHA_EMU_STORES(SCRATCH_STORE)
};
// clang-format on

}  // namespace

std::span<const Row> flat_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

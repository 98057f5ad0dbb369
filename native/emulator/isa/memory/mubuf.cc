// SPDX-License-Identifier: MIT OR Apache-2.0
// Buffer instructions that move data as it is. Out of range, loads give 0 and stores do nothing: dword by
// dword, atomics and elements below a dword whole. The cache bits mean nothing here.
#include "core/dialect.h"
#include "isa/host_rounding.h"
#include "isa/memory/atomic_ops.h"
#include "isa/memory/buffer_access.h"
#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

// Serves a lane that is partly in range: loads the dwords in range, and zeros.
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
  for_lanes(exec_mask(w) & ~a.inside, [&](int l) { ok = ok && load_partly<kWidth>(w, inst, a, l, d); });
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
  if (!exec_mask(w) || !resolve(w, inst, bytes_of(kWidth), a)) return;
  if (!inst.lds) [[likely]] {
    load_lanes<kWidth>(w, inst, a, w.vgpr[inst.dst.index]);
    return;
  }
  constexpr bool kWide = bytes_of(kWidth) == 12 || bytes_of(kWidth) == 16;
  const bool fits =
      kWide ? dialect_of(w.group->isa).loads_to_lds_wide : bytes_of(kWidth) <= 4 && !keeps_half(kWidth);
  if (!fits) return w.fault(inst, hipErrorLaunchFailure, "this width cannot load to LDS");
  if constexpr (kWide) {
    alignas(64) uint32_t values[bytes_of(kWidth) / 4 * kMostLanes];
    if (load_lanes<kWidth>(w, inst, a, values))
      store_wide_to_lds(w, inst, exec_mask(w), values, bytes_of(kWidth) / 4);
    return;
  }
  alignas(64) uint32_t values[kLanes];
  if (load_lanes<kWidth>(w, inst, a, values)) store_to_lds(w, inst, exec_mask(w), values);
}

template <Width kWidth>
void store(Wave& w, const Inst& inst) {
  BufferAccess a;
  if (!exec_mask(w) || !resolve(w, inst, bytes_of(kWidth), a)) return;
  const uint32_t* s = w.vgpr[inst.data.index];
  for_lanes(exec_mask(w) & ~a.inside, [&](int l) {
    for (uint32_t j = 0; j + 4 <= bytes_of(kWidth) && uint64_t{a.offset[l]} + j + 4 <= a.limit; j += 4) {
      uint8_t* p = w.global(inst, a.base + a.offset[l] + j, 4, l);
      if (!p) return;
      std::memcpy(p, &s[j / 4 * kMostLanes + l], 4);
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
  if (!exec_mask(w) || !resolve(w, inst, sizeof(T), a)) return;
  if (inst.lds) return w.fault(inst, hipErrorLaunchFailure, "an atomic cannot go to LDS");
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
  if (result) for_lanes(exec_mask(w) & ~a.inside, [&](int l) { write_lane<T>(result, l, T{}); });
}

// Caches are coherent here.
void nothing(Wave&, const Inst&) {}

void no_store_from_lds(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorLaunchFailure,
          "a store from LDS to memory: the manuals of these GPUs do not describe it");
}

constexpr Type kNo = Type::kNone;

// clang-format off
#define LOAD(name, width)                                                                                 \
  sized({"buffer_" name, type_of(width), {kNo, kNo, kNo}, load_flags(width) | kMayGoToLds, load<width>}, \
        bytes_of(width)),
#define STORE(name, width) \
  sized({"buffer_" name, kNo, {type_of(width), kNo, kNo}, store_flags(width), store<width>}, bytes_of(width)),
#define ATOMIC(name, T, kOp)                                                                   \
  sized({"buffer_atomic_" name, type_for<T>(), {atomic_data_type<T, kOp>(), kNo, kNo}, atomic_flags<T>(), \
         atomic<T, kOp>}, sizeof(T)),
#define LOAD_TO_LDS(name, width)                                                             \
  sized({"buffer_load_lds_" name, kNo, {kNo, kNo, kNo}, kLoad | kToLds, load<width>}, bytes_of(width)),
#define CACHE(name, flags) \
  {name, kNo, {kNo, kNo, kNo}, kCacheControl | (flags), nothing},

constexpr Row kRows[] = {
    FMHA_EMU_LOADS(LOAD)
    FMHA_EMU_STORES(STORE)
    FMHA_EMU_MEMORY_ATOMICS(ATOMIC)
    FMHA_EMU_RDNA_ATOMICS(ATOMIC)
    ATOMIC("add_f32", float, kAdd)
    ATOMIC("pk_add_f16", u32, kAddPkF16)
    ATOMIC("pk_add_bf16", u32, kAddPkBf16)
    ATOMIC("cmpswap_f64", double, kCompareSwap)
    LOAD_TO_LDS("u8", Width::kU8)
    LOAD_TO_LDS("i8", Width::kI8)
    LOAD_TO_LDS("u16", Width::kU16)
    LOAD_TO_LDS("i16", Width::kI16)
    LOAD_TO_LDS("b32", Width::kB32)
    {"buffer_store_lds_dword", kNo, {kNo, kNo, kNo}, kStore | kRefused,
     no_store_from_lds},
    CACHE("buffer_wbl2", kCounted)
    CACHE("buffer_invl2", 0)
    CACHE("buffer_inv", 0)
    CACHE("buffer_wbinvl1", 0)
    CACHE("buffer_wbinvl1_vol", 0)
    CACHE("buffer_gl0_inv", 0)
    CACHE("buffer_gl1_inv", 0)
};
#undef LOAD
#undef STORE
#undef ATOMIC
#undef LOAD_TO_LDS
#undef CACHE
// clang-format on

}  // namespace

std::span<const Row> mubuf_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

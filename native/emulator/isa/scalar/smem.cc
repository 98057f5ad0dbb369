// SPDX-License-Identifier: MIT OR Apache-2.0
// SMEM: scalar loads through an address or a buffer resource, clocks, cache control.
#include "isa/scalar/smem.h"

#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

// s_load_dword*
template <int kDwords>
void s_load(Wave& w, const Inst& i) {
  uint64_t address;
  if (!scalar_address(w, i, &address)) return;
  const uint8_t* p = w.global(i, address, kDwords * 4, kScalarLane);
  if (p) std::memcpy(&w.sgpr[i.dst.index], p, kDwords * 4);
}

// s_buffer_load_dword*: each dword outside the buffer reads 0.
template <int kDwords>
void s_buffer_load(Wave& w, const Inst& i) {
  ScalarBuffer b;
  if (!scalar_buffer(w, i, &b)) return;
  uint32_t data[kDwords];
  for (uint64_t d = 0; d < kDwords; ++d) {
    const uint64_t offset = b.offset + d * 4;
    data[d] = 0;
    if (offset + 4 > b.size) continue;
    const uint8_t* p = w.global(i, b.base + offset, 4, kScalarLane);
    if (!p) return;
    std::memcpy(&data[d], p, 4);
  }
  std::memcpy(&w.sgpr[i.dst.index], data, sizeof data);
}

// Below a dword (gfx12): T at its own address, extended.
template <class T>
void s_load_part(Wave& w, const Inst& i) {
  const uint64_t address = w.sgpr64(i.src[0].index) + static_cast<int64_t>(i.imm) + scalar_offset(w, i);
  if (w.hears(kEventScalar) && !w.tell_scalar(i, address & ~3ull)) return;
  const uint8_t* p = w.global(i, address, sizeof(T), kScalarLane);
  T value;
  if (!p) return;
  std::memcpy(&value, p, sizeof value);
  write32(w, i.dst, static_cast<uint32_t>(static_cast<int32_t>(value)));
}
template <class T>
void s_buffer_load_part(Wave& w, const Inst& i) {
  const uint32_t* v = &w.sgpr[i.src[0].index];
  const uint64_t base = v[0] | static_cast<uint64_t>(v[1] & 0xffff) << 32, stride = v[1] >> 16 & 0x3fff;
  const uint32_t offset = static_cast<uint32_t>(i.imm) + static_cast<uint32_t>(scalar_offset(w, i));
  T value{};
  if (offset + sizeof(T) <= (stride ? v[2] * stride : v[2])) {
    if (w.hears(kEventScalar) && !w.tell_scalar(i, (base + offset) & ~3ull)) return;
    const uint8_t* p = w.global(i, base + offset, sizeof(T), kScalarLane);
    if (!p) return;
    std::memcpy(&value, p, sizeof value);
  }
  write32(w, i.dst, static_cast<uint32_t>(static_cast<int32_t>(value)));
}

// The number of instructions the wave has executed: repeatable, and increasing.
void s_memtime(Wave& w, const Inst& i) { write64(w, i.dst, w.clock + w.instructions); }

void s_memrealtime(Wave& w, const Inst& i) { write64(w, i.dst, real_time()); }

void nothing(Wave&, const Inst&) {}

constexpr Type N = Type::kNone;
#define ROW(name, d, base, ...) {name, d, {base, N, N}, kLoad, __VA_ARGS__}
#define ROW_PREFETCH(name, base) {name, N, {base, N, N}, 0, nothing, Immediate::kLines}
#define ROW_PLAIN(name, d, ...) {name, d, {N, N, N}, __VA_ARGS__}

const Row kRows[] = {
    ROW("s_load_dword", Type::kI32, Type::kI64, s_load<1>),
    ROW("s_load_dwordx2", Type::kI64, Type::kI64, s_load<2>),
    ROW("s_load_dwordx4", Type::kB128, Type::kI64, s_load<4>),
    ROW("s_load_dwordx8", Type::kB256, Type::kI64, s_load<8>),
    ROW("s_load_dwordx16", Type::kB512, Type::kI64, s_load<16>),
    ROW("s_buffer_load_dword", Type::kI32, Type::kB128, s_buffer_load<1>),
    ROW("s_buffer_load_dwordx2", Type::kI64, Type::kB128, s_buffer_load<2>),
    ROW("s_buffer_load_dwordx4", Type::kB128, Type::kB128, s_buffer_load<4>),
    ROW("s_buffer_load_dwordx8", Type::kB256, Type::kB128, s_buffer_load<8>),
    ROW("s_buffer_load_dwordx16", Type::kB512, Type::kB128, s_buffer_load<16>),
    ROW("s_load_b96", Type::kB96, Type::kI64, s_load<3>),
    ROW("s_load_i8", Type::kI32, Type::kI64, s_load_part<int8_t>),
    ROW("s_load_u8", Type::kI32, Type::kI64, s_load_part<uint8_t>),
    ROW("s_load_i16", Type::kI32, Type::kI64, s_load_part<int16_t>),
    ROW("s_load_u16", Type::kI32, Type::kI64, s_load_part<uint16_t>),
    ROW("s_buffer_load_b96", Type::kB96, Type::kB128, s_buffer_load<3>),
    ROW("s_buffer_load_i8", Type::kI32, Type::kB128, s_buffer_load_part<int8_t>),
    ROW("s_buffer_load_u8", Type::kI32, Type::kB128, s_buffer_load_part<uint8_t>),
    ROW("s_buffer_load_i16", Type::kI32, Type::kB128, s_buffer_load_part<int16_t>),
    ROW("s_buffer_load_u16", Type::kI32, Type::kB128, s_buffer_load_part<uint16_t>),
    ROW_PLAIN("s_dcache_inv", N, kCacheControl, nothing),
    ROW_PLAIN("s_dcache_wb", N, kCacheControl, nothing),
    ROW_PLAIN("s_dcache_inv_vol", N, kCacheControl, nothing),
    ROW_PLAIN("s_gl1_inv", N, kCacheControl, nothing),
    ROW_PLAIN("s_dcache_wb_vol", N, kCacheControl, nothing),
    ROW_PLAIN("s_memtime", Type::kI64, 0, s_memtime),
    ROW_PLAIN("s_memrealtime", Type::kI64, 0, s_memrealtime),
    // gfx12: fetches lines into a cache; the program sees no result.
    ROW_PREFETCH("s_prefetch_inst", Type::kI64),
    ROW_PREFETCH("s_prefetch_inst_pc_rel", N),
    ROW_PREFETCH("s_prefetch_data", Type::kI64),
    ROW_PREFETCH("s_buffer_prefetch_data", Type::kB128),
    ROW_PREFETCH("s_prefetch_data_pc_rel", N),
    // Prefetches a translation; the program sees no result.
    {"s_atc_probe", N, {Type::kI64, N, N}, 0, nothing, Immediate::kProbe},
    {"s_atc_probe_buffer", N, {Type::kB128, N, N}, 0, nothing, Immediate::kProbe},
};

}  // namespace

std::span<const Row> smem_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

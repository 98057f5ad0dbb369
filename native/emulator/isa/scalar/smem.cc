// SPDX-License-Identifier: MIT OR Apache-2.0
// SMEM: scalar loads through an address or a buffer resource, clocks, cache control.
#include "isa/scalar/smem.h"

#include <ctime>

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

// The number of instructions the wave has executed: repeatable, and increasing.
void s_memtime(Wave& w, const Inst& i) { write64(w, i.dst, w.clock + w.instructions); }

// A clock of 100 MHz.
void s_memrealtime(Wave& w, const Inst& i) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  write64(w, i.dst, static_cast<uint64_t>(t.tv_sec) * 100000000 + static_cast<uint64_t>(t.tv_nsec) / 10);
}

void nothing(Wave&, const Inst&) {}

constexpr Type N = Type::kNone;
#define ROW(name, d, base, ...) {name, d, {base, N, N}, kLoad, __VA_ARGS__}
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
    ROW_PLAIN("s_dcache_inv", N, kCacheControl, nothing),
    ROW_PLAIN("s_dcache_wb", N, kCacheControl, nothing),
    ROW_PLAIN("s_dcache_inv_vol", N, kCacheControl, nothing),
    ROW_PLAIN("s_gl1_inv", N, kCacheControl, nothing),
    ROW_PLAIN("s_dcache_wb_vol", N, kCacheControl, nothing),
    ROW_PLAIN("s_memtime", Type::kI64, 0, s_memtime),
    ROW_PLAIN("s_memrealtime", Type::kI64, 0, s_memrealtime),
    // Prefetches a translation; the program sees no result.
    {"s_atc_probe", N, {Type::kI64, N, N}, 0, nothing, Immediate::kProbe},
    {"s_atc_probe_buffer", N, {Type::kB128, N, N}, 0, nothing, Immediate::kProbe},
};

}  // namespace

std::span<const Row> smem_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

// SPDX-License-Identifier: MIT OR Apache-2.0
// SMEM: scalar loads through an address or a buffer resource, clocks, cache control.
#include <ctime>

#include "rows.h"
#include "scalar_operand.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr int kScalar = -1;  // the lane number of an access that no lane makes

uint32_t offset_of(const Wave& w, const Inst& i) {
  const uint32_t soffset = i.src[1].kind == OperandKind::kNone ? 0 : read32(w, i.src[1]);
  return static_cast<uint32_t>(i.imm) + soffset;
}

// s_load_dword*: address and offset are rounded down to dwords.
template <int kDwords>
void s_load(Wave& w, const Inst& i) {
  const uint64_t soffset = i.src[1].kind == OperandKind::kNone ? 0 : read32(w, i.src[1]);
  const uint64_t address = w.sgpr64(i.src[0].index) + static_cast<int64_t>(i.imm) + soffset;
  if (w.watch && !w.watch_scalar(i, address)) return;
  const uint8_t* p = w.global(i, address & ~3ull, kDwords * 4, kScalar);
  if (p) std::memcpy(&w.sgpr[i.dst.index], p, kDwords * 4);
}

// s_buffer_load_dword*: each dword outside the buffer reads 0.
template <int kDwords>
void s_buffer_load(Wave& w, const Inst& i) {
  const uint32_t* v = &w.sgpr[i.src[0].index];
  const uint64_t base = v[0] | static_cast<uint64_t>(v[1] & 0xffff) << 32;
  const uint64_t stride = v[1] >> 16 & 0x3fff;
  const uint64_t size = stride ? v[2] * stride : v[2];
  const uint64_t offset_given = offset_of(w, i), first = offset_given & ~3ull;
  if (w.watch && !w.watch_scalar(i, base + offset_given)) return;
  uint32_t data[kDwords];
  for (uint64_t d = 0; d < kDwords; ++d) {
    const uint64_t offset = first + d * 4;
    data[d] = 0;
    if (offset + 4 > size) continue;
    const uint8_t* p = w.global(i, (base & ~3ull) + offset, 4, kScalar);
    if (!p) return;
    std::memcpy(&data[d], p, 4);
  }
  std::memcpy(&w.sgpr[i.dst.index], data, sizeof data);
}

// Counts what the wave has executed: repeatable, and it grows.
void s_memtime(Wave& w, const Inst& i) { write64(w, i.dst, w.clock + w.instructions); }

// A clock of 100 MHz.
void s_memrealtime(Wave& w, const Inst& i) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  write64(w, i.dst, static_cast<uint64_t>(t.tv_sec) * 100000000 + static_cast<uint64_t>(t.tv_nsec) / 10);
}

void nothing(Wave&, const Inst&) {}

constexpr Type N = Type::kNone;
#define ROW(name, op, d, base, ...) {name, Format::kSmem, {op, op}, d, {base, N, N}, kLoad, __VA_ARGS__}
#define ROW_PLAIN(name, op, d, ...) {name, Format::kSmem, {op, op}, d, {N, N, N}, 0, __VA_ARGS__}

const Row kRows[] = {
    ROW("s_load_dword", 0, Type::kI32, Type::kI64, s_load<1>),
    ROW("s_load_dwordx2", 1, Type::kI64, Type::kI64, s_load<2>),
    ROW("s_load_dwordx4", 2, Type::kB128, Type::kI64, s_load<4>),
    ROW("s_load_dwordx8", 3, Type::kB256, Type::kI64, s_load<8>),
    ROW("s_load_dwordx16", 4, Type::kB512, Type::kI64, s_load<16>),
    ROW("s_buffer_load_dword", 8, Type::kI32, Type::kB128, s_buffer_load<1>),
    ROW("s_buffer_load_dwordx2", 9, Type::kI64, Type::kB128, s_buffer_load<2>),
    ROW("s_buffer_load_dwordx4", 10, Type::kB128, Type::kB128, s_buffer_load<4>),
    ROW("s_buffer_load_dwordx8", 11, Type::kB256, Type::kB128, s_buffer_load<8>),
    ROW("s_buffer_load_dwordx16", 12, Type::kB512, Type::kB128, s_buffer_load<16>),
    ROW_PLAIN("s_dcache_inv", 32, N, nothing),
    ROW_PLAIN("s_dcache_wb", 33, N, nothing),
    ROW_PLAIN("s_dcache_inv_vol", 34, N, nothing),
    ROW_PLAIN("s_dcache_wb_vol", 35, N, nothing),
    ROW_PLAIN("s_memtime", 36, Type::kI64, s_memtime),
    ROW_PLAIN("s_memrealtime", 37, Type::kI64, s_memrealtime),
};

}  // namespace

std::span<const Row> smem_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

// SPDX-License-Identifier: MIT OR Apache-2.0
// SMEM that writes: scalar stores and atomics. Outside a buffer nothing is written, and atomics return 0.
#include "base/errors.h"
#include "isa/memory/atomic_ops.h"
#include "isa/rows.h"
#include "isa/scalar/smem.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

template <int kDwords>
void s_store(Wave& w, const Inst& i) {
  uint64_t address;
  if (!scalar_address(w, i, &address)) return;
  uint8_t* p = w.global(i, address, kDwords * 4, kScalarLane);
  if (p) std::memcpy(p, &w.sgpr[i.data.index], kDwords * 4);
}

template <int kDwords>
void s_buffer_store(Wave& w, const Inst& i) {
  ScalarBuffer b;
  if (!scalar_buffer(w, i, &b)) return;
  for (uint64_t d = 0; d < kDwords && b.offset + d * 4 + 4 <= b.size; ++d) {
    uint8_t* p = w.global(i, b.base + b.offset + d * 4, 4, kScalarLane);
    if (!p) return;
    std::memcpy(p, &w.sgpr[i.data.index + d], 4);
  }
}

// op(old, data), or op(old, data, compare) with the second value in the next registers. Done once, whatever
// EXEC is.
template <class T, auto kOp>
void modify(Wave& w, const Inst& i, uint64_t address) {
  if (!aligned<T>(w, i, address, kScalarLane)) return;
  uint8_t* p = w.global(i, address, sizeof(T), kScalarLane);
  if (!p) return;
  T x, y, old;
  std::memcpy(&x, &w.sgpr[i.data.index], sizeof x);
  if constexpr (requires(T t) { kOp(t, t, t); }) {
    std::memcpy(&y, &w.sgpr[i.data.index + sizeof(T) / 4], sizeof y);
    old = atomic_apply<T>(p, [=](T was) { return kOp(was, x, y); });
  } else {
    old = atomic_apply<T>(p, [=](T was) { return kOp(was, x); });
  }
  if (i.dst.kind != OperandKind::kNone) std::memcpy(&w.sgpr[i.dst.index], &old, sizeof old);
}

template <class T, auto kOp>
void s_atomic(Wave& w, const Inst& i) {
  uint64_t address;
  if (scalar_address(w, i, &address)) modify<T, kOp>(w, i, address);
}

template <class T, auto kOp>
void s_buffer_atomic(Wave& w, const Inst& i) {
  ScalarBuffer b;
  if (!scalar_buffer(w, i, &b)) return;
  if (b.offset + sizeof(T) <= b.size) return modify<T, kOp>(w, i, b.base + b.offset);
  if (i.dst.kind != OperandKind::kNone) std::memset(&w.sgpr[i.dst.index], 0, sizeof(T));
}

// The scratch forms scale offsets by 64 and map the address to the wave's private space in a way that the
// manuals do not document. Discarding drops the contents of a cache line; memory here has no second copy.
void no_scratch(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "scalar access to scratch: the manuals leave its addressing open");
}
void no_discard(Wave& w, const Inst& i) {
  w.fault(i, hipErrorLaunchFailure, "discarding a line of the scalar cache leaves undefined data behind");
}

constexpr Type N = Type::kNone, I = Type::kI32, L = Type::kI64, Q = Type::kB128;

// clang-format off
#define STORE(name, base, data, ...) {name, N, {base, data, N}, kStore, __VA_ARGS__}
#define REFUSED(name, d, data, base, flags, why) \
  {name, d, {base, data, N}, (flags) | kRefused, why}
// The destination is the old value in memory: one value, even if two are given.
#define ATOMIC(name, T, kOp)                                                                              \
  {"s_buffer_atomic_" name, type_for<T>(), {Q, atomic_data_type<T, kOp>(), N},    \
   kAtomic, s_buffer_atomic<T, kOp>},                                                                         \
  {"s_atomic_" name, type_for<T>(),                              \
   {L, atomic_data_type<T, kOp>(), N}, kAtomic, s_atomic<T, kOp>},

const Row kRows[] = {
    STORE("s_store_dword", L, I, s_store<1>),
    STORE("s_store_dwordx2", L, L, s_store<2>),
    STORE("s_store_dwordx4", L, Q, s_store<4>),
    STORE("s_buffer_store_dword", Q, I, s_buffer_store<1>),
    STORE("s_buffer_store_dwordx2", Q, L, s_buffer_store<2>),
    STORE("s_buffer_store_dwordx4", Q, Q, s_buffer_store<4>),
    REFUSED("s_scratch_load_dword", I, N, L, kLoad, no_scratch),
    REFUSED("s_scratch_load_dwordx2", L, N, L, kLoad, no_scratch),
    REFUSED("s_scratch_load_dwordx4", Q, N, L, kLoad, no_scratch),
    REFUSED("s_scratch_store_dword", N, I, L, kStore, no_scratch),
    REFUSED("s_scratch_store_dwordx2", N, L, L, kStore, no_scratch),
    REFUSED("s_scratch_store_dwordx4", N, Q, L, kStore, no_scratch),
    REFUSED("s_dcache_discard", N, N, L, kCacheControl, no_discard),
    REFUSED("s_dcache_discard_x2", N, N, L, kCacheControl, no_discard),
    FMHA_EMU_INTEGER_ATOMICS(ATOMIC)
};
// clang-format on

}  // namespace

std::span<const Row> smem_write_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

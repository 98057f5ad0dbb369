// SPDX-License-Identifier: MIT OR Apache-2.0
// LDS: loads and stores, and the instructions that only exchange values between lanes.
// Addresses need no alignment (the driver sets the unaligned mode). Outside the workgroup's LDS is a fault:
// the hardware would read 0 and drop the write, and a kernel that relies on that is wrong.
#include "isa/memory/ds.h"

#include "isa/memory/memory_access.h"
#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

// Faults for a lane that is outside; there is one.
[[gnu::cold, gnu::noinline]] void fault_outside(Wave& w, const Inst& inst, const uint32_t* address,
                                                uint32_t bytes) {
  bool found = false;
  for_lanes(exec_mask(w), [&](int l) { found = found || !w.lds(inst, address[l], bytes, l); });
}

// Addresses of the active lanes, which are all inside LDS; or false, after a fault.
bool addresses(Wave& w, const Inst& inst, uint32_t offset, uint32_t bytes, uint32_t* out) {
  if (ds_refused(w, inst)) return false;
  const uint32_t* vaddr = w.vgpr[inst.src[0].index];
  for (int l = 0; l < kLanes; ++l) out[l] = vaddr[l] + offset;
  if (w.hears(kEventLds)) [[unlikely]]
    w.tell_lds(inst, out, exec_mask(w), bytes);
  if (static_cast<uint64_t>(span_of(out, exec_mask(w)).high) + bytes <= w.group->lds_bytes) [[likely]]
    return true;
  fault_outside(w, inst, out, bytes);
  return false;
}

template <Width kWidth>
void read(Wave& w, const Inst& inst) {
  alignas(64) uint32_t address[kLanes];
  if (!addresses(w, inst, inst.imm, bytes_of(kWidth), address)) return;
  gather<kWidth>(w.vgpr[inst.dst.index], exec_mask(w), w.group->lds, address);
}

// The manual wants all lanes on, and addresses that `alignment` divides.
bool may_transpose(Wave& w, const Inst& inst, uint32_t alignment) {
  if (!all_active(w)) {
    w.fault(inst, hipErrorLaunchFailure, "a transposing load needs all lanes on");
    return false;
  }
  const uint32_t* vaddr = w.vgpr[inst.src[0].index];
  for (int l = 0; l < kLanes; ++l) {
    const uint32_t address = vaddr[l] + static_cast<uint32_t>(inst.imm);
    if (address % alignment == 0) continue;
    w.fault(inst, hipErrorLaunchFailure,
            "lane %d: a transposing load from LDS byte %u, which %u does not divide", l, address, alignment);
    return false;
  }
  return true;
}

// Transposing loads. Sixteen lanes load a matrix of kBits-bit elements, 16 to a row, row by row, each lane as
// many of them as its bytes hold; lane l gets column l. Twelve bytes are aligned as 16.
template <int kBits, uint32_t kBytes>
void read_transposed(Wave& w, const Inst& inst) {
  using Run = std::conditional_t<kBytes == 8, uint64_t, unsigned __int128>;
  constexpr int kSide = 16, kOfLane = 8 * static_cast<int>(kBytes) / kBits;
  alignas(64) uint32_t address[kLanes];
  if (!may_transpose(w, inst, kBytes == 8 ? 8 : 16)) return;
  if (!addresses(w, inst, static_cast<uint32_t>(inst.imm), kBytes, address)) return;
  Run loaded[kLanes] = {};
  for (int l = 0; l < kLanes; ++l) std::memcpy(&loaded[l], w.group->lds + address[l], kBytes);
  uint32_t* dst = w.vgpr[inst.dst.index];
  for (int l = 0; l < kLanes; ++l) {
    Run column = 0;
    for (int row = 0; row < kOfLane; ++row) {
      const int at = kSide * row + l % kSide;
      const Run element = loaded[l / kSide * kSide + at / kOfLane] >> at % kOfLane * kBits;
      column |= (element & ((1 << kBits) - 1)) << row * kBits;
    }
    for (uint32_t j = 0; j < kBytes / 4; ++j)
      dst[j * kMostLanes + static_cast<uint32_t>(l)] = static_cast<uint32_t>(column >> 32 * j);
  }
}

template <Width kWidth>
void write(Wave& w, const Inst& inst) {
  alignas(64) uint32_t address[kLanes];
  if (!addresses(w, inst, inst.imm, bytes_of(kWidth), address)) return;
  scatter<kWidth>(w.vgpr[inst.src[1].index], exec_mask(w), w.group->lds, address);
}

// Two accesses at offsets in units of the width, or of 64 widths.
template <Width kWidth, uint32_t kUnit>
void read2(Wave& w, const Inst& inst) {
  constexpr uint32_t kBytes = bytes_of(kWidth);
  alignas(64) uint32_t first[kLanes], second[kLanes];
  if (!addresses(w, inst, inst.offset0 * kUnit * kBytes, kBytes, first)) return;
  if (!addresses(w, inst, inst.offset1 * kUnit * kBytes, kBytes, second)) return;
  gather<kWidth>(w.vgpr[inst.dst.index], exec_mask(w), w.group->lds, first);
  gather<kWidth>(w.vgpr[inst.dst.index + kBytes / 4], exec_mask(w), w.group->lds, second);
}

template <Width kWidth, uint32_t kUnit>
void write2(Wave& w, const Inst& inst) {
  constexpr uint32_t kBytes = bytes_of(kWidth);
  alignas(64) uint32_t first[kLanes], second[kLanes];
  if (!addresses(w, inst, inst.offset0 * kUnit * kBytes, kBytes, first)) return;
  if (!addresses(w, inst, inst.offset1 * kUnit * kBytes, kBytes, second)) return;
  scatter<kWidth>(w.vgpr[inst.src[1].index], exec_mask(w), w.group->lds, first);
  scatter<kWidth>(w.vgpr[inst.src[2].index], exec_mask(w), w.group->lds, second);
}

// Consecutive dwords by lane, from M0 and the offset.
template <bool kStoreIt>
void addtid(Wave& w, const Inst& inst) {
  if (ds_refused(w, inst)) return;
  const uint32_t base = w.m0_in_lds() + static_cast<uint32_t>(inst.imm);
  tell_lds_run(w, inst, base, exec_mask(w));
  for_lanes(exec_mask(w), [&](int l) {
    uint8_t* p = w.lds(inst, base + 4 * l, 4, l);
    if (!p) return;
    if (kStoreIt) {
      store_lane<Width::kB32>(w.vgpr[inst.src[1].index], l, p);
    } else {
      load_lane<Width::kB32>(w.vgpr[inst.dst.index], l, p);
    }
  });
}

// Each active lane gets `data` of the lane that lane_of names; unless kInactive, 0 if that one is inactive.
template <bool kInactive = false, class LaneOf>
[[gnu::always_inline]] inline void pull(Wave& w, const Inst& inst, const uint32_t* data, LaneOf lane_of) {
  alignas(64) uint32_t from[kLanes], result[kLanes];
  const uint32_t* mask = exec_lanes(w);
  for (int l = 0; l < kLanes; ++l) from[l] = kInactive ? data[l] : data[l] & mask[l];
  for (int l = 0; l < kLanes; ++l) result[l] = from[lane_of(l)];
  uint32_t* dst = w.vgpr[inst.dst.index];
  for (int l = 0; l < kLanes; ++l) dst[l] = (result[l] & mask[l]) | (dst[l] & ~mask[l]);
}

// How many lanes ds_permute and ds_bpermute reach: on some archs a wave of 64 is two times 32 to them.
uint32_t reach(const Wave& w) { return kLanes == 64 && w.group->permutes_halves ? 32 : kLanes; }

template <bool kInactive>
void bpermute(Wave& w, const Inst& inst) {
  const uint32_t* address = w.vgpr[inst.src[0].index];
  const uint32_t offset = static_cast<uint32_t>(inst.imm), within = reach(w) - 1;
  pull<kInactive>(w, inst, w.vgpr[inst.src[1].index], [=](int l) {
    return (static_cast<uint32_t>(l) & ~within) | ((address[l] + offset) / 4 & within);
  });
}

// Lanes push their value. If several push to one lane, the highest wins; a lane that none pushes to gets 0.
void permute(Wave& w, const Inst& inst) {
  uint32_t result[kLanes] = {};
  const uint32_t* address = w.vgpr[inst.src[0].index];
  const uint32_t* data = w.vgpr[inst.src[1].index];
  const uint32_t offset = static_cast<uint32_t>(inst.imm), within = reach(w) - 1;
  for_lanes(exec_mask(w), [&](int l) {
    result[(static_cast<uint32_t>(l) & ~within) | ((address[l] + offset) / 4 & within)] = data[l];
  });
  uint32_t* dst = w.vgpr[inst.dst.index];
  for_lanes(exec_mask(w), [&](int l) { dst[l] = result[l]; });
}

// The offset field is the pattern: a permutation within four lanes, a rotation or a bit mask within 32.
void swizzle(Wave& w, const Inst& inst) {
  const int pattern = inst.imm;
  const uint32_t* data = w.vgpr[inst.src[0].index];
  if (pattern >= 0xe000) {
    w.fault(inst, hipErrorLaunchFailure, "ds_swizzle_b32 in FFT mode (pattern 0x%x) is not implemented",
            pattern);
  } else if (pattern >= 0xc000) {
    const int amount = pattern >> 5 & 31, keep = pattern & 31, turn = pattern >> 10 & 1 ? -amount : amount;
    pull(w, inst, data, [=](int l) { return (l & 32) | (l & keep) | ((l + turn) & 31 & ~keep); });
  } else if (pattern & 0x8000) {
    pull(w, inst, data, [=](int l) { return (l & ~3) | (pattern >> (2 * (l & 3)) & 3); });
  } else {
    const int and_mask = pattern & 31, or_mask = pattern >> 5 & 31, xor_mask = pattern >> 10 & 31;
    pull(w, inst, data, [=](int l) { return (l & 32) | ((((l & 31) & and_mask) | or_mask) ^ xor_mask); });
  }
}

void nothing(Wave&, const Inst&) {}

constexpr Type kNo = Type::kNone, kI32 = Type::kI32;

template <Width kWidth>
constexpr Row read_row(const char* mnemonic) {
  const Type t = type_of(kWidth);
  return sized({mnemonic, t, {kI32, kNo, kNo}, load_flags(kWidth), read<kWidth>}, bytes_of(kWidth));
}
template <int kBits, Width kWidth>
constexpr Row transposed_row(const char* mnemonic) {
  constexpr uint32_t kBytes = bytes_of(kWidth);
  return sized({mnemonic, type_of(kWidth), {kI32, kNo, kNo}, kLoad, read_transposed<kBits, kBytes>}, kBytes);
}
template <Width kWidth>
constexpr Row write_row(const char* mnemonic) {
  const Type t = type_of(kWidth);
  return sized({mnemonic, kNo, {kI32, t, kNo}, store_flags(kWidth), write<kWidth>}, bytes_of(kWidth));
}
template <Width kWidth, uint32_t kUnit>
constexpr Row read2_row(const char* mnemonic) {
  const Type pair = kWidth == Width::kB32 ? Type::kI64 : Type::kB128;
  const RowFlags flags = kLoad | two_offsets(kUnit);
  return sized({mnemonic, pair, {kI32, kNo, kNo}, flags, read2<kWidth, kUnit>}, bytes_of(kWidth));
}
template <Width kWidth, uint32_t kUnit>
constexpr Row write2_row(const char* mnemonic) {
  const Type t = type_of(kWidth);
  const RowFlags flags = kStore | two_offsets(kUnit);
  return sized({mnemonic, kNo, {kI32, t, t}, flags, write2<kWidth, kUnit>}, bytes_of(kWidth));
}
constexpr RowFlags kByLaneFlags = kByLane | kNeedsM0;

constexpr Row kRows[] = {
    write_row<Width::kB32>("ds_write_b32"),
    write2_row<Width::kB32, 1>("ds_write2_b32"),
    write2_row<Width::kB32, 64>("ds_write2st64_b32"),
    {"ds_nop", kNo, {kNo, kNo, kNo}, 0, nothing},
    sized({"ds_write_addtid_b32", kNo, {kNo, kI32, kNo}, kStore | kByLaneFlags, addtid<true>}, 4),
    write_row<Width::kU8>("ds_write_b8"),
    write_row<Width::kU16>("ds_write_b16"),
    read_row<Width::kB32>("ds_read_b32"),
    read2_row<Width::kB32, 1>("ds_read2_b32"),
    read2_row<Width::kB32, 64>("ds_read2st64_b32"),
    read_row<Width::kI8>("ds_read_i8"),
    read_row<Width::kU8>("ds_read_u8"),
    read_row<Width::kI16>("ds_read_i16"),
    read_row<Width::kU16>("ds_read_u16"),
    {"ds_swizzle_b32", kI32, {kI32, kNo, kNo}, kCounted, swizzle, Immediate::kSwizzle},
    {"ds_permute_b32", kI32, {kI32, kI32, kNo}, kCounted, permute},
    {"ds_bpermute_b32", kI32, {kI32, kI32, kNo}, kCounted, bpermute<false>},
    {"ds_bpermute_fi_b32", kI32, {kI32, kI32, kNo}, kCounted, bpermute<true>},
    write_row<Width::kB64>("ds_write_b64"),
    write2_row<Width::kB64, 1>("ds_write2_b64"),
    write2_row<Width::kB64, 64>("ds_write2st64_b64"),
    write_row<Width::kU8D16Hi>("ds_write_b8_d16_hi"),
    write_row<Width::kD16Hi>("ds_write_b16_d16_hi"),
    read_row<Width::kU8D16>("ds_read_u8_d16"),
    read_row<Width::kU8D16Hi>("ds_read_u8_d16_hi"),
    read_row<Width::kI8D16>("ds_read_i8_d16"),
    read_row<Width::kI8D16Hi>("ds_read_i8_d16_hi"),
    read_row<Width::kD16>("ds_read_u16_d16"),
    read_row<Width::kD16Hi>("ds_read_u16_d16_hi"),
    read_row<Width::kB64>("ds_read_b64"),
    read2_row<Width::kB64, 1>("ds_read2_b64"),
    read2_row<Width::kB64, 64>("ds_read2st64_b64"),
    sized({"ds_read_addtid_b32", kI32, {kNo, kNo, kNo}, kLoad | kByLaneFlags, addtid<false>}, 4),
    write_row<Width::kB96>("ds_write_b96"),
    write_row<Width::kB128>("ds_write_b128"),
    read_row<Width::kB96>("ds_read_b96"),
    read_row<Width::kB128>("ds_read_b128"),
    transposed_row<4, Width::kB64>("ds_read_b64_tr_b4"),
    transposed_row<6, Width::kB96>("ds_read_b96_tr_b6"),
    transposed_row<8, Width::kB64>("ds_read_b64_tr_b8"),
    transposed_row<16, Width::kB64>("ds_read_b64_tr_b16"),
};

}  // namespace

std::span<const Row> ds_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

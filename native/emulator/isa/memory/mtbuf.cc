// SPDX-License-Identifier: MIT OR Apache-2.0
// Buffer instructions that convert: MTBUF, whose format is in the instruction, and MUBUF's *_format_*, whose
// format and component selects are the resource's. D16 forms hold two components a register, as f16 or 16-bit
// integers. An element out of range reads as zeros, and is not written.
#include "core/dialect.h"
#include "isa/host_rounding.h"
#include "isa/memory/buffer_access.h"
#include "isa/memory/buffer_format.h"
#include "isa/rows.h"
#include "isa/unified_format.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

enum class Form { kFull, kD16, kD16Hi };  // kD16Hi: one component, in the upper half

constexpr u32 kIdentity = 4 | 5 << 3 | 6 << 6 | 7 << 9;  // the selects of x, y, z, w
constexpr u32 kNearestKeepDenormals = 0xf0;              // MODE

struct Typed {
  u32 data, select;
  NumberFormat number;
  const DataFormat& format() const { return kDataFormats[data]; }
};

// RDNA's of a resource, whose field has 7 bits on gfx10, 6 from gfx11 on.
BufferFormat format_of_resource(Isa isa, const u32* resource) {
  return unified_format(isa, resource[3] >> 12 & (isa == Isa::kRdna2 ? 127 : 63));
}

// The format, or false after a fault.
bool format_of(Wave& w, const Inst& inst, Typed* out) {
  const Resource r(&w.sgpr[inst.src[1].index]);
  const Isa isa = w.group->isa;
  const bool own = inst.row->format == Format::kMtbuf;
  const BufferFormat its = is_rdna(isa) ? format_of_resource(isa, &w.sgpr[inst.src[1].index])
                                        : BufferFormat{r.data_format, r.number_format};
  const u32 data = own ? inst.data_format : its.data, number = own ? inst.number_format : its.number;
  *out = {data, own ? kIdentity : r.select, static_cast<NumberFormat>(number)};
  if (!own && r.add_lane) {
    w.fault(inst, hipErrorLaunchFailure, "a resource that adds the lane's number has no data format");
    return false;
  }
  if (format_exists(data, number)) return true;
  w.fault(inst, hipErrorLaunchFailure, "data format %u with number format %u does not exist", data, number);
  return false;
}

// The component that a select picks. A component that the element lacks reads as 0, alpha as 1.
u32 selected(const Typed& t, const u32* components, u32 select) {
  const u32 one = is_integer(t.number) ? 1 : raw(1.0f);
  if (select < 4) return select == 1 ? one : 0;
  const u32 n = select - 4;
  if (n < t.format().components) return components[n];
  return n == 3 ? one : 0;
}

u32 as_half(u32 value, NumberFormat n) {
  return is_integer(n) ? value & 0xffff : to_f16(bits<float>(value), Env(kNearestKeepDenormals)).raw;
}

template <Form kForm, u32 kCount>
void put_lane(u32* d, int l, const u32 (&value)[4], NumberFormat n) {
  for (u32 i = 0; i < kCount; ++i) {
    if (kForm == Form::kFull) {
      d[i * kMostLanes + l] = value[i];
      continue;
    }
    u32& half = d[i / 2 * kMostLanes + l];
    const bool high = kForm == Form::kD16Hi || i % 2 == 1;
    half = high ? high_half(half, as_half(value[i], n)) : low_half(half, as_half(value[i], n));
  }
}

template <Form kForm, u32 kCount>
void load(Wave& w, const Inst& inst) {
  Typed t{0, 0, NumberFormat::kUint};
  BufferAccess a;
  if (!exec_mask(w) || !format_of(w, inst, &t) || !resolve(w, inst, t.format().bytes, a)) return;
  const HostRounding rounding(false);
  alignas(64) u32 to_lds[kLanes];
  u32* d = inst.lds ? to_lds : w.vgpr[inst.dst.index];
  bool ok = true;
  for_lanes(exec_mask(w), [&](int l) {
    u8 element[16] = {};
    if (ok && a.inside >> l & 1) {
      const u8* p = w.global(inst, a.base + a.offset[l], t.format().bytes, l);
      ok = p != nullptr;
      if (p) std::memcpy(element, p, t.format().bytes);
    }
    if (!ok) return;
    u32 components[4] = {}, value[4];
    for (u32 i = 0, bit = 0; i < t.format().components; bit += t.format().bits[i++])
      components[i] = from_memory(take_bits(element, bit, t.format().bits[i]), t.format().bits[i], t.number);
    for (u32 i = 0; i < 4; ++i) value[i] = selected(t, components, t.select >> 3 * i & 7);
    put_lane<kForm, kCount>(d, l, value, t.number);
  });
  if (inst.lds && ok) store_to_lds(w, inst, exec_mask(w), to_lds);
}

// Component i of a lane's data, as a full register would hold it.
template <Form kForm>
u32 data_of(const u32* s, int l, u32 i, NumberFormat n) {
  if (kForm == Form::kFull) return s[i * kMostLanes + l];
  const u32 shift = kForm == Form::kD16Hi || i % 2 == 1 ? 16 : 0;
  const u16 half = static_cast<u16>(s[i / 2 * kMostLanes + l] >> shift);
  if (n == NumberFormat::kSint) return static_cast<u32>(i32{static_cast<i16>(half)});
  return is_integer(n) ? half : raw(to_f32(f16{half}));
}

// Stores write the components they are named for, in their places. False after a fault.
bool stores_ok(Wave& w, const Inst& inst, const Typed& t, u32 components) {
  if (!stores_defined(t.data, static_cast<u32>(t.number), components)) {
    w.fault(inst, hipErrorLaunchFailure,
            "how %u components are stored in data format %u, number format %u is not documented", components,
            t.data, static_cast<u32>(t.number));
    return false;
  }
  const u32 used = static_cast<u32>(low_bits(3 * t.format().components));
  if ((t.select ^ kIdentity) & used) {
    w.fault(inst, hipErrorLaunchFailure,
            "a store through a resource that reorders components is not documented");
    return false;
  }
  return true;
}

template <Form kForm, u32 kCount>
void store(Wave& w, const Inst& inst) {
  Typed t{0, 0, NumberFormat::kUint};
  BufferAccess a;
  if (!exec_mask(w) || !format_of(w, inst, &t) || !stores_ok(w, inst, t, kCount)) return;
  if (!resolve(w, inst, t.format().bytes, a)) return;
  const HostRounding rounding(false);
  const Env env(kNearestKeepDenormals);
  const u32* s = w.vgpr[inst.data.index];
  const u32 count = kCount < t.format().components ? kCount : t.format().components;
  u32 bytes = 0;
  for (u32 i = 0; i < count; ++i) bytes += t.format().bits[i];
  bytes = (bytes + 7) / 8;
  bool ok = true;
  for_lanes(a.inside, [&](int l) {
    u8* p = ok ? w.global(inst, a.base + a.offset[l], bytes, l) : nullptr;
    ok = p != nullptr;
    for (u32 i = 0, bit = 0; ok && i < count; bit += t.format().bits[i++]) {
      u32 value;
      const u32 given = data_of<kForm>(s, l, i, t.number);
      if (to_memory(given, t.format().bits[i], t.number, env, &value)) {
        put_bits(p, bit, t.format().bits[i], value);
        continue;
      }
      w.fault(
          inst, 719,
          "lane %d: 0x%x does not fit the %u bits of component %u, and what is stored then is not documented",
          l, given, t.format().bits[i], i);
      ok = false;
    }
  });
}

constexpr Type kNo = Type::kNone;
constexpr Type type_of_registers(u32 n) {
  return n == 1 ? Type::kI32 : n == 2 ? Type::kI64 : n == 3 ? Type::kB96 : Type::kB128;
}

template <Form kForm, u32 kCount, bool kIsLoad>
constexpr Row format_row(const char* mnemonic) {
  const Type t = type_of_registers(kForm == Form::kFull ? kCount : (kCount + 1) / 2);
  const RowFlags keeps = kForm != Form::kFull && kCount % 2 ? RowFlags{kReadsDst} : 0;
  const RowFlags half = kForm == Form::kD16Hi ? RowFlags{kHighHalf} : 0;
  const RowFlags lds = kForm == Form::kFull && kCount == 1 ? RowFlags{kMayGoToLds} : 0;
  if (kIsLoad) return {mnemonic, t, {kNo, kNo, kNo}, kLoad | keeps | half | lds, load<kForm, kCount>};
  return {mnemonic, kNo, {t, kNo, kNo}, kStore | half, store<kForm, kCount>};
}

#define FOUR(stem, form, is_load)                                                    \
  format_row<form, 1, is_load>(stem "_x"), format_row<form, 2, is_load>(stem "_xy"), \
      format_row<form, 3, is_load>(stem "_xyz"), format_row<form, 4, is_load>(stem "_xyzw")

constexpr Row kRows[] = {
    FOUR("buffer_load_format", Form::kFull, true),
    FOUR("buffer_store_format", Form::kFull, false),
    FOUR("buffer_load_format_d16", Form::kD16, true),
    FOUR("buffer_store_format_d16", Form::kD16, false),
    format_row<Form::kD16Hi, 1, true>("buffer_load_format_d16_hi_x"),
    format_row<Form::kD16Hi, 1, false>("buffer_store_format_d16_hi_x"),
    {"buffer_load_lds_format_x", kNo, {kNo, kNo, kNo}, kLoad | kToLds, load<Form::kFull, 1>},
    FOUR("tbuffer_load_format", Form::kFull, true),
    FOUR("tbuffer_store_format", Form::kFull, false),
    FOUR("tbuffer_load_format_d16", Form::kD16, true),
    FOUR("tbuffer_store_format_d16", Form::kD16, false),
};

}  // namespace

std::span<const Row> format_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL

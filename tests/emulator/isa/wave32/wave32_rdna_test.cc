// SPDX-License-Identifier: MIT OR Apache-2.0
// The vector and LDS instructions that only RDNA has, lane by lane against what a line of C++ says.
#include <cmath>
#include <functional>

#include "wave32_fixture.h"

namespace wave32 {
namespace {

using u32 = uint32_t;

u32 bits_of(float x) {
  u32 b;
  std::memcpy(&b, &x, 4);
  return b;
}
float as_float(u32 x) {
  float f;
  std::memcpy(&f, &x, 4);
  return f;
}
// f16 bits of what is a small multiple of a power of two.
u32 half(float x) {
  if (x == 0) return 0;
  int e;
  const float m = 2 * std::frexp(std::fabs(x), &e);
  return (x < 0 ? 0x8000u : 0) | static_cast<u32>(e + 14) << 10 | static_cast<u32>((m - 1) * 1024);
}
u32 bfloat(float x) { return bits_of(x) >> 16; }
u32 two(u32 low, u32 high) { return (low & 0xffff) | high << 16; }

Inst operands(int sources) {
  Inst inst;
  inst.dst = vgpr(10);
  for (int i = 0; i < sources; ++i) inst.src[i] = vgpr(1 + i);
  return inst;
}

// Sources are f(lane) in v1.., the old value of v10 is kUntouched.
using Values = std::function<u32(int lane)>;
void check(std::span<const Row> rows, const char* name, std::initializer_list<Values> sources,
           const Values& wanted, const std::function<void(Fixture&, Inst&)>& change = {}) {
  Fixture f;
  Inst inst = operands(static_cast<int>(sources.size()));
  int r = 1;
  for (const Values& source : sources) {
    for (int l = 0; l < kSmall; ++l) f.wave->vgpr[r][l] = source(l);
    ++r;
  }
  if (change) change(f, inst);
  run(f, rows, name, inst);
  for (int l = 0; l < kSmall; ++l) CHECK_MESSAGE(f.wave->vgpr[10][l] == wanted(l), name, " lane ", l);
  f.untouched(10, name);
}
void check(const char* name, std::initializer_list<Values> sources, const Values& wanted,
           const std::function<void(Fixture&, Inst&)>& change = {}) {
  check(bodies::rdna_rows(), name, sources, wanted, change);
}

constexpr u32 kKept = kUntouched & 0xffff0000;  // where a 16-bit result leaves the upper half
u32 a_bits(int l) { return 0x9e3779b9u * static_cast<u32>(l + 1); }
u32 b_bits(int l) { return 0x85ebca6bu * static_cast<u32>(l + 3); }
u32 c_bits(int l) { return 0xc2b2ae35u * static_cast<u32>(l + 7); }
float a_num(int l) { return static_cast<float>(l - 13); }
float b_num(int l) { return static_cast<float>(l % 7 - 2); }
float c_num(int l) { return static_cast<float>(5 - l % 11); }
u32 a_f32(int l) { return bits_of(a_num(l)); }
u32 b_f32(int l) { return bits_of(b_num(l)); }
u32 c_f32(int l) { return bits_of(c_num(l)); }
u32 a_f16(int l) { return half(a_num(l)); }
u32 b_f16(int l) { return half(b_num(l)); }
u32 c_f16(int l) { return half(c_num(l)); }

TEST_CASE("integers") {
  check("v_xor3_b32", {a_bits, b_bits, c_bits}, [](int l) { return a_bits(l) ^ b_bits(l) ^ c_bits(l); });
  check("v_maxmin_u32", {a_bits, b_bits, c_bits},
        [](int l) { return std::min(std::max(a_bits(l), b_bits(l)), c_bits(l)); });
  check("v_minmax_u32", {a_bits, b_bits, c_bits},
        [](int l) { return std::max(std::min(a_bits(l), b_bits(l)), c_bits(l)); });
  const auto number = [](u32 x) { return static_cast<int>(x); };
  check("v_maxmin_i32", {a_bits, b_bits, c_bits}, [=](int l) {
    return static_cast<u32>(std::min(std::max(number(a_bits(l)), number(b_bits(l))), number(c_bits(l))));
  });
  check("v_minmax_i32", {a_bits, b_bits, c_bits}, [=](int l) {
    return static_cast<u32>(std::max(std::min(number(a_bits(l)), number(b_bits(l))), number(c_bits(l))));
  });
  const auto low = [](u32 x) { return (x & 0xffff) | kKept; };
  check("v_and_b16", {a_bits, b_bits}, [=](int l) { return low(a_bits(l) & b_bits(l)); });
  check("v_or_b16", {a_bits, b_bits}, [=](int l) { return low(a_bits(l) | b_bits(l)); });
  check("v_xor_b16", {a_bits, b_bits}, [=](int l) { return low(a_bits(l) ^ b_bits(l)); });
  check("v_mov_b16", {a_bits}, [](int l) { return a_bits(l) & 0xffff; });
  check("v_not_b16", {a_bits}, [](int l) { return ~a_bits(l) & 0xffff; });
  check("v_cvt_u32_u16", {a_bits}, [](int l) { return a_bits(l) & 0xffff; });
  check("v_cvt_i32_i16", {a_bits}, [](int l) { return static_cast<u32>(static_cast<int16_t>(a_bits(l))); });
  check(
      "v_cndmask_b16", {a_bits, b_bits},
      [=](int l) { return low(0xf0f0f0f0u >> l & 1 ? b_bits(l) : a_bits(l)); },
      [](Fixture& f, Inst& inst) { f.wave->sgpr[20] = 0xf0f0f0f0, inst.src[2] = sgpr(20); });
}

// Half a unit between whole numbers is lost toward zero; beyond 16 bits they saturate.
TEST_CASE("conversions") {
  const auto wide = [](int l) { return bits_of(a_num(l) * 5000.5f); };
  const auto saturated = [](float x, float least, float most) {
    return static_cast<u32>(static_cast<int>(std::min(std::max(x, least), most)));
  };
  check("v_cvt_pk_i16_f32", {wide, b_f32}, [=](int l) {
    return two(saturated(a_num(l) * 5000.5f, -32768, 32767), saturated(b_num(l), -32768, 32767));
  });
  check("v_cvt_pk_u16_f32", {wide, b_f32},
        [=](int l) { return two(saturated(a_num(l) * 5000.5f, 0, 65535), saturated(b_num(l), 0, 65535)); });
}

TEST_CASE("floats") {
  check("v_maxmin_f32", {a_f32, b_f32, c_f32},
        [](int l) { return bits_of(std::min(std::max(a_num(l), b_num(l)), c_num(l))); });
  check("v_minmax_f32", {a_f32, b_f32, c_f32},
        [](int l) { return bits_of(std::max(std::min(a_num(l), b_num(l)), c_num(l))); });
  check("v_maxmin_f16", {a_f16, b_f16, c_f16},
        [](int l) { return half(std::min(std::max(a_num(l), b_num(l)), c_num(l))) | kKept; });
  check("v_minmax_f16", {a_f16, b_f16, c_f16},
        [](int l) { return half(std::max(std::min(a_num(l), b_num(l)), c_num(l))) | kKept; });
  // Zero times infinity is zero.
  const auto infinite = [](int l) { return l % 2 ? bits_of(INFINITY) : a_f32(l); };
  const auto product = [=](int l) {
    return b_num(l) == 0 || as_float(infinite(l)) == 0 ? 0.0f : as_float(infinite(l)) * b_num(l);
  };
  check("v_fma_dx9_zero_f32", {infinite, b_f32, c_f32},
        [=](int l) { return bits_of(product(l) + c_num(l)); });
  check(
      "v_fmac_dx9_zero_f32", {infinite, b_f32}, [=](int l) { return bits_of(product(l) + 3); },
      [](Fixture& f, Inst&) { f.fill(10, bits_of(3), 0); });
  check("v_mullit_f32", {infinite, b_f32, c_f32},
        [=](int l) { return bits_of(c_num(l) <= 0 ? -0x1.fffffep+127f : product(l)); });
  const auto fma = [](float x, float y, float z) { return half(x * y + z); };
  check(
      "v_fmac_f16", {a_f16, b_f16}, [=](int l) { return fma(a_num(l), b_num(l), 3); },
      [](Fixture& f, Inst&) { f.fill(10, half(3), 0); });
  check(
      "v_fmamk_f16", {a_f16, b_f16}, [=](int l) { return fma(a_num(l), 6, b_num(l)); },
      [](Fixture&, Inst& inst) { inst.imm = static_cast<int>(half(6)); });
  check(
      "v_fmaak_f16", {a_f16, b_f16}, [=](int l) { return fma(a_num(l), b_num(l), 6); },
      [](Fixture&, Inst& inst) { inst.imm = static_cast<int>(half(6)); });
}

TEST_CASE("nans win") {
  const auto nan = [](int l) { return l % 3 ? a_f32(l) : 0x7fc00000u; };
  const auto least = [](float x, float y) { return std::isnan(x) ? x : std::min(x, y); };
  const auto most = [](float x, float y) { return std::isnan(x) ? x : std::max(x, y); };
  check("v_minimum_f32", {nan, b_f32}, [=](int l) { return bits_of(least(as_float(nan(l)), b_num(l))); });
  check("v_maximum_f32", {nan, b_f32}, [=](int l) { return bits_of(most(as_float(nan(l)), b_num(l))); });
  check("v_minimummaximum_f32", {nan, b_f32, c_f32},
        [=](int l) { return bits_of(most(least(as_float(nan(l)), b_num(l)), c_num(l))); });
  check("v_maximumminimum_f32", {nan, b_f32, c_f32},
        [=](int l) { return bits_of(least(most(as_float(nan(l)), b_num(l)), c_num(l))); });
  const auto nan16 = [](int l) { return l % 3 ? a_f16(l) : 0x7e00u; };
  check("v_minimum_f16", {nan16, b_f16},
        [=](int l) { return kKept | (l % 3 ? half(std::min(a_num(l), b_num(l))) : 0x7e00u); });
  check("v_maximum_f16", {nan16, b_f16},
        [=](int l) { return kKept | (l % 3 ? half(std::max(a_num(l), b_num(l))) : 0x7e00u); });
  check("v_minimum3_f16", {a_f16, b_f16, nan16},
        [=](int l) { return kKept | (l % 3 ? half(std::min(a_num(l), b_num(l))) : 0x7e00u); });
  check("v_maximum3_f16", {a_f16, b_f16, nan16},
        [=](int l) { return kKept | (l % 3 ? half(std::max(a_num(l), b_num(l))) : 0x7e00u); });
}

TEST_CASE("dot products") {
  const auto a16 = [](int l) { return two(a_f16(l), b_f16(l)); };
  const auto b16 = [](int l) { return two(c_f16(l), a_f16(l)); };
  const auto sum = [](int l) { return a_num(l) * c_num(l) + b_num(l) * a_num(l); };
  check("v_dot2_f16_f16", {a16, b16, c_f16}, [=](int l) { return half(sum(l) + c_num(l)) | kKept; });
  const auto a_b16 = [](int l) { return two(bfloat(a_num(l)), bfloat(b_num(l))); };
  const auto b_b16 = [](int l) { return two(bfloat(c_num(l)), bfloat(a_num(l))); };
  check("v_dot2_bf16_bf16", {a_b16, b_b16, [](int l) { return bfloat(c_num(l)); }},
        [=](int l) { return bfloat(sum(l) + c_num(l)) | kKept; });
  const auto packed = [](Fixture&, Inst& inst) { inst.op_sel_hi = 7; };
  const auto rows = bodies::vop3p_rows();
  check(
      rows, "v_dot2_f32_bf16", {a_b16, b_b16, c_f32}, [=](int l) { return bits_of(sum(l) + c_num(l)); },
      packed);
  const auto integer = [](int l, int width, bool signed_a, bool signed_b) {
    int64_t r = static_cast<int>(c_bits(l));
    for (int i = 0; i < 32; i += width) {
      const int limit = 1 << width, x = static_cast<int>(a_bits(l) >> i) & (limit - 1),
                y = static_cast<int>(b_bits(l) >> i) & (limit - 1);
      r += (signed_a && x >= limit / 2 ? x - limit : x) * (signed_b && y >= limit / 2 ? y - limit : y);
    }
    return r;
  };
  for (const int neg : {0, 1, 2, 3}) {
    const auto with_signs = [neg](Fixture&, Inst& inst) {
      inst.neg = static_cast<uint8_t>(neg), inst.op_sel_hi = 7;
    };
    check(
        rows, "v_dot4_i32_iu8", {a_bits, b_bits, c_bits},
        [=](int l) { return static_cast<u32>(integer(l, 8, neg & 1, neg & 2)); }, with_signs);
    check(
        rows, "v_dot8_i32_iu4", {a_bits, b_bits, c_bits},
        [=](int l) { return static_cast<u32>(integer(l, 4, neg & 1, neg & 2)); }, with_signs);
  }
  const auto ones = [](int) { return 0x01010101u; };
  const auto top = [](int) { return 0x7fffffffu; };
  check(rows, "v_dot4_i32_iu8", {ones, ones, top}, top, [](Fixture&, Inst& inst) { inst.clamp = true; });
}

// Lanes 4 to 7 are off: they are not written, and read only with fi.
TEST_CASE("moves between lanes") {
  constexpr u32 kOn = 0xffffff0f;
  const auto rows = bodies::rdna_move_rows();
  const auto on = [](int l) { return kOn >> l & 1; };
  for (const bool across : {false, true}) {
    for (const int op_sel : {0, 1, 2, 3}) {
      const auto source = [=](int l) { return ((l & 16) ^ (across ? 16 : 0)) + 15 - l % 16; };
      const auto wanted = [=](int l) {
        const int from = source(l);
        if (!on(l)) return kUntouched;
        return on(from) || op_sel & 1 ? a_bits(from) : op_sel & 2 ? 0 : kUntouched;
      };
      const auto reversed = [=](Fixture& f, Inst& inst) {
        f.set_exec(kOn);
        f.wave->sgpr[20] = 0x89abcdef, f.wave->sgpr[21] = 0x01234567;
        inst.src[1] = sgpr(20), inst.src[2] = sgpr(21);
        inst.op_sel = static_cast<uint8_t>(op_sel);
      };
      check(rows, across ? "v_permlanex16_b32" : "v_permlane16_b32", {a_bits}, wanted, reversed);
      const auto by_lane = [=](Fixture& f, Inst& inst) {
        f.set_exec(kOn);
        inst.op_sel = static_cast<uint8_t>(op_sel);
      };
      check(rows, across ? "v_permlanex16_var_b32" : "v_permlane16_var_b32",
            {a_bits, [](int l) { return static_cast<u32>(15 - l % 16); }}, wanted, by_lane);
    }
  }
  check(rows, "v_permlane64_b32", {a_bits}, [](int) { return kUntouched; });
}

TEST_CASE("moves by m0") {
  const auto rows = bodies::rdna_move_rows();
  const auto m0 = [](u32 value) {
    return [value](Fixture& f, Inst& inst) {
      f.wave->sgpr[kM0] = value;
      const Operand dst = inst.dst;
      inst.dst = vgpr(dst.index - static_cast<int>(value >> 16 & 15));
      inst.src[0] = vgpr(1 - static_cast<int>(value & 1));
    };
  };
  // The registers named lie before those meant: v1 and v10.
  check(rows, "v_movrels_b32", {a_bits}, a_bits, m0(1));
  check(rows, "v_movrelsd_2_b32", {a_bits}, a_bits, m0(3u << 16 | 1));
  check(rows, "v_swaprel_b32", {a_bits}, a_bits, m0(4u << 16 | 1));
  check(rows, "v_movreld_b32", {a_bits}, a_bits, [](Fixture& f, Inst& inst) {
    f.wave->sgpr[kM0] = 6;
    inst.dst = vgpr(4);
  });
  check(rows, "v_movrelsd_b32", {a_bits}, a_bits, [](Fixture& f, Inst& inst) {
    f.wave->sgpr[kM0] = 1;
    inst.dst = vgpr(9), inst.src[0] = vgpr(0);
  });
}

// Lane l's dword holds l; every other lane compares with that, the rest with something else.
TEST_CASE("compares in lds") {
  Fixture f;
  for (u32 l = 0; l < kSmall; ++l) std::memcpy(f.lds + 4 * l, &l, 4);
  f.fill(1, 0, 4);
  f.fill(2, 1000, 1);
  for (u32 l = 0; l < kSmall; ++l) f.wave->vgpr[3][l] = l % 2 ? l : l + 1;
  Inst inst = operands(3);
  run(f, bodies::ds_atomic_rows(), "ds_cmpstore_rtn_b32", inst);
  for (u32 l = 0; l < kSmall; ++l) {
    u32 now;
    std::memcpy(&now, f.lds + 4 * l, 4);
    CHECK_MESSAGE(now == (l % 2 ? 1000 + l : l), "ds_cmpstore_rtn_b32", " lane ", l);
    CHECK_MESSAGE(f.wave->vgpr[10][l] == l, "ds_cmpstore_rtn_b32", " lane ", l);
  }
  for (const bool clamp : {false, true}) {
    for (u32 l = 0; l < kSmall; ++l) std::memcpy(f.lds + 4 * l, &l, 4);
    f.fill(2, 10, 0);
    const char* name = clamp ? "ds_sub_clamp_rtn_u32" : "ds_cond_sub_rtn_u32";
    run(f, bodies::ds_atomic_rows(), name, operands(2));
    for (u32 l = 0; l < kSmall; ++l) {
      u32 now;
      std::memcpy(&now, f.lds + 4 * l, 4);
      CHECK_MESSAGE(now == (l >= 10 ? l - 10 : clamp ? 0 : l), name, " lane ", l);
      CHECK_MESSAGE(f.wave->vgpr[10][l] == l, name, " lane ", l);
    }
  }
}

TEST_CASE("scalar results") {
  Fixture f;
  Inst inst;
  inst.dst = sgpr(30);
  inst.src[0] = sgpr(20);
  inst.neg = 1;
  f.wave->sgpr[20] = bits_of(-4);
  f.set_exec(0);
  const struct {
    const char* name;
    u32 wanted;
  } cases[] = {{"v_s_exp_f32", bits_of(16)},
               {"v_s_log_f32", bits_of(2)},
               {"v_s_rcp_f32", bits_of(0.25f)},
               {"v_s_rsq_f32", bits_of(0.5f)},
               {"v_s_sqrt_f32", bits_of(2)}};
  for (const auto& c : cases) {
    run(f, bodies::rdna_rows(), c.name, inst);
    CHECK_MESSAGE(f.wave->sgpr[30] == c.wanted, c.name);
  }
  f.wave->sgpr[20] = half(-4);
  const char* halves[] = {"v_s_exp_f16", "v_s_log_f16", "v_s_rcp_f16", "v_s_rsq_f16", "v_s_sqrt_f16"};
  for (int i = 0; i < 5; ++i) {
    run(f, bodies::rdna_rows(), halves[i], inst);
    CHECK_MESSAGE(f.wave->sgpr[30] == half(as_float(cases[i].wanted)), halves[i]);
  }
}

}  // namespace

}  // namespace wave32

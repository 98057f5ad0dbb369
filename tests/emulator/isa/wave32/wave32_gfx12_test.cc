// SPDX-License-Identifier: MIT OR Apache-2.0
// The scalar floats and OCP's FP8 of gfx12, and the global memory instructions that only RDNA has.
#include <cmath>

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

constexpr u32 kNan = 0x7fc00000, kNan16 = 0x7e00, kOne16 = 0x3c00, kTwo16 = 0x4000, kThree16 = 0x4200;

// s30 = name(s20, s21), where s30 was `old`.
u32 scalar(const char* name, u32 a, u32 b = 0, u32 old = 0, int32_t literal = 0, bool* scc = nullptr) {
  Fixture f;
  f.wave->sgpr[20] = a;
  f.wave->sgpr[21] = b;
  f.wave->sgpr[30] = old;
  Inst inst;
  inst.dst = sgpr(30);
  inst.src[0] = sgpr(20);
  inst.src[1] = sgpr(21);
  inst.imm = literal;
  run(f, bodies::scalar_rows(), name, inst);
  if (scc) *scc = f.wave->scc;
  return f.wave->sgpr[30];
}

TEST_CASE("scalar arithmetic") {
  const u32 three = bits_of(3), four = bits_of(4), minus = bits_of(-2.5f);
  const struct {
    const char* name;
    u32 a, b, wanted;
  } cases[] = {
      {"s_add_f32", three, minus, bits_of(0.5f)},
      {"s_sub_f32", three, minus, bits_of(5.5f)},
      {"s_mul_f32", three, minus, bits_of(-7.5f)},
      {"s_min_num_f32", three, kNan, three},
      {"s_max_num_f32", three, four, four},
      {"s_minimum_f32", three, kNan, kNan},
      {"s_maximum_f32", minus, four, four},
      {"s_add_f16", kOne16, kTwo16, kThree16},
      {"s_sub_f16", kThree16, kTwo16, kOne16},
      {"s_mul_f16", kOne16, kThree16 | 0xdead0000, kThree16},
      {"s_min_num_f16", kNan16, kTwo16, kTwo16},
      {"s_max_num_f16", kOne16, kTwo16, kTwo16},
      {"s_minimum_f16", kNan16, kTwo16, kNan16},
      {"s_maximum_f16", kOne16, kTwo16, kTwo16},
      {"s_ceil_f32", minus, 0, bits_of(-2)},
      {"s_floor_f32", minus, 0, bits_of(-3)},
      {"s_trunc_f32", minus, 0, bits_of(-2)},
      {"s_rndne_f32", bits_of(3.5f), 0, four},
      {"s_ceil_f16", 0x3e00, 0, kTwo16},  // 1.5
      {"s_floor_f16", 0x3e00, 0, kOne16},
      {"s_trunc_f16", 0x3e00, 0, kOne16},
      {"s_rndne_f16", 0x3e00, 0, kTwo16},
      {"s_cvt_f32_i32", 0xfffffffd, 0, bits_of(-3)},
      {"s_cvt_f32_u32", 0x80000000, 0, bits_of(0x1p31f)},
      {"s_cvt_i32_f32", minus, 0, 0xfffffffe},
      {"s_cvt_u32_f32", minus, 0, 0},
      {"s_cvt_f16_f32", three, 0, kThree16},
      {"s_cvt_f32_f16", kThree16 | 0x12340000, 0, three},
      {"s_cvt_hi_f32_f16", kThree16 << 16 | 0x1234, 0, three},
      {"s_cvt_pk_rtz_f16_f32", bits_of(3.0001f), bits_of(1), kThree16 | kOne16 << 16},
  };
  for (const auto& c : cases) CHECK_MESSAGE(scalar(c.name, c.a, c.b) == c.wanted, c.name);
  const int32_t k = static_cast<int32_t>(bits_of(10));
  CHECK_MESSAGE(scalar("s_fmac_f32", three, four, minus) == bits_of(9.5f), "s_fmac_f32");
  CHECK_MESSAGE(scalar("s_fmac_f16", kOne16, kTwo16, kOne16) == kThree16, "s_fmac_f16");
  CHECK_MESSAGE(scalar("s_fmaak_f32", three, four, 0, k) == bits_of(22), "s_fmaak_f32");
  CHECK_MESSAGE(scalar("s_fmamk_f32", three, four, 0, k) == bits_of(34), "s_fmamk_f32");
}

// Less, equal, greater and a NaN, in this order, as the bits of `hits`.
TEST_CASE("scalar comparisons") {
  const struct {
    const char* name;
    u32 hits;
  } cases[] = {{"lt", 1}, {"eq", 2},  {"le", 3},   {"gt", 4},   {"lg", 5},   {"ge", 6},   {"o", 7},
               {"u", 8},  {"nge", 9}, {"nlg", 10}, {"ngt", 11}, {"nle", 12}, {"neq", 13}, {"nlt", 14}};
  const u32 values[] = {bits_of(-1), bits_of(2), bits_of(3), kNan},
            halves[] = {0xbc00, kTwo16, kThree16, kNan16};
  for (const auto& c : cases) {
    for (int i = 0; i < 4; ++i) {
      const std::string single = std::string("s_cmp_") + c.name + "_f32",
                        half = std::string("s_cmp_") + c.name + "_f16";
      bool scc = false;
      scalar(single.c_str(), values[i], bits_of(2), 0, 0, &scc);
      CHECK_MESSAGE(scc == (c.hits >> i & 1), single.c_str());
      scalar(half.c_str(), halves[i], kTwo16, 0, 0, &scc);
      CHECK_MESSAGE(scc == (c.hits >> i & 1), half.c_str());
    }
  }
}

TEST_CASE("scalar integers") {
  Fixture f;
  const uint64_t a = 0x123456789abcdef0, b = 0xfedcba9876543211;
  f.wave->set_sgpr64(20, a);
  f.wave->set_sgpr64(22, b);
  Inst inst;
  inst.dst = sgpr(30, 2);
  inst.src[0] = sgpr(20, 2);
  inst.src[1] = sgpr(22, 2);
  const struct {
    const char* name;
    uint64_t wanted;
  } cases[] = {{"s_add_nc_u64", a + b}, {"s_sub_nc_u64", a - b}, {"s_mul_u64", a * b}};
  for (const auto& c : cases) {
    run(f, bodies::scalar_rows(), c.name, inst);
    CHECK_MESSAGE(f.wave->sgpr64(30) == c.wanted, c.name);
  }
  Inst message;
  message.dst = sgpr(30, 2);
  message.imm = 0x83;
  run(f, bodies::scalar_rows(), "s_sendmsg_rtn_b64", message);
  const uint64_t first = f.wave->sgpr64(30);
  run(f, bodies::scalar_rows(), "s_sendmsg_rtn_b64", message);
  CHECK_MESSAGE(f.wave->sgpr64(30) >= first, "the clock goes on");
  f.wave->sgpr[kM0] = 5u << 16 | 3;
  f.wave->sgpr[43] = 99;
  Inst move;
  move.dst = sgpr(50);
  move.src[0] = sgpr(40);
  run(f, bodies::scalar_rows(), "s_movrelsd_2_b32", move);
  CHECK_MESSAGE(f.wave->sgpr[55] == 99, "s_movrelsd_2_b32");
}

// A number of OCP's formats, by the definition in its specification.
double ocp_value(u32 code, int exponent_bits) {
  const int fraction = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int e = static_cast<int>(code >> fraction & ((1u << exponent_bits) - 1));
  const int m = static_cast<int>(code & ((1u << fraction) - 1));
  const double sign = code & 0x80 ? -1 : 1;
  if (exponent_bits == 5 && e == 31) return m ? NAN : sign * INFINITY;
  if (exponent_bits == 4 && (code & 0x7f) == 0x7f) return NAN;
  return sign * std::ldexp(e ? m + (1 << fraction) : m, (e ? e : 1) - bias - fraction);
}

void widens_fp8(const char* name, int exponent_bits) {
  Fixture f;
  f.fill(1, 0x03020100, 0x04040404);
  Inst inst;
  inst.dst = vgpr(3);
  inst.src[0] = vgpr(1);
  for (u32 high = 0; high < 2; ++high) {
    for (u32 byte = 0; byte < 4; ++byte) {
      f.fill(1, 0x03020100 + 0x80808080 * high, 0x04040404);
      inst.op_sel = static_cast<uint8_t>((byte & 1) << 1 | byte >> 1);  // the upper bit first
      run(f, bodies::rdna_rows(), name, inst);
      for (u32 l = 0; l < kSmall; ++l) {
        const double wanted = ocp_value(128 * high + 4 * l + byte, exponent_bits);
        const float got = as_float(f.wave->vgpr[3][l]);
        CHECK_MESSAGE((std::isnan(wanted) ? std::isnan(got) : static_cast<double>(got) == wanted), name,
                      " lane ", l);
      }
    }
  }
}

// The nearest of all codes, the even one of two; past half a step beyond the largest there is none.
u32 nearest_code(double x, int exponent_bits) {
  const u32 largest = exponent_bits == 4 ? 0x7e : 0x7b, over = exponent_bits == 4 ? 0x7f : 0x7c;
  u32 best = 0;
  for (u32 code = 0; code <= largest; ++code) {
    const double d = std::fabs(ocp_value(code, exponent_bits) - std::fabs(x));
    const double least = std::fabs(ocp_value(best, exponent_bits) - std::fabs(x));
    if (d < least || (d == least && code % 2 == 0)) best = code;
  }
  const double top = ocp_value(largest, exponent_bits), step = top - ocp_value(largest - 1, exponent_bits);
  const bool beyond = std::fabs(x) - top > step / 2 || (std::fabs(x) - top == step / 2 && largest % 2 == 1);
  return (beyond ? over : best) | (std::signbit(x) ? 0x80 : 0);
}

void narrows_to_fp8(const char* name, int exponent_bits) {
  Fixture f;
  f.wave->mode = 0xf0;
  for (u32 l = 0; l < kSmall; ++l) {
    const auto x = static_cast<float>(std::ldexp(1 + l * 37 % 32 / 32.0, static_cast<int>(l) - 16));
    f.wave->vgpr[1][l] = bits_of(x);
    f.wave->vgpr[2][l] = bits_of(-1.0625f * x);
  }
  f.wave->vgpr[1][31] = kNan;
  f.wave->vgpr[2][30] = bits_of(INFINITY);
  Inst inst;
  inst.dst = vgpr(3);
  inst.src[0] = vgpr(1);
  inst.src[1] = vgpr(2);
  run(f, bodies::vop3_rows(), name, inst);
  for (u32 l = 0; l < kSmall; ++l) {
    const float a = as_float(f.wave->vgpr[1][l]), b = as_float(f.wave->vgpr[2][l]);
    const u32 low = std::isnan(a) ? 0x7f : nearest_code(a, exponent_bits),
              high = nearest_code(b, exponent_bits);
    CHECK_MESSAGE(f.wave->vgpr[3][l] == ((kUntouched & 0xffff0000) | high << 8 | low), name, " lane ", l);
  }
}

TEST_CASE("conversions of FP8") {
  widens_fp8("v_cvt_f32_fp8_gfx12", 4);
  widens_fp8("v_cvt_f32_bf8_gfx12", 5);
  narrows_to_fp8("v_cvt_pk_fp8_f32_ocp", 4);
  narrows_to_fp8("v_cvt_pk_bf8_f32_ocp", 5);
}

TEST_CASE("dots of FP8") {
  Fixture f;
  f.fill(1, 0x38b83840, 0);  // 2, 1, -1, 1 in E4M3
  f.fill(2, 0x3c44403c, 0);  // 1, 2, 4, 1 in E5M2
  f.fill(3, bits_of(-10), 0);
  Inst inst;
  inst.dst = vgpr(4);
  for (int i = 0; i < 3; ++i) inst.src[i] = vgpr(1 + i);
  inst.neg_hi = 4;
  run(f, bodies::vop3p_rows(), "v_dot4_f32_fp8_bf8", inst);
  for (u32 l = 0; l < kSmall; ++l)
    CHECK_MESSAGE(f.wave->vgpr[4][l] == bits_of(2 + 2 - 4 + 1 + 10), "v_dot4_f32_fp8_bf8");
}

TEST_CASE("goes to memory") {
  Fixture f;
  alignas(16) u32 memory[kSmall];
  const auto base = reinterpret_cast<uint64_t>(memory);
  memory_add({base, sizeof memory, MemoryKind::kDevice, 0});
  f.wave->set_sgpr64(20, base);
  f.fill(5, 100, 3);
  Inst store;
  store.src[1] = sgpr(20, 2);
  store.data = vgpr(5);
  run(f, bodies::flat_rows(), "global_store_addtid_b32", store);
  Inst load;
  load.src[1] = sgpr(20, 2);
  load.dst = vgpr(6);
  run(f, bodies::flat_rows(), "global_load_addtid_b32", load);
  for (u32 l = 0; l < kSmall; ++l) {
    CHECK_MESSAGE(memory[l] == 100 + 3 * l, "addtid", " lane ", l);
    CHECK_MESSAGE(f.wave->vgpr[6][l] == memory[l], "addtid", " lane ", l);
  }
  f.fill(1, 0, 4);
  f.fill(5, 150, 0);
  Inst atomic;
  atomic.src[0] = vgpr(1);
  atomic.src[1] = sgpr(20, 2);
  atomic.data = vgpr(5);
  run(f, bodies::flat_rows(), "global_atomic_sub_clamp_u32", atomic);
  for (u32 l = 0; l < kSmall; ++l)
    CHECK_MESSAGE(memory[l] == (100 + 3 * l < 150 ? 0 : 3 * l - 50), "global_atomic_sub_clamp_u32", " lane ",
                  l);
  f.fill(5, bits_of(-1), 0);
  run(f, bodies::flat_rows(), "global_atomic_min_f32", atomic);
  for (u32 x : memory) CHECK_MESSAGE(x == bits_of(-1), "global_atomic_min_f32");
  memory_remove(base);
}

}  // namespace

}  // namespace wave32

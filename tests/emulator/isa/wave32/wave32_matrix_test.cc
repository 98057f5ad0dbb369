// SPDX-License-Identifier: MIT OR Apache-2.0
// WMMA against plain loops over small integers, whose products and sums every type of result holds exactly:
// where each element lies, the modifiers, and what is left alone.
#include <cmath>
#include <functional>

#include "wave32_fixture.h"

namespace wave32 {
namespace {

constexpr int kSize = 16, kA = 0, kB = 16, kC = 32, kD = 48;

// Bits of a small number in a format of `exponent` and `fraction` bits.
uint32_t float_bits(float x, int exponent, int fraction) {
  if (x == 0) return 0;
  int e;
  const float m = 2 * std::frexp(std::fabs(x), &e);  // [1, 2)
  const auto biased = static_cast<uint32_t>(e - 1 + (1 << (exponent - 1)) - 1);
  const auto low = static_cast<uint32_t>((m - 1) * static_cast<float>(1 << fraction));
  return (x < 0 ? 1u : 0u) << (exponent + fraction) | biased << fraction | low;
}
using Encode = uint32_t (*)(float);
uint32_t f16(float x) { return float_bits(x, 5, 10); }
uint32_t bf16(float x) { return float_bits(x, 8, 7); }
uint32_t f32(float x) { return float_bits(x, 8, 23); }
uint32_t fp8(float x) { return float_bits(x, 4, 3); }
uint32_t bf8(float x) { return float_bits(x, 5, 2); }
uint32_t i32(float x) { return static_cast<uint32_t>(static_cast<int>(x)); }
uint32_t i8(float x) { return i32(x) & 0xff; }
uint32_t i4(float x) { return i32(x) & 0xf; }

struct Case {
  const char* name;
  int k, bits, out_bits;
  Encode a, b, out;
  bool split;  // gfx12's layout
};

// Whole numbers from -limit to limit, in no pattern.
float value_at(int i, int j, int limit) {
  return static_cast<float>((i * 7 + j * 5 + i * j * 3) % (2 * limit + 1) - limit);
}

struct Matrices {
  float a[kSize][64], b[64][kSize], c[kSize][kSize];
};
Matrices numbers(int k) {
  Matrices m;
  for (int i = 0; i < kSize; ++i) {
    for (int j = 0; j < k; ++j) m.a[i][j] = value_at(i, j, 3), m.b[j][i] = value_at(j + 2, i, 3);
    for (int j = 0; j < kSize; ++j) m.c[i][j] = value_at(i + 1, j + 1, 20);
  }
  return m;
}

void put(Wave& w, int reg, int lane, int bits, int at, uint32_t value) {
  uint32_t& x = w.vgpr[reg + at * bits / 32][lane];
  const int shift = at * bits % 32;
  const uint32_t field = bits == 32 ? ~0u : (1u << bits) - 1;
  x = (x & ~(field << shift)) | (value & field) << shift;
}

// Element (row, column) of C and D: lane, and its place among the lane's elements of out_bits.
struct Place {
  int lane, at;
};
Place place_of(const Case& c, int row, int column, bool high) {
  if (c.split) return {row / 8 * 16 + column, row % 8};
  return {row % 2 * 16 + column, c.out_bits == 16 ? row / 2 * 2 + high : row / 2};
}

void load(Fixture& f, const Case& c, const Matrices& m, bool high) {
  for (int lane = 0; lane < kSmall; ++lane) {
    const int i = lane % 16, per_lane = c.split ? c.k / 2 : c.k, first = c.split ? lane / 16 * per_lane : 0;
    for (int e = 0; e < per_lane; ++e) {
      put(*f.wave, kA, lane, c.bits, e, c.a(m.a[i][first + e]));
      put(*f.wave, kB, lane, c.bits, e, c.b(m.b[first + e][i]));
    }
  }
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      const Place p = place_of(c, row, column, high);
      put(*f.wave, kC, p.lane, c.out_bits, p.at, c.out(m.c[row][column]));
    }
  }
}

Inst instruction(const Case& c) {
  const int out_registers = c.out_bits == 16 && c.split ? 4 : 8;
  const int in_registers = (c.split ? c.k / 2 : c.k) * c.bits / 32;
  Inst inst;
  inst.dst = vgpr(kD, out_registers);
  inst.src[0] = vgpr(kA, in_registers);
  inst.src[1] = vgpr(kB, in_registers);
  inst.src[2] = vgpr(kC, out_registers);
  if (c.out == i32) inst.neg = 3;  // signed
  return inst;
}

void expect_result(const Fixture& f, const Case& c, bool high,
                   const std::function<float(int row, int column)>& wanted) {
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      const Place p = place_of(c, row, column, high);
      uint32_t got = f.wave->vgpr[kD + p.at * c.out_bits / 32][p.lane] >> p.at * c.out_bits % 32;
      if (c.out_bits == 16) got &= 0xffff;
      CHECK_MESSAGE(got == c.out(wanted(row, column)), c.name, " lane ", p.lane);
    }
  }
}

float product(const Matrices& m, int k, int row, int column) {
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += m.a[row][i] * m.b[i][column];
  return sum;
}

constexpr Case kCases[] = {
    {"v_wmma_f32_16x16x16_f16", 16, 16, 32, f16, f16, f32, false},
    {"v_wmma_f32_16x16x16_bf16", 16, 16, 32, bf16, bf16, f32, false},
    {"v_wmma_f16_16x16x16_f16", 16, 16, 16, f16, f16, f16, false},
    {"v_wmma_bf16_16x16x16_bf16", 16, 16, 16, bf16, bf16, bf16, false},
    {"v_wmma_i32_16x16x16_iu8", 16, 8, 32, i8, i8, i32, false},
    {"v_wmma_i32_16x16x16_iu4", 16, 4, 32, i4, i4, i32, false},
    {"v_wmma_f32_16x16x16_f16_gfx12", 16, 16, 32, f16, f16, f32, true},
    {"v_wmma_f32_16x16x16_bf16_gfx12", 16, 16, 32, bf16, bf16, f32, true},
    {"v_wmma_f16_16x16x16_f16_gfx12", 16, 16, 16, f16, f16, f16, true},
    {"v_wmma_bf16_16x16x16_bf16_gfx12", 16, 16, 16, bf16, bf16, bf16, true},
    {"v_wmma_i32_16x16x16_iu8_gfx12", 16, 8, 32, i8, i8, i32, true},
    {"v_wmma_i32_16x16x16_iu4_gfx12", 16, 4, 32, i4, i4, i32, true},
    {"v_wmma_i32_16x16x32_iu4", 32, 4, 32, i4, i4, i32, true},
    {"v_wmma_f32_16x16x16_fp8_fp8", 16, 8, 32, fp8, fp8, f32, true},
    {"v_wmma_f32_16x16x16_fp8_bf8", 16, 8, 32, fp8, bf8, f32, true},
    {"v_wmma_f32_16x16x16_bf8_fp8", 16, 8, 32, bf8, fp8, f32, true},
    {"v_wmma_f32_16x16x16_bf8_bf8", 16, 8, 32, bf8, bf8, f32, true},
};

// bf16 results have 8 bits: sums up to 256 are exact, and these stay below 16 * 9 + 20.
void multiplies_and_adds(const Case& c) {
  const Matrices m = numbers(c.k);
  Fixture f;
  load(f, c, m, false);
  f.set_exec(0x0000f00f);  // which matrices ignore
  run(f, bodies::wmma_rows(), c.name, instruction(c));
  expect_result(f, c, false,
                [&](int row, int column) { return product(m, c.k, row, column) + m.c[row][column]; });
  f.untouched(kD, c.name);
  if (c.out_bits == 16 && !c.split)
    CHECK_MESSAGE((f.wave->vgpr[kD][3] >> 16) == (kUntouched >> 16), "the other half of a 16-bit result");
}

// In place, with the upper halves of C and D.
void takes_upper_halves(const Case& c) {
  const Matrices m = numbers(c.k);
  Fixture f;
  load(f, c, m, true);
  Inst inst = instruction(c);
  inst.op_sel = 4;
  for (int r = 0; r < 8; ++r) std::memcpy(f.wave->vgpr[kD + r], f.wave->vgpr[kC + r], sizeof f.wave->vgpr[0]);
  inst.src[2] = inst.dst;
  run(f, bodies::wmma_rows(), c.name, inst);
  expect_result(f, c, true,
                [&](int row, int column) { return product(m, c.k, row, column) + m.c[row][column]; });
  CHECK_MESSAGE((f.wave->vgpr[kD][3] & 0xffff) == (kUntouched & 0xffff), "the lower half");
}

void negates(const Case& c) {
  const Matrices m = numbers(c.k);
  Fixture f;
  load(f, c, m, false);
  Inst inst = instruction(c);
  inst.neg = 1 | 4;     // A's even elements; C
  inst.neg_hi = 2 | 4;  // B's odd ones; C's absolute value
  run(f, bodies::wmma_rows(), c.name, inst);
  expect_result(f, c, false, [&](int row, int column) {
    return -product(m, c.k, row, column) - std::fabs(m.c[row][column]);
  });
}

TEST_CASE("saturates") {
  const Case& c = kCases[4];
  Matrices m = numbers(c.k);
  Fixture f;
  load(f, c, m, false);
  Inst inst = instruction(c);
  for (const uint32_t limit : {0x7fffffffu, 0x80000000u}) {
    f.fill(kC, limit, 0);  // rows 0 and 1
    inst.clamp = true;
    run(f, bodies::wmma_rows(), c.name, inst);
    for (int lane = 0; lane < kSmall; ++lane) {
      const int sum = static_cast<int>(product(m, c.k, lane / 16, lane % 16));
      const bool over = (limit >> 31 ? sum < 0 : sum > 0);
      CHECK_MESSAGE(f.wave->vgpr[kD][lane] == (over ? limit : limit + static_cast<uint32_t>(sum)), "clamp",
                    " lane ", lane);
    }
  }
}

// Bytes and nibbles without a sign: -1 is 255 or 15.
void unsigned_integers(const Case& c) {
  const Matrices m = numbers(c.k);
  Fixture f;
  load(f, c, m, false);
  Inst inst = instruction(c);
  inst.neg = 1;  // A is signed, B is not
  run(f, bodies::wmma_rows(), c.name, inst);
  expect_result(f, c, false, [&](int row, int column) {
    float sum = m.c[row][column];
    for (int i = 0; i < c.k; ++i) {
      const float b = m.b[i][column];
      sum += m.a[row][i] * (b < 0 ? b + static_cast<float>(1 << c.bits) : b);
    }
    return sum;
  });
}

// A constant as C is one of C's type: 1.0.
void adds_a_constant(const Case& c) {
  const Matrices m = numbers(c.k);
  Fixture f;
  load(f, c, m, false);
  Inst inst = instruction(c);
  inst.src[2] = Operand();
  inst.src[2].kind = OperandKind::kConst;
  inst.src[2].encoded = 242;
  run(f, bodies::wmma_rows(), c.name, inst);
  expect_result(f, c, false, [&](int row, int column) { return product(m, c.k, row, column) + 1; });
}

constexpr Case kSparse[] = {
    {"v_swmmac_f32_16x16x32_f16", 32, 16, 32, f16, f16, f32, true},
    {"v_swmmac_f32_16x16x32_bf16", 32, 16, 32, bf16, bf16, f32, true},
    {"v_swmmac_f16_16x16x32_f16", 32, 16, 16, f16, f16, f16, true},
    {"v_swmmac_bf16_16x16x32_bf16", 32, 16, 16, bf16, bf16, bf16, true},
    {"v_swmmac_i32_16x16x32_iu8", 32, 8, 32, i8, i8, i32, true},
    {"v_swmmac_i32_16x16x32_iu4", 32, 4, 32, i4, i4, i32, true},
    {"v_swmmac_i32_16x16x64_iu4", 64, 4, 32, i4, i4, i32, true},
    {"v_swmmac_f32_16x16x32_fp8_fp8", 32, 8, 32, fp8, fp8, f32, true},
    {"v_swmmac_f32_16x16x32_fp8_bf8", 32, 8, 32, fp8, bf8, f32, true},
    {"v_swmmac_f32_16x16x32_bf8_fp8", 32, 8, 32, bf8, fp8, f32, true},
    {"v_swmmac_f32_16x16x32_bf8_bf8", 32, 8, 32, bf8, bf8, f32, true},
};

// A's row is zero but for two of every four k, which the lane of the row and of these k holds with their
// places.
void multiplies_sparse(const Case& c) {
  Matrices m = numbers(c.k);
  Fixture f;
  load(f, c, m, false);
  const bool upper = c.k == 32;  // the indices are the upper half of the register
  for (int lane = 0; lane < kSmall; ++lane) {
    const int row = lane % 16, first = lane / 16 * c.k / 2;
    for (int r = 0; r < 4; ++r) f.wave->vgpr[kA + r][lane] = 0;
    uint32_t index = 0;
    for (int quad = 0; quad < c.k / 8; ++quad) {
      const int dropped = (row + quad) % 4, other = (dropped + 1 + quad % 3) % 4;
      int e = 2 * quad;
      for (int place = 0; place < 4; ++place) {
        float& x = m.a[row][first + 4 * quad + place];
        if (place == dropped || place == other) {
          x = 0;
          continue;
        }
        index |= static_cast<uint32_t>(place) << 2 * e;
        put(*f.wave, kA, lane, c.bits, e++, c.a(x));
      }
    }
    f.wave->vgpr[64][lane] = upper ? index << 16 : index;
  }
  Inst inst = instruction(c);
  inst.src[2] = vgpr(64);
  inst.dst = vgpr(kC, inst.dst.dwords);
  inst.op_sel = upper;
  run(f, bodies::wmma_rows(), c.name, inst);
  for (int r = 0; r < 8; ++r) std::memcpy(f.wave->vgpr[kD + r], f.wave->vgpr[kC + r], sizeof f.wave->vgpr[0]);
  expect_result(f, c, false,
                [&](int row, int column) { return product(m, c.k, row, column) + m.c[row][column]; });
}

TEST_CASE("sparse matrices") {
  for (const Case& c : kSparse) multiplies_sparse(c);
}

TEST_CASE("dense matrices") {
  for (const Case& c : kCases) {
    multiplies_and_adds(c);
    if (c.out == i32) {
      unsigned_integers(c);
      continue;
    }
    adds_a_constant(c);
    if (c.out_bits == 16 && !c.split) takes_upper_halves(c);
    if (c.bits == 16) negates(c);
  }
}

}  // namespace

}  // namespace wave32

// SPDX-License-Identifier: MIT OR Apache-2.0
// The levels are those of the x86-64 psABI, section 3.1.1. CPUID is asked here and not by
// __builtin_cpu_supports, which depends on the compiler's run-time library: zig's says no to everything.
#include "base/host_cpu.h"

#include <cpuid.h>

#include <cstdint>

namespace fmha::emu {
namespace {

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;

  explicit Leaf(uint32_t number) {
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(number, 0, &a, &b, &c, &d) != 0) eax = a, ebx = b, ecx = c, edx = d;
  }
};

bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

// The registers that the operating system saves: XCR0.
uint32_t saved_registers(const Leaf& features) {
  if (!has(features.ecx, bit_OSXSAVE)) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

constexpr uint32_t kYmm = 0x06;  // SSE and AVX state
constexpr uint32_t kZmm = 0xe6;  // and that of AVX-512: masks, upper halves, upper registers

}  // namespace

int x86_64_level() {
  const Leaf basic(1), extended(7), amd(0x80000001);
  const uint32_t saved = saved_registers(basic);
  const bool v2 =
      has(basic.ecx, bit_SSE3 | bit_SSSE3 | bit_CMPXCHG16B | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT) &&
      has(amd.ecx, bit_LAHF_LM);
  const bool v3 = v2 && has(saved, kYmm) && has(basic.ecx, bit_FMA | bit_MOVBE | bit_AVX | bit_F16C) &&
                  has(extended.ebx, bit_BMI | bit_AVX2 | bit_BMI2) && has(amd.ecx, bit_LZCNT);
  const bool v4 = v3 && has(saved, kZmm) &&
                  has(extended.ebx, bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL);
  return v4 ? 4 : v3 ? 3 : v2 ? 2 : 1;
}

}  // namespace fmha::emu

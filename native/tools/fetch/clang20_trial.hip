// SPDX-License-Identifier: MIT OR Apache-2.0
// toolchain.sh compiles this with the clang it made: HIP's headers, a function of the device library that
// asks which arch it is, and an instruction that only gfx950 has.
#include <hip/hip_runtime.h>

using Operand = __bf16 __attribute__((ext_vector_type(8)));
using Sums = float __attribute__((ext_vector_type(16)));

extern "C" __global__ void clang20_trial(const Operand* a, const Operand* b, Sums* c) {
  const unsigned lane = threadIdx.x;
  Sums sums = __builtin_amdgcn_mfma_f32_32x32x16_bf16(a[lane], b[lane], c[lane], 0, 0, 0);
  sums[0] = __powf(sums[0], sums[1]) + sinf(sums[2]);
  c[lane] = sums;
}

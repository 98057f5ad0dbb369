// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of 16 x 16 matrices, one wave each: by the matrix instruction or what stands in
// for it, in the layout that native/kernels/hip/common/wmma.h says it has, and by plain loops, of which the
// compiler makes what it likes.
#include <hip/hip_runtime.h>

#include "hip/common/wmma.h"

namespace {

constexpr int kSize = 16;

__device__ int lane_of_wave() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }

// a's row or, of `columns`, b's column `line`, from its element `first` on: all 16 of them, or eight.
template <typename Operand, typename T>
__device__ Operand operand(const T* m, int line, int first, bool columns) {
  constexpr int kElements = sizeof(Operand) / sizeof(T);
  struct {
    T x[kElements];
  } lines;
  for (int i = 0; i < kElements; ++i) {
    lines.x[i] = columns ? m[(first + i) * kSize + line] : m[line * kSize + first + i];
  }
  return __builtin_bit_cast(Operand, lines);
}

__device__ fmha::Float8 column_of(const float* c) {
  fmha::Float8 x;
  const int lane = lane_of_wave();
  for (int i = 0; i < 8; ++i) x[i] = c[(lane / 16 * 8 + i) * kSize + lane % 16];
  return x;
}

__device__ void store(const fmha::Float8& x, float* d) {
  const int lane = lane_of_wave();
  for (int i = 0; i < 8; ++i) d[(lane / 16 * 8 + i) * kSize + lane % 16] = x[i];
}

// d = a b + c; e = a d, of which d is rounded to T.
template <typename T>
__device__ void by_wmma(const T* a, const T* b, const float* c, float* d, float* e) {
  const int lane = lane_of_wave();
  const int first_a = fmha::kWholeA ? 0 : fmha::chunk_of_lane(lane) * 8;
  const int first_b = fmha::kWholeB ? 0 : lane / 16 * 8;
  const auto rows = operand<fmha::OperandA>(a, fmha::row_of_lane(lane), first_a, false);
  const auto columns = operand<fmha::OperandB>(b, lane % 16, first_b, true);
  const fmha::Float8 x = fmha::multiply16<T>(rows, columns, column_of(c));
  store(x, d);
  const fmha::OperandB next = fmha::operand_of(fmha::rounded_eight<T>(x), lane >= 16);
  store(fmha::multiply16<T>(rows, next, fmha::Float8{}), e);
}

template <typename T>
__device__ void by_loops(const T* a, const T* b, const float* c, float* d, float* e) {
  const int column = lane_of_wave() % 16;
  if (lane_of_wave() >= 16) return;
  T rounded[kSize];
  for (int i = 0; i < kSize; ++i) {
    float sum = c[i * kSize + column];
    for (int k = 0; k < kSize; ++k) {
      sum += fmha::to_float(a[i * kSize + k]) * fmha::to_float(b[k * kSize + column]);
    }
    d[i * kSize + column] = sum;
    fmha::round_to(rounded[i], sum);
  }
  for (int i = 0; i < kSize; ++i) {
    float sum = 0;
    for (int k = 0; k < kSize; ++k) sum += fmha::to_float(a[i * kSize + k]) * fmha::to_float(rounded[k]);
    e[i * kSize + column] = sum;
  }
}

}  // namespace

#define PRODUCTS(type)                                                                                       \
  extern "C" __global__ void wmma_##type(const fmha::type* a, const fmha::type* b, const float* c, float* d, \
                                         float* e) {                                                         \
    by_wmma(a, b, c, d, e);                                                                                  \
  }                                                                                                          \
  extern "C" __global__ void loops_##type(const fmha::type* a, const fmha::type* b, const float* c,          \
                                          float* d, float* e) {                                              \
    by_loops(a, b, c, d, e);                                                                                 \
  }
PRODUCTS(Fp16)
PRODUCTS(Bf16)

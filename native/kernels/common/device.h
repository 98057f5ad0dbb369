// SPDX-License-Identifier: MIT OR Apache-2.0
// HIP's words, as far as our kernels use them. HIP's own headers and those that clang puts in front of them
// take 0.9 seconds of each translation unit, half of what most of ours take. Units of ours are therefore
// compiled without them (-nogpuinc); a unit that has them, as Composable Kernel's, takes HIP's.
#pragma once

#ifdef __CLANG_HIP_RUNTIME_WRAPPER_H__
#include <hip/hip_runtime.h>
#else

#include <cstddef>
#include <cstdint>

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
// The threads of a workgroup at most, and the waves on a SIMD at least.
#define __launch_bounds__(threads, ...) \
  __attribute__((amdgpu_flat_work_group_size(1, threads) __VA_OPT__(, amdgpu_waves_per_eu(__VA_ARGS__))))

// The device bitcode that every kernel is linked with has these.
extern "C" {
__device__ __attribute__((const)) size_t __ockl_get_local_id(unsigned dim);
__device__ __attribute__((const)) size_t __ockl_get_group_id(unsigned dim);
__device__ __attribute__((const)) size_t __ockl_get_local_size(unsigned dim);
__device__ __attribute__((const)) size_t __ockl_get_num_groups(unsigned dim);
}

namespace fmha::device {

template <auto kGet>
struct Coordinates {
  template <unsigned kDim>
  struct Coordinate {
    __device__ operator unsigned() const { return kGet(kDim); }
  };
  Coordinate<0> x;
  Coordinate<1> y;
  Coordinate<2> z;
};

}  // namespace fmha::device

inline constexpr fmha::device::Coordinates<__ockl_get_local_id> threadIdx{};
inline constexpr fmha::device::Coordinates<__ockl_get_group_id> blockIdx{};
inline constexpr fmha::device::Coordinates<__ockl_get_local_size> blockDim{};
inline constexpr fmha::device::Coordinates<__ockl_get_num_groups> gridDim{};

#ifdef __GFX9__
inline constexpr int warpSize = 64;
#else
inline constexpr int warpSize = 32;
#endif

template <typename T>
__device__ inline constexpr T min(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
__device__ inline constexpr T max(T a, T b) {
  return a > b ? a : b;
}

// A barrier of the workgroup, behind which its threads see what each wrote before.
__device__ inline __attribute__((convergent)) void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Any, or all, of the wave's lanes that run.
__device__ inline bool __any(bool predicate) {
#ifdef __GFX9__
  return __builtin_amdgcn_ballot_w64(predicate) != 0;
#else
  return __builtin_amdgcn_ballot_w32(predicate) != 0;
#endif
}
__device__ inline bool __all(bool predicate) { return !__any(!predicate); }

namespace fmha::device {

__device__ inline int lane() { return __builtin_amdgcn_mbcnt_hi(-1, __builtin_amdgcn_mbcnt_lo(-1, 0)); }

template <typename T>
__device__ inline T from_lane(T x, int lane) {
  static_assert(sizeof(T) == 4);
  return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(lane << 2, __builtin_bit_cast(int, x)));
}

}  // namespace fmha::device

// The value of lane `lane` in this lane's group of `width`, a power of two.
template <typename T>
__device__ inline T __shfl(T x, int lane, int width = warpSize) {
  return fmha::device::from_lane(x, (lane & (width - 1)) + (fmha::device::lane() & ~(width - 1)));
}

// The value of the lane whose number differs by the bits `mask`; this lane's own, if that one is not in the
// group.
template <typename T>
__device__ inline T __shfl_xor(T x, int mask, int width = warpSize) {
  const int self = fmha::device::lane(), other = self ^ mask;
  return fmha::device::from_lane(x, other >= ((self + width) & ~(width - 1)) ? self : other);
}

#endif

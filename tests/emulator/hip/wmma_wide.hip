// SPDX-License-Identifier: MIT OR Apache-2.0
// Matrix instructions of RDNA in waves of 64, by the compiler's builtins: a kernel each, which takes
// registers as they are, [register][lane], those of A, then B, C and the sparse indices, and stores those of
// D.
#if defined(__HIP_DEVICE_COMPILE__)
#define VECTOR(name, type, count) typedef type name __attribute__((ext_vector_type(count)))
VECTOR(F4, float, 4);
VECTOR(H4, _Float16, 4);
VECTOR(H8, _Float16, 8);
VECTOR(H16, _Float16, 16);
VECTOR(S4, short, 4);
VECTOR(S8, short, 8);
VECTOR(S16, short, 16);
VECTOR(I2, int, 2);
VECTOR(I4, int, 4);

constexpr int kLanes = 64;

template <class T>
__attribute__((device)) T load(const int*& in) {
  union {
    T value;
    int words[sizeof(T) / 4];
  } u;
  for (int& word : u.words) {
    word = in[__builtin_amdgcn_workitem_id_x()];
    in += kLanes;
  }
  return u.value;
}
template <class T>
__attribute__((device)) void store(T x, int* out) {
  union {
    T value;
    int words[sizeof(T) / 4];
  } u = {x};
  for (int word : u.words) {
    out[__builtin_amdgcn_workitem_id_x()] = word;
    out += kLanes;
  }
}

#define KERNEL(name, A, B, C, ...)                                           \
  extern "C" __attribute__((global)) void name(const int* in, int* out) {    \
    const A a = load<A>(in);                                                 \
    const B b = load<B>(in);                                                 \
    const C c = load<C>(in);                                                 \
    [[maybe_unused]] const int index = in[__builtin_amdgcn_workitem_id_x()]; \
    store<C>(__builtin_amdgcn_##__VA_ARGS__, out);                           \
  }

#if defined(__GFX12__)
KERNEL(f32_f16, H4, H4, F4, wmma_f32_16x16x16_f16_w64_gfx12(a, b, c))
KERNEL(f32_bf16, S4, S4, F4, wmma_f32_16x16x16_bf16_w64_gfx12(a, b, c))
KERNEL(f16_f16, H4, H4, H4, wmma_f16_16x16x16_f16_w64_gfx12(a, b, c))
KERNEL(bf16_bf16, S4, S4, S4, wmma_bf16_16x16x16_bf16_w64_gfx12(a, b, c))
KERNEL(i32_i8, int, int, I4, wmma_i32_16x16x16_iu8_w64_gfx12(true, a, true, b, c, false))
KERNEL(i32_i4, int, int, I4, wmma_i32_16x16x16_iu4_w64_gfx12(true, a, true, b, c, false))
KERNEL(i32_i4_32, int, int, I4, wmma_i32_16x16x32_iu4_w64_gfx12(true, a, true, b, c, false))
KERNEL(f32_fp8_fp8, int, int, F4, wmma_f32_16x16x16_fp8_fp8_w64_gfx12(a, b, c))
KERNEL(f32_fp8_bf8, int, int, F4, wmma_f32_16x16x16_fp8_bf8_w64_gfx12(a, b, c))
KERNEL(f32_bf8_fp8, int, int, F4, wmma_f32_16x16x16_bf8_fp8_w64_gfx12(a, b, c))
KERNEL(f32_bf8_bf8, int, int, F4, wmma_f32_16x16x16_bf8_bf8_w64_gfx12(a, b, c))
KERNEL(sparse_f32_f16, H4, H8, F4, swmmac_f32_16x16x32_f16_w64(a, b, c, index))
KERNEL(sparse_f32_bf16, S4, S8, F4, swmmac_f32_16x16x32_bf16_w64(a, b, c, index))
KERNEL(sparse_f16_f16, H4, H8, H4, swmmac_f16_16x16x32_f16_w64(a, b, c, index))
KERNEL(sparse_bf16_bf16, S4, S8, S4, swmmac_bf16_16x16x32_bf16_w64(a, b, c, index))
KERNEL(sparse_i32_i8, int, I2, I4, swmmac_i32_16x16x32_iu8_w64(true, a, true, b, c, index, false))
KERNEL(sparse_i32_i4, int, int, I4, swmmac_i32_16x16x32_iu4_w64(true, a, true, b, c, index, false))
KERNEL(sparse_i32_i4_64, int, I2, I4, swmmac_i32_16x16x64_iu4_w64(true, a, true, b, c, index, false))
KERNEL(sparse_f32_fp8_fp8, int, I2, F4, swmmac_f32_16x16x32_fp8_fp8_w64(a, b, c, index))
KERNEL(sparse_f32_fp8_bf8, int, I2, F4, swmmac_f32_16x16x32_fp8_bf8_w64(a, b, c, index))
KERNEL(sparse_f32_bf8_fp8, int, I2, F4, swmmac_f32_16x16x32_bf8_fp8_w64(a, b, c, index))
KERNEL(sparse_f32_bf8_bf8, int, I2, F4, swmmac_f32_16x16x32_bf8_bf8_w64(a, b, c, index))
#else
KERNEL(f32_f16, H16, H16, F4, wmma_f32_16x16x16_f16_w64(a, b, c))
KERNEL(f32_bf16, S16, S16, F4, wmma_f32_16x16x16_bf16_w64(a, b, c))
KERNEL(f16_f16, H16, H16, H8, wmma_f16_16x16x16_f16_w64(a, b, c, false))
KERNEL(f16_f16_high, H16, H16, H8, wmma_f16_16x16x16_f16_w64(a, b, c, true))
KERNEL(bf16_bf16, S16, S16, S8, wmma_bf16_16x16x16_bf16_w64(a, b, c, false))
KERNEL(bf16_bf16_high, S16, S16, S8, wmma_bf16_16x16x16_bf16_w64(a, b, c, true))
KERNEL(i32_i8, I4, I4, I4, wmma_i32_16x16x16_iu8_w64(true, a, true, b, c, false))
KERNEL(i32_i4, I2, I2, I4, wmma_i32_16x16x16_iu4_w64(true, a, true, b, c, false))
#endif
#endif

// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of matrices in OCP's small floats, one wave each: f32 is divided by the scales of blocks of 32 and
// narrowed by v_cvt_scalef32, and v_mfma_scale multiplies. The layouts are those of the CDNA4 ISA
// guide, 7.1.5.
#define DEVICE __attribute__((device)) inline
#define KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))

typedef int Int8 __attribute__((ext_vector_type(8)));
typedef unsigned Int6 __attribute__((ext_vector_type(6)));
typedef short Short2 __attribute__((ext_vector_type(2)));
typedef float Float4 __attribute__((ext_vector_type(4)));
typedef float Float16 __attribute__((ext_vector_type(16)));

enum Kind { kFp8, kBf8, kFp6, kBf6, kFp4 };  // as CBSZ and BLGP number them

DEVICE int lane() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE float power_of(unsigned scale) { return __builtin_bit_cast(float, scale << 23); }

// Where element e of this lane is along k.
template <int kKind, int kM, int kK>
DEVICE int along(int e) {
  const int group = lane() / kM;
  return kKind <= kBf8 ? 16 * group + e % 16 + (e < 16 ? 0 : kK / 2) : 32 * group + e;
}

// The lane's 32 elements of its row of x, which is rows x k.
template <int kKind, int kM, int kK>
DEVICE Int8 narrowed(const float* x, const unsigned char* scales) {
  const int row = lane() % kM;
  float from[32], scale[32];
  for (int e = 0; e < 32; ++e) {
    const int k = along<kKind, kM, kK>(e);
    from[e] = x[row * kK + k];
    scale[e] = power_of(scales[row * (kK / 32) + k / 32]);
  }
  Int8 out = {};
  if constexpr (kKind <= kBf8) {
#pragma unroll
    for (int e = 0; e < 32; e += 4) {
      Short2 two = {};
      if constexpr (kKind == kFp8) {
        two = __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(two, from[e], from[e + 1], scale[e], false);
        two = __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(two, from[e + 2], from[e + 3], scale[e], true);
      } else {
        two = __builtin_amdgcn_cvt_scalef32_pk_bf8_f32(two, from[e], from[e + 1], scale[e], false);
        two = __builtin_amdgcn_cvt_scalef32_pk_bf8_f32(two, from[e + 2], from[e + 3], scale[e], true);
      }
      out[e / 4] = __builtin_bit_cast(int, two);
    }
  } else if constexpr (kKind == kFp4) {
#pragma unroll
    for (int e = 0; e < 32; e += 8) {
      unsigned all = 0;
      all = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(all, from[e], from[e + 1], scale[e], 0);
      all = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(all, from[e + 2], from[e + 3], scale[e], 1);
      all = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(all, from[e + 4], from[e + 5], scale[e], 2);
      out[e / 8] = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(all, from[e + 6], from[e + 7], scale[e], 3);
    }
  } else {
    Float16 even, odd;
    for (int e = 0; e < 16; ++e) even[e] = from[2 * e], odd[e] = from[2 * e + 1];
    Int6 six;
    if constexpr (kKind == kFp6)
      six = __builtin_amdgcn_cvt_scalef32_2xpk16_fp6_f32(even, odd, scale[0]);
    else
      six = __builtin_amdgcn_cvt_scalef32_2xpk16_bf6_f32(even, odd, scale[0]);
    for (int i = 0; i < 6; ++i) out[i] = six[i];
  }
  return out;
}

// d = a b + c. b comes by columns.
template <int kM, int kK, int kA, int kB>
DEVICE void multiply(const float* a, const float* b, const unsigned char* scale_a,
                     const unsigned char* scale_b, const float* c, float* d) {
  const Int8 x = narrowed<kA, kM, kK>(a, scale_a), y = narrowed<kB, kM, kK>(b, scale_b);
  const int column = lane() % kM, group = lane() / kM, block = column * (kK / 32) + group;
  const int sa = scale_a[block], sb = scale_b[block];
  const auto place = [=](int r) { return (64 / kM * 4 * (r / 4) + 4 * group + r % 4) * kM + column; };
  if constexpr (kM == 16) {
    Float4 sum;
    for (int r = 0; r < 4; ++r) sum[r] = c[place(r)];
    sum = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(x, y, sum, kA, kB, 0, sa, 0, sb);
    for (int r = 0; r < 4; ++r) d[place(r)] = sum[r];
  } else {
    Float16 sum;
    for (int r = 0; r < 16; ++r) sum[r] = c[place(r)];
    sum = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(x, y, sum, kA, kB, 0, sa, 0, sb);
    for (int r = 0; r < 16; ++r) d[place(r)] = sum[r];
  }
}

#define PRODUCT(name, m, k, a_kind, b_kind)                                                          \
  KERNEL void name(const float* a, const float* b, const unsigned char* sa, const unsigned char* sb, \
                   const float* c, float* d) {                                                       \
    multiply<m, k, a_kind, b_kind>(a, b, sa, sb, c, d);                                              \
  }
PRODUCT(fp8_fp8_16, 16, 128, kFp8, kFp8)
PRODUCT(fp4_fp4_16, 16, 128, kFp4, kFp4)
PRODUCT(fp8_fp4_16, 16, 128, kFp8, kFp4)
PRODUCT(bf6_bf8_16, 16, 128, kBf6, kBf8)
PRODUCT(fp8_bf8_32, 32, 64, kFp8, kBf8)
PRODUCT(fp4_fp4_32, 32, 64, kFp4, kFp4)
PRODUCT(fp6_fp8_32, 32, 64, kFp6, kFp8)
PRODUCT(fp4_bf6_32, 32, 64, kFp4, kBf6)

// SPDX-License-Identifier: MIT OR Apache-2.0
// The parts of a decoder beside attention, on the CPU and as plain as can be; and attention in double, to
// compare.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

constexpr int kHidden = 128, kHeads = 4, kKeyHeads = 2, kDim = 64;
constexpr int kQuerySize = kHeads * kDim, kKeySize = kKeyHeads * kDim;

using Bf16 = std::uint16_t;  // the upper half of a float

inline float widen(Bf16 x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

inline Bf16 narrow(float f) {  // to nearest even; no NaN comes here
  std::uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return static_cast<Bf16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct Layer {
  std::vector<float> gain, q, k, v, o;  // of RMSNorm; projections (outputs, inputs)

  explicit Layer(std::mt19937& random)
      : gain(kHidden, 1.0f),
        q(weights(random, kQuerySize, kHidden)),
        k(weights(random, kKeySize, kHidden)),
        v(weights(random, kKeySize, kHidden)),
        o(weights(random, kHidden, kQuerySize)) {}

  static std::vector<float> weights(std::mt19937& random, int outputs, int inputs) {
    std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(inputs)));
    std::vector<float> w(static_cast<std::size_t>(outputs) * inputs);
    for (float& x : w) x = normal(random);
    return w;
  }
};

inline std::vector<float> rms_norm(const float* x, const std::vector<float>& gain) {
  float squares = 0;
  for (int i = 0; i < kHidden; ++i) squares += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(squares / kHidden + 1e-6f);
  std::vector<float> y(kHidden);
  for (int i = 0; i < kHidden; ++i) y[i] = x[i] * scale * gain[i];
  return y;
}

inline void project(const std::vector<float>& w, const std::vector<float>& x, Bf16* y, int outputs) {
  for (int i = 0; i < outputs; ++i) {
    float sum = 0;
    for (std::size_t j = 0; j < x.size(); ++j) sum += w[i * x.size() + j] * x[j];
    y[i] = narrow(sum);
  }
}

// x += w o
inline void project_back(const std::vector<float>& w, const Bf16* o, float* x) {
  for (int i = 0; i < kHidden; ++i) {
    for (int j = 0; j < kQuerySize; ++j) x[i] += w[i * kQuerySize + j] * widen(o[j]);
  }
}

// The largest error of one row of one head, over `keys` keys, in units of what roundings allow: half an ulp
// of o (2^-8 of it), half an ulp of each p, which the kernel rounds to bfloat16 as well, and 2^-16 of float
// arithmetic.
inline double worst_error(const Bf16* q, const Bf16* k, const Bf16* v, const Bf16* o, int keys, float scale) {
  std::vector<double> p(keys);
  double largest = -INFINITY, sum = 0, worst = 0;
  for (int j = 0; j < keys; ++j) {
    for (int d = 0; d < kDim; ++d) p[j] += static_cast<double>(widen(q[d])) * widen(k[j * kKeySize + d]);
    p[j] *= scale;
    largest = std::fmax(largest, p[j]);
  }
  for (double& x : p) sum += x = std::exp(x - largest);
  for (int d = 0; d < kDim; ++d) {
    double exact = 0, magnitude = 0;
    for (int j = 0; j < keys; ++j) {
      exact += p[j] / sum * widen(v[j * kKeySize + d]);
      magnitude += p[j] / sum * std::fabs(widen(v[j * kKeySize + d]));
    }
    const double error = std::fabs(widen(o[d]) - exact);
    const double allowed = std::ldexp(std::fabs(exact) + magnitude, -8) + std::ldexp(magnitude, -16);
    if (!(error <= worst * allowed)) worst = error / allowed;  // NaN comes here too
  }
  return worst;
}

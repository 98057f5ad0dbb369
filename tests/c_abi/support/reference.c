/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

static int mantissa_bits(fmha_dtype dtype) { return dtype == FMHA_FP16 ? 10 : 7; }
static int least_exponent(fmha_dtype dtype) { return dtype == FMHA_FP16 ? -14 : -126; }

double reference_to_double(fmha_dtype dtype, uint16_t bits) {
  const int m = mantissa_bits(dtype);
  const int exponent = (bits >> m) & ((1 << (15 - m)) - 1);
  const int fraction = bits & ((1 << m) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << (15 - m)) - 1) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, least_exponent(dtype) - m);
  return sign * ldexp(fraction + (1 << m), least_exponent(dtype) + exponent - 1 - m);
}

static double ulp_at(fmha_dtype dtype, double value) {
  int exponent = least_exponent(dtype);
  if (value != 0.0) {
    int e;
    frexp(value, &e);
    if (e - 1 > exponent) exponent = e - 1;
  }
  return ldexp(1.0, exponent - mantissa_bits(dtype));
}

uint16_t reference_from_double(fmha_dtype dtype, double value) {
  const int m = mantissa_bits(dtype);
  const double ulp = ulp_at(dtype, value);
  const double rounded = rint(fabs(value) / ulp) * ulp; /* rint: to nearest, ties to even */
  const uint16_t sign = value < 0 ? 0x8000 : 0;
  int e;
  double mantissa;
  if (rounded < ldexp(1.0, least_exponent(dtype))) return (uint16_t)(sign | (uint16_t)(rounded / ulp));
  mantissa = frexp(rounded, &e); /* in [0.5, 1) */
  return (uint16_t)(sign | ((e - least_exponent(dtype)) << m) | ((int)ldexp(mantissa, m + 1) - (1 << m)));
}

void reference_fill(fmha_dtype dtype, uint32_t seed, uint16_t* data, size_t count) {
  uint32_t x = seed * 2654435761u + 1;
  size_t i;
  for (i = 0; i < count; ++i) {
    x ^= x << 13, x ^= x >> 17, x ^= x << 5; /* xorshift */
    data[i] = reference_from_double(dtype, (double)x / 2147483648.0 - 1.0);
  }
}

static int64_t offset_of(const fmha_tensor* t, int64_t b, int64_t s, int64_t h) {
  return b * t->stride_batch + s * t->stride_seqlen + h * t->stride_head;
}

/* The definition in fmha_rocm.h, written out. */
static int is_visible(const fmha_fwd_params* p, int64_t row, int64_t key) {
  const int64_t column = p->mask == FMHA_MASK_CAUSAL_TOP_LEFT ? row : row + p->seqlen_k - p->seqlen_q;
  switch (p->mask) {
    case FMHA_MASK_NONE:
      return 1;
    case FMHA_MASK_WINDOW:
      return (p->window_left >= p->seqlen_k || key >= column - p->window_left) &&
             (p->window_right >= p->seqlen_k || key <= column + p->window_right);
    default:
      return key <= column;
  }
}

/* One row of P, not normalised, into `weight`; the maximum score into *max, which is -inf for an empty row.
 */
static double softmax_row(const fmha_fwd_params* p, const uint16_t* q, const uint16_t* k, int64_t b,
                          int64_t row, int64_t head, double* weight, double* max) {
  const uint16_t* q_row = q + offset_of(&p->q, b, row, head);
  const int64_t head_k = head / (p->nhead_q / p->nhead_k);
  double sum = 0;
  int64_t j, d;
  *max = -INFINITY;
  for (j = 0; j < p->seqlen_k; ++j) {
    const uint16_t* k_row = k + offset_of(&p->k, b, j, head_k);
    double score = 0;
    weight[j] = -INFINITY;
    if (!is_visible(p, row, j)) continue;
    for (d = 0; d < p->hdim_q; ++d) {
      score += reference_to_double(p->dtype, q_row[d]) * reference_to_double(p->dtype, k_row[d]);
    }
    weight[j] = score * (double)p->softmax_scale;
    if (weight[j] > *max) *max = weight[j];
  }
  for (j = 0; j < p->seqlen_k; ++j) {
    weight[j] = weight[j] == -INFINITY ? 0.0 : exp(weight[j] - *max);
    sum += weight[j];
  }
  return sum;
}

static void compare_row_of_o(const fmha_fwd_params* p, const uint16_t* v, const uint16_t* o_row, int64_t b,
                             int64_t head, const double* weight, double sum, reference_errors* errors) {
  const double u = p->dtype == FMHA_FP16 ? ldexp(1.0, -11) : ldexp(1.0, -8);
  const int64_t head_k = head / (p->nhead_q / p->nhead_k);
  int64_t d, j;
  for (d = 0; d < p->hdim_v; ++d) {
    double exact = 0, magnitude = 0, tolerance, error;
    for (j = 0; j < p->seqlen_k; ++j) {
      const double x = weight[j] * reference_to_double(p->dtype, v[offset_of(&p->v, b, j, head_k) + d]);
      exact += x;
      magnitude += fabs(x);
    }
    if (sum > 0) exact /= sum, magnitude /= sum;
    tolerance = sum > 0 ? 1.5 * (ulp_at(p->dtype, exact) + u * magnitude) : 0;
    error = fabs(reference_to_double(p->dtype, o_row[d]) - exact);
    /* An empty row is exactly 0; a NaN is as wrong as can be. */
    error = tolerance > 0 ? error / tolerance : (error == 0 ? 0 : INFINITY);
    if (!(error <= errors->worst_o)) errors->worst_o = isnan(error) ? INFINITY : error;
  }
}

reference_errors reference_compare(const fmha_fwd_params* p, const uint16_t* q, const uint16_t* k,
                                   const uint16_t* v, const uint16_t* o, const float* lse) {
  reference_errors errors = {0, 0, 0, 0};
  double* weight = malloc(sizeof *weight * (size_t)(p->seqlen_k + 1));
  int64_t b, h, s;
  if (weight == NULL) abort();
  for (b = 0; b < p->batch; ++b) {
    for (h = 0; h < p->nhead_q; ++h) {
      for (s = 0; s < p->seqlen_q; ++s) {
        double max, sum, error;
        sum = softmax_row(p, q, k, b, s, h, weight, &max);
        ++errors.rows;
        errors.empty_rows += sum == 0;
        compare_row_of_o(p, v, o + offset_of(&p->o, b, s, h), b, h, weight, sum, &errors);
        if (lse == NULL) continue;
        error = (double)lse[b * p->lse.stride_batch + h * p->lse.stride_head + s];
        error = sum == 0 ? (error == -INFINITY ? 0 : INFINITY) : fabs(error - (max + log(sum)));
        if (!(error <= errors.worst_lse)) errors.worst_lse = isnan(error) ? INFINITY : error;
      }
    }
  }
  free(weight);
  return errors;
}

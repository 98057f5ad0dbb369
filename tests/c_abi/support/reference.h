/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Attention in double arithmetic over the 16-bit tensors a kernel sees, and how far a kernel may be from it.
 */
#ifndef FMHA_TESTS_REFERENCE_H
#define FMHA_TESTS_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "fmha_rocm.h"

#ifdef __cplusplus
extern "C" {
#endif

double reference_to_double(fmha_dtype dtype, uint16_t bits);

/* To nearest, ties to even; `value` must be finite and in range. */
uint16_t reference_from_double(fmha_dtype dtype, double value);

/* Numbers in [-1, 1), the same for the same seed. */
void reference_fill(fmha_dtype dtype, uint32_t seed, uint16_t* data, size_t count);

typedef struct reference_errors {
  double worst_o;   /* largest |o - reference| / tolerance: at most 1 is right */
  double worst_lse; /* largest |lse - reference|; infinite where exactly one is -inf */
  long rows, empty_rows;
} reference_errors;

/* Compares what a kernel wrote with the reference. `p` says sizes, strides, scale and mask; its pointers are
 * not used, the data is in host memory. `lse` may be NULL.
 *
 * The tolerance of an element of o is 1.5 * (one ulp of the output type at the reference value + what
 * rounding P to 16 bits may do, which is u * sum(p_j * |v_j|) / sum(p_j)), u being the relative error of one
 * rounding: 2^-11 for fp16, 2^-8 for bf16. */
reference_errors reference_compare(const fmha_fwd_params* p, const uint16_t* q, const uint16_t* k,
                                   const uint16_t* v, const uint16_t* o, const float* lse);

#ifdef __cplusplus
}
#endif
#endif

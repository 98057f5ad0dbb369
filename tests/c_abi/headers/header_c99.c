/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Only the public header, as a C99 program sees it. */
#include <stddef.h>

#pragma GCC diagnostic error "-Wpadded"
#include "fmha_rocm.h"

/* The last field ends where the struct does: an array of a negative size does not compile. */
typedef char params_end_with_a_field
    [offsetof(fmha_fwd_params, sinks) + sizeof(const float*) == sizeof(fmha_fwd_params) ? 1 : -1];
typedef char info_ends_with_a_field
    [offsetof(fmha_kernel_info, why) + sizeof(const char*) == sizeof(fmha_kernel_info) ? 1 : -1];
typedef char
    extent_ends_with_a_field[offsetof(fmha_extent, reserved) + sizeof(uint32_t) == sizeof(fmha_extent) ? 1
                                                                                                       : -1];

#ifdef FMHA_TEST_PADDED
/* This must not compile, as the pragma above forbids padding. */
struct padded {
  uint32_t struct_size;
  int64_t batch;
};
typedef char padded_is_laid_out[sizeof(struct padded)];
#endif

int header_c99(void) {
  fmha_fwd_params params = {0};
  fmha_kernel_info info = {0};
  params.struct_size = sizeof params;
  params.dtype = FMHA_BF16;
  params.mask = FMHA_MASK_CAUSAL;
  info.struct_size = sizeof info;
  return fmha_fwd_kernel(&params, &info) == FMHA_OK && fmha_fwd(&params, 0) == FMHA_OK;
}

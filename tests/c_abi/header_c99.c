/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The public header alone, as a C99 program sees it. */
#include "fmha_rocm.h"

int header_c99(void) {
  fmha_fwd_params params = {0};
  fmha_kernel_info info = {0};
  params.struct_size = sizeof params;
  params.dtype = FMHA_BF16;
  params.mask = FMHA_MASK_CAUSAL;
  info.struct_size = sizeof info;
  return fmha_fwd_kernel(&params, &info) == FMHA_OK && fmha_fwd(&params, 0) == FMHA_OK;
}

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A backward problem with contiguous tensors, as tests start from. */
#ifndef FMHA_TESTS_BWD_PARAMS_H
#define FMHA_TESTS_BWD_PARAMS_H

#include "params.h"

/* Sizes and strides of a forward problem's backward call; pointers are NULL. */
static inline fmha_bwd_params test_bwd_params(const fmha_fwd_params* fwd) {
  fmha_bwd_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.fwd = fwd;
  p.dout = fwd->o;
  p.dq = fwd->q;
  p.dk = fwd->k;
  p.dv = fwd->v;
  p.dout.data = p.dq.data = p.dk.data = p.dv.data = NULL;
  return p;
}

#endif

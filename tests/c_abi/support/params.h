/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A forward problem with contiguous tensors, as tests start from. */
#ifndef FMHA_TESTS_PARAMS_H
#define FMHA_TESTS_PARAMS_H

#include <math.h>
#include <string.h>

#include "fmha_rocm.h"

/* BSHD: (batch, seqlen, nhead, hdim) in memory. BHSD: (batch, nhead, seqlen, hdim). */
enum { TEST_BSHD, TEST_BHSD };

static inline fmha_tensor test_tensor(void* data, int layout, int64_t seqlen, int64_t nhead, int64_t hdim) {
  fmha_tensor t;
  t.data = data;
  t.stride_batch = seqlen * nhead * hdim;
  t.stride_seqlen = layout == TEST_BSHD ? nhead * hdim : hdim;
  t.stride_head = layout == TEST_BSHD ? hdim : seqlen * hdim;
  return t;
}

/* Sizes and strides; pointers are NULL. */
static inline fmha_fwd_params test_params(fmha_dtype dtype, int layout, int64_t batch, int64_t seqlen_q,
                                          int64_t seqlen_k, int64_t nhead_q, int64_t nhead_k, int64_t hdim) {
  fmha_fwd_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.dtype = dtype;
  p.batch = batch;
  p.seqlen_q = seqlen_q;
  p.seqlen_k = seqlen_k;
  p.nhead_q = nhead_q;
  p.nhead_k = nhead_k;
  p.hdim_q = hdim;
  p.hdim_v = hdim;
  p.softmax_scale = (float)(1.0 / sqrt((double)hdim));
  p.q = test_tensor(NULL, layout, seqlen_q, nhead_q, hdim);
  p.k = test_tensor(NULL, layout, seqlen_k, nhead_k, hdim);
  p.v = test_tensor(NULL, layout, seqlen_k, nhead_k, hdim);
  p.o = test_tensor(NULL, layout, seqlen_q, nhead_q, hdim);
  p.lse.stride_batch = nhead_q * seqlen_q;
  p.lse.stride_head = seqlen_q;
  return p;
}

#endif

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* So many calls of a kind, for valgrind to count: call_count fwd|varlen|bwd|decode|append|merge CALLS. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fmha_rocm.h"

enum { HDIM = 128, HEADS = 8, PAGE = 16, PAGES = 32, ROW = HEADS * HDIM };

static void* memory(size_t bytes) {
  static int (*allocate)(void**, size_t);
  void *pointer = NULL, *library = dlopen(fmha_hip_runtime_path(), RTLD_NOW);
  if (allocate == NULL) {
    void* symbol = dlsym(library, "hipMalloc");
    memcpy(&allocate, &symbol, sizeof symbol);
  }
  if (allocate(&pointer, bytes) != 0) exit(2);
  return pointer;
}

/* Causal self-attention: four tensors. */
static fmha_fwd_params forward(void) {
  const int64_t seqlen = 512;
  fmha_fwd_params p;
  fmha_tensor* tensors[4];
  int i;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.dtype = FMHA_BF16;
  p.mask = FMHA_MASK_CAUSAL;
  p.batch = 1;
  p.seqlen_q = p.seqlen_k = seqlen;
  p.nhead_q = p.nhead_k = HEADS;
  p.hdim_q = p.hdim_v = HDIM;
  p.softmax_scale = 0.088f;
  tensors[0] = &p.q, tensors[1] = &p.k, tensors[2] = &p.v, tensors[3] = &p.o;
  for (i = 0; i < 4; ++i) {
    tensors[i]->data = memory((size_t)seqlen * ROW * 2);
    tensors[i]->stride_batch = seqlen * ROW;
    tensors[i]->stride_seqlen = ROW;
    tensors[i]->stride_head = HDIM;
  }
  return p;
}

static fmha_cache paged(void) {
  fmha_cache c;
  memset(&c, 0, sizeof c);
  c.struct_size = sizeof c;
  c.dtype = FMHA_BF16;
  c.pages = PAGES;
  c.page_size = PAGE;
  c.k.data = memory((size_t)PAGES * PAGE * ROW * 2);
  c.v.data = memory((size_t)PAGES * PAGE * ROW * 2);
  c.k.stride_page = c.v.stride_page = PAGE * ROW;
  c.k.stride_token = c.v.stride_token = ROW;
  c.k.stride_head = c.v.stride_head = HDIM;
  c.block_table = memory(4 * PAGES);
  c.stride_block_table = c.max_pages = PAGES;
  return c;
}

/* Packed sequences, here one, with an LSE. */
static void pack(fmha_fwd_params* p) {
  p->cu_seqlens_q = p->cu_seqlens_k = memory(8);
  p->total_q = p->total_k = p->seqlen_q;
  p->lse.stride_head = p->total_q;
}

static fmha_bwd_params backward(const fmha_fwd_params* fwd) {
  fmha_bwd_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.fwd = fwd;
  p.dout = fwd->q, p.dq = fwd->q, p.dk = fwd->k, p.dv = fwd->v;
  p.dout.data = memory(512 * ROW * 2), p.dq.data = memory(512 * ROW * 2);
  p.dk.data = memory(512 * ROW * 2), p.dv.data = memory(512 * ROW * 2);
  p.workspace_bytes = 1 << 24;
  p.workspace = memory((size_t)p.workspace_bytes);
  return p;
}

static fmha_decode_params decoding(const fmha_fwd_params* fwd, const fmha_cache* cache) {
  fmha_decode_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.fwd = fwd;
  p.cache = cache;
  p.num_splits = 1;
  return p;
}

static fmha_kv_append_params appending(const fmha_fwd_params* fwd, const fmha_cache* cache) {
  fmha_kv_append_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.dtype = FMHA_BF16;
  p.batch = p.seqlen = 1;
  p.nhead_k = HEADS;
  p.hdim_q = p.hdim_v = HDIM;
  p.k = fwd->k;
  p.v = fwd->v;
  p.seqused_k = memory(4);
  p.cache = cache;
  return p;
}

/* Two parts. */
static fmha_merge_params merging(const fmha_fwd_params* fwd) {
  fmha_merge_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.dtype = FMHA_BF16;
  p.parts = 2;
  p.batch = 1, p.seqlen = fwd->seqlen_q, p.nhead = HEADS, p.hdim = HDIM;
  p.o_parts.data = memory(2 * 512 * ROW * 2);
  p.o_parts.stride_part = p.o_parts.stride_batch = fwd->o.stride_batch;
  p.o_parts.stride_seqlen = ROW, p.o_parts.stride_head = HDIM;
  p.lse_parts.data = memory(2 * 512 * HEADS * 4);
  p.lse_parts.stride_part = p.lse_parts.stride_batch = fwd->seqlen_q * HEADS;
  p.lse_parts.stride_head = fwd->seqlen_q;
  p.o = fwd->o;
  p.lse = fwd->lse;
  return p;
}

int main(int argc, char** argv) {
  enum { FWD, VARLEN, BWD, DECODE, APPEND, MERGE, KINDS };
  static const char* const names[] = {"fwd", "varlen", "bwd", "decode", "append", "merge"};
  long calls = argc == 3 ? strtol(argv[2], NULL, 10) : 0, i;
  int kind = 0;
  fmha_fwd_params fwd = forward();
  fmha_cache cache = paged();
  fmha_bwd_params bwd = backward(&fwd);
  fmha_decode_params decode = decoding(&fwd, &cache);
  fmha_kv_append_params append = appending(&fwd, &cache);
  fmha_merge_params merge;
  while (kind < KINDS && (argc != 3 || strcmp(argv[1], names[kind]) != 0)) ++kind;
  if (kind == VARLEN || kind == BWD || kind == MERGE) {
    fwd.lse.data = memory(512 * HEADS * 4);
    fwd.lse.stride_batch = HEADS * fwd.seqlen_q, fwd.lse.stride_head = fwd.seqlen_q;
  }
  if (kind == BWD) fwd.seqlen_q = 1; /* so that little is set to 0: that is counted too */
  if (kind == VARLEN) pack(&fwd);
  if (kind == DECODE) fwd.seqlen_q = 1, fwd.seqused_k = memory(4);
  merge = merging(&fwd);
  for (i = 0; i < calls; ++i) {
    fmha_status status = FMHA_INVALID_ARGUMENT;
    if (kind == FWD || kind == VARLEN) status = fmha_fwd(&fwd, NULL);
    if (kind == BWD) status = fmha_bwd(&bwd, NULL);
    if (kind == DECODE) status = fmha_decode(&decode, NULL);
    if (kind == APPEND) status = fmha_kv_append(&append, NULL);
    if (kind == MERGE) status = fmha_merge(&merge, NULL);
    if (status != FMHA_OK) {
      fprintf(stderr, "call_count: %s\n", fmha_last_error());
      return status == FMHA_UNSUPPORTED ? 77 : 1;
    }
  }
  return 0;
}

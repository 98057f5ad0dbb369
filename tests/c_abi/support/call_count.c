/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* So many calls of a kind, for valgrind to count: call_count fwd|decode|append CALLS. */
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

int main(int argc, char** argv) {
  long calls = argc == 3 ? strtol(argv[2], NULL, 10) : 0, i;
  fmha_fwd_params fwd = forward();
  fmha_cache cache = paged();
  fmha_decode_params decode;
  fmha_kv_append_params append;
  int32_t* lengths = memory(4);
  memset(&decode, 0, sizeof decode);
  memset(&append, 0, sizeof append);
  decode.struct_size = sizeof decode;
  decode.fwd = &fwd;
  decode.cache = &cache;
  decode.num_splits = 1;
  append.struct_size = sizeof append;
  append.dtype = FMHA_BF16;
  append.batch = append.seqlen = 1;
  append.nhead_k = HEADS;
  append.hdim_q = append.hdim_v = HDIM;
  append.k = fwd.k;
  append.v = fwd.v;
  append.seqused_k = lengths;
  append.cache = &cache;
  for (i = 0; i < calls; ++i) {
    fmha_status status = FMHA_INVALID_ARGUMENT;
    if (strcmp(argv[1], "fwd") == 0) status = fmha_fwd(&fwd, NULL);
    if (strcmp(argv[1], "append") == 0) status = fmha_kv_append(&append, NULL);
    if (strcmp(argv[1], "decode") == 0) {
      fwd.seqlen_q = 1;
      fwd.seqused_k = lengths;
      status = fmha_decode(&decode, NULL);
    }
    if (status != FMHA_OK) {
      fprintf(stderr, "call_count: %s\n", fmha_last_error());
      return status == FMHA_UNSUPPORTED ? 77 : 1;
    }
  }
  return 0;
}

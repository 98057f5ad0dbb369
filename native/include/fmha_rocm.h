/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * fmha_rocm: attention on AMD GPUs behind a plain C ABI.
 *
 * This header is the manual. These rules hold for every function:
 *
 *  - Memory. The library allocates no device memory and owns none. Tensors are
 *    device pointers plus strides in elements; sizes named `_bytes` are bytes.
 *  - Streams. Work is enqueued on the hipStream_t given, NULL or hipStreamLegacy being
 *    the null stream, and the call returns at once. The library never synchronises.
 *  - Devices. A call uses the calling thread's current HIP device, which must be
 *    the one the pointers and the stream belong to: HIP refuses a launch on another
 *    device's stream, with error 101 or 400.
 *  - Threads. Every function may be called from any thread at any time.
 *  - Processes. HIP does not survive a fork. If the parent had used a device, the child's
 *    calls are FMHA_HIP_ERROR: start it by spawn or exec, or fork before the first call.
 *  - Workspace. A call that needs device memory for intermediate results takes it from
 *    the caller: the params have a pointer and a size, and a function of the family says
 *    how many bytes it takes. fmha_fwd also runs without one, more slowly where workgroups
 *    could share the keys of long sequences of few heads.
 *  - Graphs. Once the kernel that a call needs is loaded, by fmha_fwd_prepare or by an
 *    earlier call, the call asks HIP for the current device and for the owner of each
 *    tensor's memory, enqueues its launch, and does nothing else: it allocates nothing,
 *    takes no lock, and is legal while the stream is being captured. It then accepts
 *    memory of a captured hipMallocAsync, which ROCm reports as device 0's. Features, head
 *    dims, lengths, batch and heads decide which kernel that is; fmha_fwd_kernel names it.
 *  - Errors. A function that returns fmha_status either returns FMHA_OK or has done nothing: no launch, no
 *    write. There is one exception: a call may have several steps (step_count of fmha_kernel_info), and HIP may
 *    refuse one after the first. The steps before it are then enqueued, and the call's outputs and workspace may
 *    hold anything. The call returns FMHA_HIP_ERROR, and the message says so.
 *    fmha_last_error() says what was wrong.
 *    The library clears HIP's own last error after a HIP call that failed.
 *    HIP reports later what a kernel does wrong.
 *  - Memory is what HIP knows: hipMalloc and its kin, managed memory, and host
 *    memory pinned by hipHostMalloc or hipHostRegister. Any other pointer is
 *    FMHA_INVALID_ARGUMENT, and so is memory of another device than the current,
 *    unless FMHA_NO_MEMORY_CHECK says that the caller knows better.
 *  - Arrays of the device. Lengths, starts, page lists, slots and positions are read by kernels: the host
 *    cannot see what is in them. A number out of range is no error, and leads to no access outside the memory
 *    that the call names, with one exception: (3). [a, b) is from a to b - 1.
 *
 *    | array of fmha_kv_append        | out of range                                             | the result       |
 *    | ---                            | ---                                                      | ---              |
 *    | cu_seqlens                     | a row not in [0, total)                                  | left out (1)     |
 *    | seqused_k, positions           | with rotary, not in [0, rotary.positions)                | left out (1)     |
 *    | seqused_k                      | behind the list, or without one behind the page; below 0 | not stored (2)   |
 *    | slots, block_table, kv_indices | a page not in [0, pages)                                 | not stored (2)   |
 *    | cache_batch_idx                | not in [0, pages)                                        | not stored (2)   |
 *    | kv_indptr                      | an entry not in [0, indices), or the next sequence's     | not stored (2)   |
 *
 *    | array of fmha_decode    | out of range                                      | the result            |
 *    | ---                     | ---                                               | ---                   |
 *    | cu_seqlens_q            | not in [0, total_q]; an end before its start      | the nearest that is   |
 *    | seqused_k, cu_seqlens_k | a length not in [0, seqlen_k], or beyond its list | the nearest that is   |
 *    | leftpad_k               | not in [0, length]                                | the nearest that is   |
 *    | block_table, kv_indices | a page not in [0, pages)                          | the last page is read |
 *    | cache_batch_idx         | not in [0, pages)                                 | the last one is read  |
 *    | kv_indptr               | not in [0, indices]; an end before its start      | the nearest that is   |
 *
 *    | array of fmha_fwd, fmha_bwd | out of range                                  | the result              |
 *    | ---                         | ---                                           | ---                     |
 *    | cu_seqlens_q, cu_seqlens_k  | not in [0, total]; an end before its start    | the nearest that is (3) |
 *    | the same                    | more rows of a sequence than seqlen           | its first ones count    |
 *    | seqused_q, seqused_k        | not in [0, n], of the n rows of its sequence  | the nearest that is     |
 *
 *    (1) The token's key and value are not stored, and q_out keeps what it held there. (2) Its key and value
 *    are not stored, and its query is rotated. (3) Kernels of the pipeline "asm_v3" come prebuilt. fmha_bwd hands
 *    them starts in order: each is at least the one before it. Those of fmha_fwd access the memory there;
 *    fmha_fwd_kernel tells whether a call runs one, and `kernel` asks for another.
 *
 *  - Structs. Set struct_size to sizeof the struct and every other field to zero
 *    before you fill it; zero is always the default. Structs only grow at their end:
 *    the struct of an older header is accepted, and its missing fields are zero; a
 *    longer one of a newer header is accepted if the bytes that this library does not
 *    know are zero. No struct has padding, and a field named `reserved` must be zero.
 */
#ifndef FMHA_ROCM_H
#define FMHA_ROCM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default) /* the library is built with everything else hidden */
#endif

/* Version of this header; fmha_version() is that of the library loaded. */
#define FMHA_VERSION_MAJOR 0
#define FMHA_VERSION_MINOR 2
#define FMHA_VERSION_PATCH 0

/* cffi-begin: pyfa_rocm reads what is between the two cffi marks. */

/* The outcome of a call. Values never change. */
typedef int32_t fmha_status;
enum {
  FMHA_OK = 0,
  FMHA_INVALID_ARGUMENT = 1, /* the arguments make no sense; the message names which, got, expected */
  FMHA_UNSUPPORTED = 2,      /* they make sense, but no kernel does it; the message says what would work */
  FMHA_HIP_ERROR = 3,   /* the HIP runtime is missing, ambiguous, or refused; the message has its words */
  FMHA_INTERNAL = 4,    /* a defect of this library: please report it */
  FMHA_ABI_MISMATCH = 5 /* struct_size is too small, or asks for fields this library does not have */
};

/* Element type of a tensor. Zero is no type, so that it cannot be forgotten. */
typedef int32_t fmha_dtype;
enum {
  FMHA_FP16 = 1,
  FMHA_BF16 = 2,
  FMHA_FP32 = 3,
  FMHA_FP8_E4M3_FNUZ = 4, /* bias 8, no infinities, no -0; largest 240: the 8-bit float of gfx942 */
  FMHA_FP8_E4M3_FN = 5    /* OCP's: bias 7, no infinities; largest 448: that of gfx950, gfx1200 and gfx1201. A
                             byte means another number in each type, so a device refuses the type that it does
                             not compute with: FMHA_UNSUPPORTED, and the message names the right one */
};

/* The keys that a query sees. Query row i stands at key column i + seqlen_k - seqlen_q ("bottom-right": the last query
 * sees the last key) unless the name says top-left: at column i. K and V must be finite where hidden, too. */
typedef int32_t fmha_mask;
enum {
  FMHA_MASK_NONE = 0,            /* every key */
  FMHA_MASK_CAUSAL = 1,          /* no key to the right of its own column */
  FMHA_MASK_CAUSAL_TOP_LEFT = 2, /* the same, aligned top-left */
  FMHA_MASK_WINDOW = 3,          /* at most window_left keys to the left and window_right to the right of
                                    its own column; a side of seqlen_k or more (INT64_MAX, say) is unlimited,
                                    as in flash-attention, even if seqlen_q is larger */
  FMHA_MASK_WINDOW_TOP_LEFT = 4  /* the same, aligned top-left */
};

/* A 4-d tensor (batch, seqlen, nhead, hdim) in any layout whose last dimension is contiguous: element (b, s, h, d) is
 * at data[b * stride_batch + s * stride_seqlen + h * stride_head + d]. Strides are in elements, not negative, and
 * multiples of 16 bytes (8 elements of 16 bits); data is a device pointer aligned to 16 bytes. The stride of a
 * dimension of size one is not read; a stride of 0 repeats the same elements, which `o` may not do. fmha_fwd writes
 * only through `o`, `lse` and `randval`, fmha_bwd only through `dq`, `dk`, `dv` and `dbias`.
 * Most kernels count in 32 bits, so a call is FMHA_UNSUPPORTED if a stride is 2^31 or more, or if one head of a
 * sequence is too large: it (seqlen * stride_seqlen with seqlen rounded up to 256, plus a row) has to be below 4 GiB
 * and 2^31 elements. One that is written has to be below 2 GiB, unless 256 divides seqlen and sequences are not
 * packed. A forward call of gfx942 or gfx950 without bias and dropout, of 16 bits and head dims to 128, or to 256
 * without ALiBi and softcap, counts in 64 bits: there only 256 rows must be less than 2 GiB. */
typedef struct fmha_tensor {
  void* data;
  int64_t stride_batch;
  int64_t stride_seqlen;
  int64_t stride_head;
} fmha_tensor;

/* The log-sum-exp of each softmax row: float32 (batch, nhead_q, seqlen_q), natural logarithm, of the
 * scaled and masked scores. Element (b, h, s) is at data[b * stride_batch + h * stride_head + s].
 * data NULL: not wanted, and the strides are not read. data is aligned to 4 bytes. Strides are below
 * 2^31, except in the plain forward call that fmha_tensor names. */
typedef struct fmha_lse {
  float* data;
  int64_t stride_batch;
  int64_t stride_head;
} fmha_lse;

/* A tensor that is added to the scaled scores: (batch, nhead_q, seqlen_q, seqlen_k) of q's dtype, the last dimension
 * contiguous. Element (b, h, i, j) is at data[b * stride_batch + h * stride_head + i * stride_seqlen + j]; a
 * stride of 0 broadcasts. Aligned to an element; if data and strides are aligned to four elements, an
 * unpadded kernel may be chosen. An element of -inf hides its key; one beyond +-2.3e38 may count as infinite.
 * data NULL: no bias, and the strides are not read. With cu_seqlens it is (nhead_q, total_q, seqlen_k): its
 * rows are those of q, column j is key j of the row's own sequence, and stride_batch is not read. */
typedef struct fmha_bias {
  const void* data;
  int64_t stride_batch;
  int64_t stride_head;
  int64_t stride_seqlen;
} fmha_bias;

/* The random bytes of dropout, for debugging and tests: uint8 (batch, nhead_q, seqlen_q, seqlen_k), laid out
 * like fmha_bias, but written, so that no stride is 0 and nothing overlaps. Element (b, h, i, j) was kept if
 * its byte is at most floor((1 - p_drop) * 255), computed in float32. data NULL: not wanted; required if
 * p_drop is 0. Only bytes of keys that the kernel looked at are written. */
typedef struct fmha_randval {
  uint8_t* data;
  int64_t stride_batch;
  int64_t stride_head;
  int64_t stride_seqlen;
} fmha_randval;

/* The gradient of the bias, laid out like fmha_bias, but written: (batch, nhead_q, seqlen_q, seqlen_k) of the call's
 * grad_dtype. A stride of 0 sums over its dimension, which then counts as one element also if its size is 0; where the
 * bias has a stride above 0, so has its gradient, and the elements do not overlap. Aligned to an element. Elements
 * that no sequence has, or that the mask hides, are 0. data NULL: not wanted, and the strides are not read. */
typedef struct fmha_bias_grad {
  void* data;
  int64_t stride_batch;
  int64_t stride_head;
  int64_t stride_seqlen;
} fmha_bias_grad;

/* Bits of a call's flags. */
enum {
  /* The call does not ask HIP which device the pointers belong to, which takes up to 16 queries. Set it if you
   * know that the current device can access them, as an adapter does that has asked its framework; any other
   * pointer is then a GPU fault. Set it also for memory that is imported from another API or belongs to another
   * HSA client, which ROCm reports as device 0's, whichever device it is on. */
  FMHA_NO_MEMORY_CHECK = 1
};

/* Arguments of fmha_fwd: O = softmax(softmax_scale * Q K^T, masked) V. */
typedef struct fmha_fwd_params {
  uint32_t struct_size; /* sizeof(fmha_fwd_params) */
  fmha_dtype dtype;     /* of q, k, v, and of o unless o_dtype says otherwise; required */
  int64_t batch;        /* any of batch, nhead_q and seqlen_q may be 0: the call then does nothing and looks
                           at no data pointer. batch * nhead_q is at most 8388607; batch at most 65535 with
                           Composable Kernel's kernels (on Instinct FP8, bias, dropout, some head dims) */
  int64_t seqlen_q;     /* at most 65535 tiles (see fmha_kernel_info), and at most 2^29 - 256 */
  int64_t seqlen_k;     /* 0: o is 0 and lse is -inf, or the sink, and k.data and v.data are not looked
                           at; at most 2^29 - 256 */
  int64_t nhead_q;      /* a multiple of nhead_k; query head h reads key head h / (nhead_q / nhead_k) */
  int64_t nhead_k;      /* required */
  int64_t hdim_q;       /* head dim of q and k; required */
  int64_t hdim_v;       /* head dim of v and o; required */
  float softmax_scale;  /* factor on the scores, usually 1 / sqrt(hdim_q); required, finite, above 0
                           (FMHA_UNSUPPORTED below 1e-38: no kernel takes it). Scaled scores are float32, and
                           a row whose largest is beyond +-1.8e8 (FP8: 7.2e5) is NaN in o and lse, unless
                           softcap, bias or alibi_slopes are used: the kernels cannot compute it. A plain
                           forward call (see fmha_tensor) in bf16 can up to 1e9 */
  fmha_mask mask;
  int64_t window_left;  /* read only for FMHA_MASK_WINDOW and its top-left form; not negative */
  int64_t window_right; /* the same */
  fmha_tensor q;        /* (batch, seqlen_q, nhead_q, hdim_q) */
  fmha_tensor k;        /* (batch, seqlen_k, nhead_k, hdim_q) */
  fmha_tensor v;        /* (batch, seqlen_k, nhead_k, hdim_v) */
  fmha_tensor o;        /* (batch, seqlen_q, nhead_q, hdim_v), written; from its first to its last element
                           it must not overlap another tensor, nor any of its elements each other */
  fmha_lse lse;         /* (batch, nhead_q, seqlen_q), written if data is set; must not overlap, like o */

  fmha_dtype o_dtype; /* of o; 0: as dtype. FP8 inputs give FMHA_BF16, FMHA_FP16 or FMHA_FP32, other inputs
                         their own type */
  float softcap;      /* 0: none; above 0: scores become softcap * tanh(score / softcap) before the mask.
                         FMHA_UNSUPPORTED above 819, where the kernels' tanh loses precision, and together
                         with bias or alibi_slopes */
  fmha_bias bias;     /* not together with alibi_slopes */

  /* ALiBi: -slope * |j - own column of the query| is added to the scaled score of key j, where the own column
   * is that of `mask` (bottom-right for FMHA_MASK_NONE). Device memory, float32; element (b, h) is at
   * alibi_slopes[b * alibi_stride_batch + h]. NULL: none. */
  const float* alibi_slopes;
  int64_t alibi_stride_batch; /* 0: one set of slopes for all batches */

  /* Sequences of different lengths, packed ("varlen"). Both or neither; device memory, int32
   * (batch + 1), not decreasing, from 0. Sequence b has the rows cu_seqlens_q[b] up to cu_seqlens_q[b + 1] of
   * q and o. Then q and o are (total_q, nhead, hdim), k and v are (total_k, nhead, hdim), and lse is
   * (nhead_q, total_q); no stride_batch is read. seqlen_q and seqlen_k are upper bounds of the lengths
   * (flash-attention's max_seqlen): only the first rows of a longer sequence, which the library cannot see,
   * count. A window's side is compared with seqlen_k. */
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  /* Optional, and only with cu_seqlens: lengths in use, device memory, int32 (batch), of sequences that fill
   * only the first part of their rows. The rest is neither read nor written. */
  const int32_t* seqused_q;
  const int32_t* seqused_k;
  int64_t total_q; /* rows of q and o; read only with cu_seqlens_q, and then required unless seqlen_q is 0 */
  int64_t total_k; /* rows of k and v; read only with cu_seqlens_k, and then required unless seqlen_k is 0 */

  float p_drop;   /* chance to drop an element of P, from 0 (none) to below 1; kept elements are scaled by
                     1 / (1 - p_drop). The kernels' 8-bit random numbers round the chance to 1/256; up to
                     2^-25 it is none */
  int32_t kernel; /* 0: the library's choice; n: the n-th candidate of fmha_fwd_kernel, for tests and tuning.
                     FMHA_UNSUPPORTED if there are fewer */
  /* The random numbers are a function of seed, offset and the element's place, so that a backward pass with
   * the same seed and offset gets the same ones. */
  uint64_t philox_seed;
  uint64_t philox_offset;
  const uint64_t* philox_seed_offset; /* device memory, {seed, offset}; if set, the kernel reads these instead
                                         of the two values above, so that a replayed graph takes new ones */
  fmha_randval randval;

  /* FP8 only: the factor on each element of q, k and v; finite, above 0. 0 means 1. Before P is rounded to 8 bits, it
   * is multiplied by the type's largest number, or by the power of two below it; O is divided by that. */
  float q_descale;
  float k_descale;
  float v_descale;

  uint32_t reserved; /* must be 0 */
  void* workspace;   /* device memory, aligned to 256 bytes, which the call may overwrite until its work on
                        the stream is done; overlaps nothing else of the call. Not looked at if
                        fmha_fwd_workspace_bytes says 0. fmha_fwd also does without one (NULL), more slowly */
  int64_t workspace_bytes; /* its size: at least what fmha_fwd_workspace_bytes says */
  uint64_t flags;          /* FMHA_NO_MEMORY_CHECK, or 0 */

  /* Attention sinks: device memory, float32 (nhead_q), a logit of each query head that takes part in the softmax and
   * has no value. lse counts it: it is log(exp(sink) + sum of exp(score)), and the sink in a row that sees no key.
   * NULL: none, as is one below -2.3e38; one above 2.3e38 makes rows NaN. FMHA_UNSUPPORTED on Instinct for FP32, and
   * together with bias or dropout: only our own kernels do it. fmha_bwd does not look at it: by such an lse, dq, dk,
   * dv and dbias are right. With D = sum(dout * o) of each row, the gradient of a head's sink is the sum of
   * -exp(sink - lse) * D over its rows. */
  const float* sinks;
} fmha_fwd_params;

/* Arguments of fmha_bwd: the gradients of O = softmax(softmax_scale * Q K^T, masked) V. */
typedef struct fmha_bwd_params {
  uint32_t struct_size; /* sizeof(fmha_bwd_params) */
  fmha_dtype grad_dtype; /* of dq, dk, dv and dbias; 0: dtype of fwd, or FMHA_FP32 */
  /* The forward call: the same struct, with o and lse as it wrote them, which are only read here. lse is
   * required. Both may also be merged from several passes over parts of the keys, as in ring attention: P is
   * exp(score - lse), whichever keys lse counts. seqlen_q and seqlen_k bound the lengths of packed sequences here
   * too. kernel, randval, workspace, workspace_bytes and flags are not looked at. */
  const fmha_fwd_params* fwd;
  fmha_tensor dout; /* (batch, seqlen_q, nhead_q, hdim_v) of o's dtype: the gradient of O */
  fmha_tensor dq;   /* (batch, seqlen_q, nhead_q, hdim_q), written */
  fmha_tensor dk;   /* (batch, seqlen_k, nhead_k, hdim_q), written */
  fmha_tensor dv;   /* (batch, seqlen_k, nhead_k, hdim_v), written. With cu_seqlens all are packed, like q
                       and k; rows beyond seqused are 0, and rows after the last sequence are 0 or left as they
                       are. dq, dk and dv obey the rules of fmha_fwd's o */
  int32_t accumulate;    /* 1: the gradients are added to what dq, dk, dv and dbias hold; 0: they replace it */
  int32_t deterministic; /* 1: the same bits from run to run. 0: the order of additions of dQ, and of a
                            dbias that is broadcast, need not be fixed. Kernels of FP32, those for Radeon,
                            and without bias and dropout those of gfx942 and gfx950 have the same bits
                            either way, but for extreme sizes, and on gfx942 for head dims 72 to 128: there
                            1 takes other kernels, less memory and more time. Elsewhere it takes a copy
                            of dQ's sum for each of several groups of keys, in the workspace, and time */
  int32_t kernel;        /* as in fmha_fwd_params, of fmha_bwd_kernel's candidates */
  uint32_t reserved;     /* must be 0 */
  void* workspace;       /* as in fmha_fwd_params; fmha_bwd_workspace_bytes says how much */
  int64_t workspace_bytes;
  uint64_t flags;        /* FMHA_NO_MEMORY_CHECK, or 0 */
  fmha_bias_grad dbias;  /* written if data is set; only with fwd->bias */
} fmha_bwd_params;

/* The base of an LSE's logarithm. */
typedef int32_t fmha_lse_base;
enum {
  FMHA_LSE_NATURAL = 0, /* as fmha_fwd writes it */
  FMHA_LSE_BASE2 = 1
};

/* Keys or values of a cache: (pages, page_size, nhead_k, hdim) with a contiguous last dimension. Strides are in
 * elements, of any order and size, so that (batch, seqlen, head), (batch, head, seqlen) and blocks that hold keys
 * and values side by side all fit. Address and strides are aligned to 16 bytes; fmha_kv_append takes an 8-bit type's
 * aligned to 8. k_vector of fmha_cache describes the layout of a vectorised cache. */
typedef struct fmha_cache_tensor {
  void* data;
  int64_t stride_page;  /* or of a batch element */
  int64_t stride_token; /* not looked at in a vectorised cache */
  int64_t stride_head;
} fmha_cache_tensor;

/* Scales of an 8-bit cache: factors on the elements of (page or sequence i, head h), float32 at
 * data[i * stride_page + h * stride_head], device memory; finite, above 0. Strides of 0 share one. data NULL: 1. */
typedef struct fmha_cache_scale {
  const float* data;
  int64_t stride_page; /* or of a sequence: see scale_per_page */
  int64_t stride_head;
} fmha_cache_scale;

/* A KV cache. With pages, token t of sequence b is token t % page_size of page number t / page_size of its list,
 * which block_table or kv_indptr and kv_indices have; one of the two is set. Only the pages of tokens that are read
 * or written are looked up: other entries may be -1. Without pages (neither is set) a sequence is one batch
 * element of the cache. */
typedef struct fmha_cache {
  uint32_t struct_size; /* sizeof(fmha_cache) */
  fmha_dtype dtype;     /* of the keys and values */
  fmha_cache_tensor k;  /* (pages, page_size, nhead_k, hdim_q) */
  fmha_cache_tensor v;  /* (pages, page_size, nhead_k, hdim_v); for fmha_decode it may lie in the memory
                           of k */
  int64_t pages;        /* how many there are: entries of a list are below it. Without pages: batch elements */
  int64_t page_size;    /* tokens: a power of two from 1. Without pages: tokens of a batch element, any number;
                           with slots, which need no list: any number, and a multiple of v_vector */
  const int32_t* block_table; /* device memory, int32 (batch, max_pages): the pages of each sequence, in order */
  int64_t stride_block_table; /* from one sequence to the next */
  int64_t max_pages;          /* entries of a sequence */
  const int32_t* kv_indptr;   /* device memory, int32 (batch + 1): sequence b has the pages kv_indices[kv_indptr[b]]
                                 up to kv_indices[kv_indptr[b + 1] - 1] */
  const int32_t* kv_indices;  /* device memory, int32 (indices) */
  int64_t indices;            /* entries of kv_indices */
  const int32_t* cache_batch_idx; /* device memory, int32 (batch), only without pages: the batch element of each
                                     sequence. NULL: its own number */
  fmha_cache_scale k_scale;       /* FP8 only */
  fmha_cache_scale v_scale;
  int32_t scale_per_page;         /* 1: scales are by page; 0: by sequence of the call */
  /* A vectorised cache, which servers lay out for loads of 16 bytes; only with pages. 0, 0: not vectorised. In each
   * page and head, keys are (hdim_q / k_vector, page_size, k_vector), and values (page_size / v_vector, hdim_v,
   * v_vector), without gaps. k_vector is 16 bytes of elements, and hdim_q a multiple of it; v_vector is a power of
   * two, at least 8 and at most page_size. fmha_decode takes pages of less than 2^31 elements a head. */
  int32_t k_vector;
  int32_t v_vector;
  uint32_t reserved;              /* must be 0 */
} fmha_cache;

/* Arguments of fmha_decode: forward attention whose keys and values lie in a cache. */
typedef struct fmha_decode_params {
  uint32_t struct_size; /* sizeof(fmha_decode_params) */
  int32_t kernel;       /* as in fmha_fwd_params, of fmha_decode_kernel's candidates */
  /* The attention, by the forward call's own struct: dtype, sizes, softmax_scale, mask, q, o, lse, softcap
   * and alibi_slopes mean what they mean there. seqlen_q and seqlen_k are the largest lengths. With
   * cu_seqlens_q the queries are packed, so that one call serves sequences that decode a token and sequences that
   * begin. seqused_k has the tokens of each sequence in the cache, those of the queries included. NULL: the
   * differences of cu_seqlens_k, which is allowed only with packed queries, or else seqlen_k. k, v, kernel,
   * randval, workspace, workspace_bytes and flags are not looked at, and sinks is NULL. */
  const fmha_fwd_params* fwd;
  const fmha_cache* cache;
  const int32_t* leftpad_k; /* device memory, int32 (batch): tokens at the beginning of each sequence that are
                               no keys. NULL: none */
  const float* sinks;       /* device memory, float32 (nhead_q): a logit of each query head that takes part in
                               the softmax and has no value, as in fmha_fwd_params. NULL: none */
  int32_t num_splits;       /* parts into which the keys of a sequence are divided, at most 128; 0: the
                               library's choice */
  int32_t seqlen_new;       /* tokens that an earlier fmha_kv_append on the stream adds to each sequence: the call
                               adds this to each length of seqused_k or cu_seqlens_k. fwd->seqlen_k bounds the
                               sums */
  fmha_lse_base lse_base;   /* of fwd->lse */
  uint32_t reserved;        /* must be 0 */
  void* workspace;          /* as in fmha_fwd_params; fmha_decode_workspace_bytes says how much */
  int64_t workspace_bytes;
  uint64_t flags;           /* FMHA_NO_MEMORY_CHECK, or 0 */
} fmha_decode_params;

/* Rotary position embedding: a token at position t has its pairs of elements turned, (x, y) becoming
 * (x cos - y sin, y cos + x sin). Tables (positions, dim / 2) in device memory, the last dimension contiguous. */
typedef struct fmha_rotary {
  const void* cos; /* NULL: nothing is rotated */
  const void* sin;
  int64_t positions;       /* rows of both: every position of the call is below it */
  int64_t stride_position; /* from one to the next, in elements */
  int64_t dim;             /* elements of a head that are rotated, the first ones: up to hdim_q, a multiple of 16,
                              of 8 if interleaved */
  fmha_dtype dtype;        /* of both tables; 0: the call's dtype; or FMHA_FP32 */
  int32_t interleaved;     /* 0: elements i and i + dim / 2 are a pair; 1: elements 2 i and 2 i + 1 */
} fmha_rotary;

/* Arguments of fmha_kv_append. Any of q, k and v may be left out (data NULL). New tokens are (batch, seqlen), or
 * packed, (total) by cu_seqlens. */
typedef struct fmha_kv_append_params {
  uint32_t struct_size; /* sizeof(fmha_kv_append_params) */
  fmha_dtype dtype;     /* of q, k and v: FMHA_FP16 or FMHA_BF16; required */
  int64_t batch;        /* at most 16777215; if batch or seqlen is 0 the call does nothing. Above 65535 a batch
                           element has at most 262140 rows: new tokens times heads of q, k and v */
  int64_t seqlen;       /* new tokens of a sequence, or the most of a packed one: tokens beyond it are left out */
  int64_t total;        /* rows of q, k and v; read only with cu_seqlens */
  int64_t nhead_q;      /* read only with q */
  int64_t nhead_k;      /* required, as are the head dims, which are multiples of 8 */
  int64_t hdim_q;
  int64_t hdim_v;
  fmha_tensor q;     /* (batch, seqlen, nhead_q, hdim_q): rotated; only with rotary */
  fmha_tensor q_out; /* where to write it; data NULL, or q itself: in place */
  fmha_tensor k;     /* (batch, seqlen, nhead_k, hdim_q): rotated, and written to the cache. Strides of tensors are
                        multiples of 8 elements, and may be 2^31 and more */
  fmha_tensor v;     /* (batch, seqlen, nhead_k, hdim_v): written to the cache */
  const int32_t* cu_seqlens; /* device memory, int32 (batch + 1), as cu_seqlens_q of fmha_fwd; NULL: not packed */
  const int32_t* seqused_k;  /* device memory, int32 (batch): tokens in the cache before the call, which the new ones
                                follow. Not written: the caller adds to it. NULL: 0 */
  const void* slots;     /* device memory (batch, seqlen) or (total), contiguous: token t is stored at place
                            slots[t] % page_size of page slots[t] / page_size; below 0: its key and value are not
                            stored. The cache's lists and seqused_k are then ignored. NULL: they say where */
  const void* positions; /* likewise: the position of each token, for rotary. NULL: its place in the sequence,
                            seqused_k and those before it in the call */
  int32_t slots_int64;     /* 1: slots are int64; 0: int32 */
  int32_t positions_int64; /* the same for positions */
  fmha_rotary rotary;
  const fmha_cache* cache; /* NULL only without k and v. Its dtype is that of the call, or FP8: an element is then
                              divided by its scale, rounded, and limited to +- the type's largest number. No two
                              tokens may have the same slot */
  int32_t kernel;          /* as in fmha_fwd_params, of fmha_kv_append_kernel's candidates */
  uint32_t reserved;       /* must be 0 */
  uint64_t flags;          /* FMHA_NO_MEMORY_CHECK, or 0 */
} fmha_kv_append_params;

/* Partial outputs: (parts, batch, seqlen, nhead, hdim) with a contiguous last dimension. Element (i, b, s, h, d) is
 * at data[i * stride_part + b * stride_batch + s * stride_seqlen + h * stride_head + d]. As fmha_tensor, but
 * only read, and of any strides that are multiples of 16 bytes, also above 2^31. */
typedef struct fmha_parts {
  const void* data;
  int64_t stride_part;
  int64_t stride_batch;
  int64_t stride_seqlen;
  int64_t stride_head;
} fmha_parts;

/* Their LSEs: float32 (parts, batch, nhead, seqlen) with a contiguous last dimension. Element (i, b, h, s) is at
 * data[i * stride_part + b * stride_batch + h * stride_head + s]. Aligned to 4 bytes. */
typedef struct fmha_lse_parts {
  const float* data;
  int64_t stride_part;
  int64_t stride_batch;
  int64_t stride_head;
} fmha_lse_parts;

/* Arguments of fmha_merge: outputs and LSEs of attention over disjoint sets of keys become one,
 * O = sum_i exp(LSE_i - LSE) * O_i, LSE = log(sum_i exp(LSE_i)). Packed sequences are one batch of all their
 * rows, LSEs (nhead, total); LSEs that lie (total, nhead) are a batch of `total` with seqlen 1. */
typedef struct fmha_merge_params {
  uint32_t struct_size; /* sizeof(fmha_merge_params) */
  fmha_dtype dtype;     /* of o_parts: FMHA_FP32, FMHA_FP16 or FMHA_BF16; required */
  fmha_dtype o_dtype;   /* of o; 0: as dtype. Any parts can give FMHA_FP32; FMHA_FP16 and FMHA_BF16 need parts of
                           the same type or of FMHA_FP32 */
  fmha_lse_base lse_base;   /* of lse_parts and of lse */
  int64_t parts;            /* 1 or more */
  int64_t batch;            /* if any of batch, seqlen and nhead is 0, the call does nothing */
  int64_t seqlen;
  int64_t nhead;            /* their product, the number of rows, is below 2^26 */
  int64_t hdim;             /* a multiple of 8; required */
  fmha_parts o_parts;       /* a row whose lse is -inf, or so far below the largest that it weighs nothing, is
                               not read */
  fmha_lse_parts lse_parts; /* -inf: the part is empty. +inf: it outweighs all others; several such are averaged.
                               NaN makes the row NaN */
  fmha_tensor o;            /* (batch, seqlen, nhead, hdim), written; like o of fmha_fwd, but strides may be
                               2^31 and more. A row whose parts are all empty is 0 */
  fmha_lse lse;             /* (batch, nhead, seqlen), written if data is set. A row whose parts are all empty
                               has -inf, never NaN */
  int32_t accumulate;       /* 1: o and lse hold one more part, and the result replaces it; lse is then required.
                               0: they are only written */
  int32_t kernel;           /* as in fmha_fwd_params, of fmha_merge_kernel's candidates */
  uint64_t flags;           /* FMHA_NO_MEMORY_CHECK, or 0 */
} fmha_merge_params;

/* The elements that share a scale. */
typedef int32_t fmha_scale_unit;
enum {
  FMHA_SCALE_TENSOR = 1, /* all of the tensor */
  FMHA_SCALE_HEAD = 2,   /* those of a head of a batch element, or of several heads: see heads_per_scale */
  FMHA_SCALE_BLOCK = 3   /* of these, those of block_tokens tokens */
};

/* Scales of 8-bit floats: float32 (batch, nhead / heads_per_scale, blocks), element (b, h, i) at
 * data[b * stride_batch + h * stride_head + i * stride_block]; one block without FMHA_SCALE_BLOCK, and one element
 * with FMHA_SCALE_TENSOR. Aligned to 4 bytes. An element of x is about descale * out. */
typedef struct fmha_descale {
  float* data;
  int64_t stride_batch;
  int64_t stride_head;
  int64_t stride_block;
} fmha_descale;

/* Arguments of fmha_quantize: 8-bit floats of 16 bits, and scales. Packed sequences are one batch of all rows. */
typedef struct fmha_quantize_params {
  uint32_t struct_size;       /* sizeof(fmha_quantize_params) */
  fmha_dtype dtype;           /* of x: FMHA_FP16 or FMHA_BF16; required */
  fmha_dtype out_dtype;       /* the device's FP8; or dtype: x is rotated and rounded, and has no scales. Required */
  fmha_scale_unit scale_unit; /* required with FP8, else 0 */
  int64_t batch;              /* if any of batch, seqlen and nhead is 0, the call does nothing */
  int64_t seqlen;
  int64_t nhead;              /* at most 65535 */
  int64_t hdim;               /* a multiple of 8 up to 512; required */
  int64_t heads_per_scale;    /* neighbouring heads that share a scale, a divisor of nhead; 0: 1, or all of a tensor */
  int64_t block_tokens;       /* FMHA_SCALE_BLOCK: tokens that share a scale; the last block may have fewer. Else 0 */
  fmha_tensor x;              /* (batch, seqlen, nhead, hdim): address and strides are multiples of 8 elements */
  fmha_tensor out;            /* the same shape, written; like o of fmha_fwd, but aligned like x */
  fmha_descale descale;       /* written: the largest finite |x|, after the rotation, over the type's largest number;
                                 at least 1.2e-38, and 1 if all are below that: they count as 0 */
  int32_t given;              /* 1: descale is read, and elements are limited to +- the type's largest number; its
                                 scales are finite and above 0 */
  int32_t hadamard;           /* 1: each row is multiplied by the Hadamard matrix of hdim (a power of two, 8 to 256),
                                 over sqrt(hdim), first. Do so with q and k alike: their scores stay the same */
  void* workspace;            /* as in fmha_fwd_params; fmha_quantize_workspace_bytes says how much */
  int64_t workspace_bytes;
  int32_t kernel;             /* as in fmha_fwd_params, of fmha_quantize_kernel's candidates */
  uint32_t reserved;          /* must be 0 */
  uint64_t flags;             /* FMHA_NO_MEMORY_CHECK, or 0 */
} fmha_quantize_params;

/* A kernel of this library and the resources it uses. Strings live as long as the library. */
typedef struct fmha_kernel_info {
  uint32_t struct_size;    /* sizeof(fmha_kernel_info), set by the caller */
  int32_t vgpr_count;      /* vector registers a lane, accumulation registers included */
  int32_t sgpr_count;      /* scalar registers a wave */
  int32_t scratch_bytes;   /* a lane */
  int64_t lds_bytes;       /* a workgroup */
  int32_t block_size;      /* threads a workgroup */
  int32_t tile_m;          /* query rows a workgroup (backward: a main-loop step) */
  int32_t tile_n;          /* keys a main-loop step (backward: a tile of a workgroup) */
  uint32_t grid[3];        /* workgroups of this problem in x, y, z; zeros if there is nothing to do */
  const char* name;        /* symbol of the kernel in its code object */
  const char* arch;        /* "gfx942", ... */
  const char* sha256;      /* of the code object, 64 hex digits */
  int32_t candidate;       /* which candidate this kernel is: 1 is the library's choice */
  int32_t candidate_count; /* kernels that can do this problem, best first */
  const char* pipeline;    /* its main loop: CK's "qr_async", "qr", ...; AITER's "asm_v3"; our own "pingpong" */
  int32_t step_count;      /* launches and memsets that the call enqueues; 0 if there is nothing to do */
  uint32_t reserved;       /* must be 0 */
  const char* why;         /* why it is this kernel and not the next candidate, in a few words */
} fmha_kernel_info;

/* Memory that a call reads or writes. */
typedef struct fmha_extent {
  const char* name; /* of the pointer in the params: "q.data", "cu_seqlens_q"; lives as long as the library */
  const void* data; /* that pointer; NULL if the params leave it out */
  int64_t bytes;    /* from there to past the last byte that may be touched, gaps between rows included; at
                       most 2^57, which no process can address */
  int32_t written;  /* 1: written; 0: only read */
  uint32_t reserved; /* 0 */
} fmha_extent;

/* Where a HIP runtime comes from. */
typedef int32_t fmha_hip_source;
enum {
  FMHA_HIP_NONE = 0,        /* there is no such entry */
  FMHA_HIP_ENVIRONMENT = 1, /* $FMHA_HIP_RUNTIME */
  FMHA_HIP_MAPPED = 2,      /* a file that this process has mapped */
  FMHA_HIP_LOADER = 3,      /* a bare name, for the loader's search */
  FMHA_HIP_INSTALLED = 4    /* a file in a folder of an installed ROCm: see fmha_set_hip_runtime */
};

/* Version of the library loaded, "major.minor.patch". Never NULL. */
const char* fmha_version(void);

/* Returns what this library was built with, as a JSON object. Never NULL. It has "version", "archs", "kernel_set",
 * "kernel_filter" ("" unless only part of the set was built), "compiler", "ck_version", and
 *
 *  - "known_archs", an object: for each arch, whether built for or not, wave_size, cus_per_multiprocessor (the compute
 *    units that HIP counts as one), dtypes, matrix, and matrix_flushes (the types whose subnormal numbers its matrix
 *    unit takes for 0);
 *  - "kernels", an array: name, arch, family, origin, set, dtype, sha256, and code_object, the index of its ELF in
 *    "code_objects". The families have more: fwd o_dtype, hdim_q, hdim_v, hdim_step, group, mask, pad, bias, softcap,
 *    dropout, pipeline, tile_m and tile_n; bwd, which does any mask, lengths and packed sequences, hdim_q, hdim_v,
 *    hdim_step, alibi, bias, softcap, dropout, optional (whether these may be absent), pipeline, tile_m and tile_n;
 *    bwd_parts, the small kernels around those, kind; decode hdim_q, hdim_v, hdim_step, tile_m, tile_n and latent (true:
 *    only values that are their keys' first dims); merge o_dtype; kv_append o_dtype, which is the cache's; quantize
 *    o_dtype. hdim_q and hdim_v are those of a kernel's tile: it also serves smaller multiples of hdim_step, unless 0;
 *  - "code_objects", an array: name, arch, sha256, bytes, packed_bytes. */
const char* fmha_build_info(void);

/* Message of the last failure on the calling thread; "" if there was none. Never NULL. Valid until the
 * thread's next failure. */
const char* fmha_last_error(void);

/* Loads the HIP runtime at this path (or of this name, by the loader's search) and uses it from now on. FMHA_HIP_ERROR
 * if it cannot be loaded or lacks a function: then none is in use, and another may be tried. Once one is in use, by
 * this or by any call that needed one, a different one is FMHA_INVALID_ARGUMENT and the same one FMHA_OK. Without this
 * call the library takes, in this order: $FMHA_HIP_RUNTIME; the copy already mapped into the process (of two the one
 * that PyTorch uses; without PyTorch FMHA_HIP_ERROR, naming both); libamdhip64.so.7, .so.6 and .so by the loader's
 * search; the same in $ROCM_PATH/lib; in /opt/rocm/lib. It stays loaded until the process ends. A setuid program does
 * not read these variables. On Windows the names are amdhip64_7.dll, amdhip64_6.dll and amdhip64.dll, the loader looks
 * in the program's folder, the system's and those of AddDllDirectory, and the folders are %HIP_PATH%\bin and
 * %ROCM_PATH%\bin. A path is UTF-8 there, here and in messages. */
fmha_status fmha_set_hip_runtime(const char* path);

/* Path of the HIP runtime in use, loading one now if none is; no device is needed. NULL on failure, see
 * fmha_last_error(). Lives as long as the library. */
const char* fmha_hip_runtime_path(void);

/* Tells entry `index`, from 0, of the list that this search goes through in order, whether or not a runtime is in
 * use; loads nothing. Writes to *source where the entry comes from, and to `path`, an array of path_bytes, its path
 * or name, ended by a zero byte. FMHA_INVALID_ARGUMENT if it does not fit, or if index is negative. Past the last
 * entry *source is FMHA_HIP_NONE and the path is "". The search takes $FMHA_HIP_RUNTIME if it is set, or else a
 * mapped file if there is one, or else the first of the others that can be loaded. */
fmha_status fmha_hip_runtime_search(int32_t index, fmha_hip_source* source, char* path, int64_t path_bytes);

/* Tells whether fmha_fwd would run these arguments on the current device: FMHA_OK, or the status and message that
 * fmha_fwd would give. Here the data of q, k, v and o may be NULL, and is then not looked at. A pointer that asks for
 * something (lse, bias, randval, alibi_slopes, sinks, cu_seqlens_*, seqused_*, philox_seed_offset) asks for it here
 * too. The workspace is not looked at. */
fmha_status fmha_fwd_supported(const fmha_fwd_params* params);

/* Like fmha_fwd_supported, but on success also fills *info with the kernel that would run. */
fmha_status fmha_fwd_kernel(const fmha_fwd_params* params, fmha_kernel_info* info);

/* Like fmha_fwd_supported, but on success also writes to *bytes how much workspace makes the call faster:
 * 0 unless workgroups share the keys of long sequences of few heads. The number depends on the device and on
 * the params, except on the pointers that supported does not look at. */
fmha_status fmha_fwd_workspace_bytes(const fmha_fwd_params* params, int64_t* bytes);

/* The memory that fmha_fwd would touch, its workspace aside. Writes the first `capacity` extents to `extents`, which
 * may be NULL if capacity is 0, and to *count how many there are, at most 16. Tensors without elements, and all if
 * there is nothing to do, are left out; q, k, v and o are listed even if their data is NULL. Asks no device: of the
 * arguments it checks what makes sense on any, so that fmha_fwd may still refuse them. */
fmha_status fmha_fwd_extents(const fmha_fwd_params* params, fmha_extent* extents, int32_t capacity,
                             int32_t* count);

/* Like fmha_fwd_supported, but also loads that kernel onto the current device, so that the next fmha_fwd
 * of the kind only has to launch. Not legal under graph capture. */
fmha_status fmha_fwd_prepare(const fmha_fwd_params* params);

/* The older name of fmha_fwd_prepare. */
fmha_status fmha_prepare(const fmha_fwd_params* params);

/* Enqueues the forward pass on `stream` (a hipStream_t). A row that sees no key gives O = 0 and
 * LSE = -inf, or its head's sink. The kernels are those of native/kernels/ck/fwd_kernel.h. */
fmha_status fmha_fwd(const fmha_fwd_params* params, void* stream);

/* Tells whether fmha_bwd would run these arguments on the current device: as fmha_fwd_supported. Here the data of q,
 * k, v, o, lse, dout, dq, dk and dv may be NULL. */
fmha_status fmha_bwd_supported(const fmha_bwd_params* params);

/* Like fmha_bwd_supported, but on success also fills *info with the kernel of dQ, dK and dV that would run. */
fmha_status fmha_bwd_kernel(const fmha_bwd_params* params, fmha_kernel_info* info);

/* Like fmha_bwd_supported, but on success also writes to *bytes how much workspace the call needs: as
 * fmha_fwd_workspace_bytes. It grows with the number of rows, and with seqlen_k up to eightfold if
 * deterministic; 0 if there is nothing to add up. Only `dbias` of FP16 and BF16 may take seqlen_q * seqlen_k
 * float32 numbers: a copy of it if it is broadcast or accumulated (with a grad_dtype of FMHA_FP32 only if both),
 * and a copy for each batch and query head if it is broadcast and deterministic. */
fmha_status fmha_bwd_workspace_bytes(const fmha_bwd_params* params, int64_t* bytes);

/* The memory that fmha_bwd would touch, its workspace aside: as fmha_fwd_extents, but at most 17. Names of what
 * is in `fwd` begin so: "fwd->q.data". */
fmha_status fmha_bwd_extents(const fmha_bwd_params* params, fmha_extent* extents, int32_t capacity,
                             int32_t* count);

/* Like fmha_bwd_supported, but also loads the kernels of the call onto the current device: as fmha_fwd_prepare. */
fmha_status fmha_bwd_prepare(const fmha_bwd_params* params);

/* Enqueues the backward pass on `stream`: several launches and memsets. FP16, BF16 and FP32; hdim_q and hdim_v
 * up to 256, or of 16 bits on gfx942 and gfx950 to 512 without bias and dropout; any mask, packed sequences,
 * ALiBi, softcap, elementwise bias and its gradient, and dropout with forward's seed and offset. FMHA_UNSUPPORTED
 * in this version: FP8. A row that sees no key, and a key that no row sees, have gradient 0. */
fmha_status fmha_bwd(const fmha_bwd_params* params, void* stream);

/* Tells whether fmha_decode would run these arguments on the current device: as fmha_fwd_supported. Here the data
 * of q, o, lse, and of the cache's k and v may be NULL. */
fmha_status fmha_decode_supported(const fmha_decode_params* params);

/* Like fmha_decode_supported, but on success also fills *info with the kernel that would run. */
fmha_status fmha_decode_kernel(const fmha_decode_params* params, fmha_kernel_info* info);

/* Like fmha_decode_supported, but on success also writes to *bytes how much workspace the call needs: as
 * fmha_fwd_workspace_bytes. It is splits * rows of q * nhead_q * (hdim_v + 1) float32 numbers, and 0 for one split. */
fmha_status fmha_decode_workspace_bytes(const fmha_decode_params* params, int64_t* bytes);

/* The memory that fmha_decode would touch, its workspace aside: as fmha_fwd_extents. Names of what is in
 * `fwd` and `cache` begin so: "fwd->q.data", "cache->k.data". */
fmha_status fmha_decode_extents(const fmha_decode_params* params, fmha_extent* extents, int32_t capacity,
                                int32_t* count);

/* Like fmha_decode_supported, but also loads the kernels of the call onto the current device: as fmha_fwd_prepare. */
fmha_status fmha_decode_prepare(const fmha_decode_params* params);

/* Enqueues attention over a KV cache on `stream`. FP16 and BF16; hdim_q and hdim_v up to 256, or 512, or 576
 * and 512; causal masks and windows aligned bottom-right, softcap, ALiBi. Lengths and pages are read on the
 * device, so that a captured graph goes on as sequences grow, up to the bounds of the call. A row that sees
 * no key has o = 0 and lse = -inf. FMHA_UNSUPPORTED: dropout, elementwise bias, top-left masks. The kernels
 * are those of native/kernels/hip/decode/decode.h. */
fmha_status fmha_decode(const fmha_decode_params* params, void* stream);

/* Tells whether fmha_kv_append would run these arguments on the current device: as fmha_fwd_supported. Here the data of
 * the cache's k and v may be NULL; those of q, k and v say which of them the call has. */
fmha_status fmha_kv_append_supported(const fmha_kv_append_params* params);

/* Like fmha_kv_append_supported, but on success also fills *info with the kernel that would run. Its tile_m is the
 * rows, each a head of a token, of a workgroup; it has no tile_n, and no pipeline (""). */
fmha_status fmha_kv_append_kernel(const fmha_kv_append_params* params, fmha_kernel_info* info);

/* The memory that fmha_kv_append may touch: as fmha_fwd_extents. That includes the whole cache. */
fmha_status fmha_kv_append_extents(const fmha_kv_append_params* params, fmha_extent* extents, int32_t capacity,
                                   int32_t* count);

/* Like fmha_kv_append_supported, but also loads the kernel onto the current device: as fmha_fwd_prepare. */
fmha_status fmha_kv_append_prepare(const fmha_kv_append_params* params);

/* Enqueues, on `stream`, the rotation of new queries and keys and the storing of keys and values in the cache: one
 * launch, without a workspace. Lengths, slots and pages are read on the device, so that a captured graph goes on
 * as sequences grow; the host cannot check that they lie in the cache. A token for which there is no room is not
 * stored: see "Arrays of the device" above. The kernels are those of native/kernels/hip/decode/kv_append.h. */
fmha_status fmha_kv_append(const fmha_kv_append_params* params, void* stream);

/* Tells whether fmha_merge would run these arguments on the current device: as fmha_fwd_supported. Here the data of
 * o_parts, lse_parts and o may be NULL, and that of lse if it is only read to accumulate. */
fmha_status fmha_merge_supported(const fmha_merge_params* params);

/* Like fmha_merge_supported, but on success also fills *info with the kernel that would run. Its tile_m is the
 * rows of a workgroup; it has no tile_n, and no pipeline (""). */
fmha_status fmha_merge_kernel(const fmha_merge_params* params, fmha_kernel_info* info);

/* The memory that fmha_merge would touch: as fmha_fwd_extents. The parts are one extent, from the first element of
 * the first part to past the last element of the last. */
fmha_status fmha_merge_extents(const fmha_merge_params* params, fmha_extent* extents, int32_t capacity,
                               int32_t* count);

/* Like fmha_merge_supported, but also loads the kernel onto the current device: as fmha_fwd_prepare. */
fmha_status fmha_merge_prepare(const fmha_merge_params* params);

/* Enqueues the merge on `stream`: one launch, without a workspace. Sums are float32. The kernels are those of
 * native/kernels/hip/decode/merge.h. */
fmha_status fmha_merge(const fmha_merge_params* params, void* stream);

/* As fmha_fwd_supported, of fmha_quantize. Here the data of x, out and descale may be NULL. */
fmha_status fmha_quantize_supported(const fmha_quantize_params* params);

/* As fmha_merge_kernel. Its tile_m is the rows that a workgroup does at a time. */
fmha_status fmha_quantize_kernel(const fmha_quantize_params* params, fmha_kernel_info* info);

/* As fmha_decode_workspace_bytes: 0 if scales are given, by block, or of few tokens; else 64 bytes a scale, and 64. */
fmha_status fmha_quantize_workspace_bytes(const fmha_quantize_params* params, int64_t* bytes);

/* The memory that fmha_quantize would touch, but for its workspace: as fmha_fwd_extents. */
fmha_status fmha_quantize_extents(const fmha_quantize_params* params, fmha_extent* extents, int32_t capacity,
                                  int32_t* count);

/* As fmha_fwd_prepare. */
fmha_status fmha_quantize_prepare(const fmha_quantize_params* params);

/* Enqueues the quantisation on `stream`: one launch, behind a memset of its workspace if it has one. Elements are
 * computed in float32, rounded to nearest, ties to even. NaN stays NaN, infinities become +- the type's largest
 * number, and neither counts for a scale; in a rotated row they spread. The same input gives the same bits. The
 * kernels are those of native/kernels/hip/quantize/quantize.h. */
fmha_status fmha_quantize(const fmha_quantize_params* params, void* stream);

/* cffi-end */

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* FMHA_ROCM_H */

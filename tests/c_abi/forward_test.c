/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Forward attention from C99, against double arithmetic. Links only this library, libdl and libm. */
#include <inttypes.h>
#include <stdlib.h>

#include "fmha_rocm.h"
#include "hip_calls.h"
#include "params.h"
#include "reference.h"

static hip_calls hip;
static int g_failures;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      ++g_failures;                                                             \
    }                                                                           \
  } while (0)
#define CHECK_OK(call)                                                                  \
  do {                                                                                  \
    if ((call) != FMHA_OK) {                                                            \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, fmha_last_error()); \
      ++g_failures;                                                                     \
    }                                                                                   \
  } while (0)

typedef struct problem_case {
  const char* name;
  fmha_dtype dtype;
  int layout;
  int64_t batch, seqlen_q, seqlen_k, nhead_q, nhead_k, hdim;
  fmha_mask mask;
  int64_t window_left, window_right;
  int wants_lse;
  int64_t gap; /* elements left free after each row (seqlen), which must keep what they held */
} problem_case;

static const problem_case kCases[] = {
    {"one tile", FMHA_BF16, TEST_BSHD, 1, 128, 128, 1, 1, 128, FMHA_MASK_NONE, 0, 0, 1, 0},
    {"whole tiles, BHSD, no lse", FMHA_FP16, TEST_BHSD, 2, 128, 256, 2, 2, 64, FMHA_MASK_NONE, 0, 0, 0, 0},
    {"ragged, GQA", FMHA_FP16, TEST_BSHD, 2, 131, 173, 6, 2, 64, FMHA_MASK_NONE, 0, 0, 1, 0},
    {"one query, MQA", FMHA_BF16, TEST_BSHD, 3, 1, 97, 4, 1, 128, FMHA_MASK_CAUSAL, 0, 0, 1, 0},
    {"causal, fewer queries", FMHA_BF16, TEST_BHSD, 1, 67, 201, 2, 1, 64, FMHA_MASK_CAUSAL, 0, 0, 1, 0},
    {"causal, more queries: empty rows", FMHA_FP16, TEST_BSHD, 1, 201, 67, 2, 1, 128, FMHA_MASK_CAUSAL, 0, 0,
     1, 0},
    {"causal top-left", FMHA_FP16, TEST_BSHD, 1, 130, 190, 2, 2, 64, FMHA_MASK_CAUSAL_TOP_LEFT, 0, 0, 1, 0},
    {"window", FMHA_BF16, TEST_BSHD, 1, 150, 190, 2, 2, 128, FMHA_MASK_WINDOW, 17, 5, 1, 0},
    {"window, only the left side", FMHA_FP16, TEST_BHSD, 1, 190, 150, 2, 2, 128, FMHA_MASK_WINDOW, 20,
     INT64_MAX, 1, 0},
    {"no keys", FMHA_FP16, TEST_BSHD, 2, 70, 0, 2, 2, 64, FMHA_MASK_NONE, 0, 0, 1, 0},
    {"gaps, window over many tiles", FMHA_FP16, TEST_BSHD, 2, 300, 410, 2, 1, 64, FMHA_MASK_WINDOW, 130, 70,
     1, 24},
    {"gaps, no mask, no lse", FMHA_BF16, TEST_BSHD, 2, 140, 260, 2, 2, 128, FMHA_MASK_NONE, 0, 0, 0, 8},
};

static void* to_device(const void* from, size_t bytes) {
  void* pointer = NULL;
  CHECK(hip.malloc_(&pointer, bytes + 16) == 0);
  if (bytes != 0) CHECK(hip.copy(pointer, from, bytes, HIP_TO_DEVICE) == 0);
  return pointer;
}

static uint16_t* filled(fmha_dtype dtype, uint32_t seed, size_t count) {
  uint16_t* data = malloc((count + 1) * sizeof *data);
  if (data == NULL) abort();
  reference_fill(dtype, seed, data, count);
  return data;
}

static void widen(fmha_tensor* t, int64_t seqlen, int64_t gap) {
  t->stride_seqlen += gap;
  t->stride_batch = seqlen * t->stride_seqlen;
}

/* Sizes and strides of a case. Gaps are for BSHD, where a row holds every head. */
static fmha_fwd_params params_of(const problem_case* c) {
  fmha_fwd_params p =
      test_params(c->dtype, c->layout, c->batch, c->seqlen_q, c->seqlen_k, c->nhead_q, c->nhead_k, c->hdim);
  p.mask = c->mask;
  p.window_left = c->window_left;
  p.window_right = c->window_right;
  if (c->gap != 0) {
    widen(&p.q, c->seqlen_q, c->gap);
    widen(&p.k, c->seqlen_k, c->gap);
    widen(&p.v, c->seqlen_k, c->gap);
    widen(&p.o, c->seqlen_q, c->gap);
  }
  return p;
}

/* Elements of o's gaps that are not what they were. */
static long spoilt_gaps(const problem_case* c, const fmha_fwd_params* p, const uint16_t* o,
                        const uint16_t* before) {
  const int64_t rows = c->gap != 0 ? c->batch * c->seqlen_q : 0;
  long spoilt = 0;
  int64_t row, i;
  for (row = 0; row < rows; ++row) {
    for (i = c->nhead_q * c->hdim; i < p->o.stride_seqlen; ++i) {
      spoilt += o[row * p->o.stride_seqlen + i] != before[row * p->o.stride_seqlen + i];
    }
  }
  return spoilt;
}

static void run_case(const problem_case* c, uint32_t seed) {
  fmha_fwd_params p = params_of(c);
  const size_t count_q = (size_t)(c->batch * p.q.stride_batch),
               count_k = (size_t)(c->batch * p.k.stride_batch);
  const size_t count_lse = (size_t)(c->batch * c->seqlen_q * c->nhead_q);
  uint16_t *q = filled(c->dtype, seed, count_q), *k = filled(c->dtype, seed + 100, count_k);
  uint16_t *v = filled(c->dtype, seed + 200, count_k), *o = filled(c->dtype, seed + 300, count_q);
  uint16_t* before = filled(c->dtype, seed + 300, count_q);
  float* lse = calloc(count_lse, sizeof *lse);
  fmha_kernel_info info;
  reference_errors errors;
  p.q.data = to_device(q, count_q * 2);
  p.k.data = to_device(k, count_k * 2);
  p.v.data = to_device(v, count_k * 2);
  p.o.data = to_device(o, count_q * 2);
  if (c->wants_lse) p.lse.data = to_device(lse, count_lse * 4);
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  CHECK_OK(fmha_fwd_kernel(&p, &info));
  CHECK_OK(fmha_fwd(&p, NULL));
  CHECK(hip.synchronize() == 0);
  CHECK(hip.copy(o, p.o.data, count_q * 2, HIP_TO_HOST) == 0);
  if (c->wants_lse) CHECK(hip.copy(lse, p.lse.data, count_lse * 4, HIP_TO_HOST) == 0);
  errors = reference_compare(&p, q, k, v, o, c->wants_lse ? lse : NULL);
  fprintf(stderr, "%-34s %-24s o %.3f of its tolerance, lse %.1e, %ld of %ld rows empty\n", c->name,
          info.name, errors.worst_o, errors.worst_lse, errors.empty_rows, errors.rows);
  CHECK(errors.worst_o <= 1.0);
  CHECK(errors.worst_lse <= 1e-5);
  CHECK(spoilt_gaps(c, &p, o, before) == 0);
  CHECK(hip.free_(p.q.data) == 0 && hip.free_(p.k.data) == 0 && hip.free_(p.v.data) == 0 &&
        hip.free_(p.o.data) == 0);
  if (c->wants_lse) CHECK(hip.free_(p.lse.data) == 0);
  free(q), free(k), free(v), free(o), free(before), free(lse);
}

/* The reference's own conversions: every finite number comes back, and halves go to even. */
static void test_conversions(void) {
  const fmha_dtype dtypes[] = {FMHA_FP16, FMHA_BF16};
  int d, bits;
  for (d = 0; d < 2; ++d) {
    int wrong = 0;
    for (bits = 0; bits < 0x10000; ++bits) {
      const double value = reference_to_double(dtypes[d], (uint16_t)bits);
      if (isfinite(value) && bits != 0x8000) wrong += reference_from_double(dtypes[d], value) != bits;
    }
    CHECK(wrong == 0);
  }
  CHECK(reference_to_double(FMHA_FP16, 0x3c01) == 1.0 + 1.0 / 1024 &&
        reference_to_double(FMHA_BF16, 0x3f81) == 1.0 + 1.0 / 128);
  CHECK(reference_from_double(FMHA_FP16, 1.0 + 1.0 / 2048) == 0x3c00 &&
        reference_from_double(FMHA_FP16, 1.0 + 3.0 / 2048) == 0x3c02);
  CHECK(reference_from_double(FMHA_BF16, -1.0 - 1.0 / 256) == 0xbf80 &&
        reference_from_double(FMHA_BF16, -1.0 - 3.0 / 256) == 0xbf82);
}

int main(void) {
  char version[32];
  size_t i;
  test_conversions();
  if (!hip_open(&hip)) return 1;
  snprintf(version, sizeof version, "%d.%d.%d", FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR, FMHA_VERSION_PATCH);
  CHECK(strcmp(fmha_version(), version) == 0);
  CHECK(fmha_build_info()[0] == '{');
  for (i = 0; i < sizeof kCases / sizeof kCases[0]; ++i) run_case(&kCases[i], (uint32_t)i + 1);
  return g_failures != 0;
}

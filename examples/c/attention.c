/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Attention from C99: allocates with HIP, calls fmha_fwd, checks every number, and does the same again in a
 * graph that is captured once and replayed on new data. */
#include <fmha_rocm.h>
#include <hip/hip_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 2, kQueries = 100, kKeys = 150, kHeads = 4, kKeyHeads = 2, kDim = 64 };
enum { kCountQ = kBatch * kQueries * kHeads * kDim, kCountK = kBatch * kKeys * kKeyHeads * kDim };

#define HIP(call)                                                                             \
  do {                                                                                        \
    const hipError_t error_ = (call);                                                         \
    if (error_ != hipSuccess) {                                                               \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, hipGetErrorName(error_)); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

#define FMHA(call)                                                                      \
  do {                                                                                  \
    if ((call) != FMHA_OK) { /* nothing ran, and the message says why */                \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, fmha_last_error()); \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

/* bfloat16 is the upper half of a float. */
static float widen(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint16_t narrow(float f) { /* to nearest even; no NaN comes here */
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* About normal: the sum of four uniform numbers, of variance one. */
static void randomise(uint16_t* x, size_t count, uint32_t seed) {
  size_t i;
  int j;
  for (i = 0; i < count; ++i) {
    float sum = 0;
    for (j = 0; j < 4; ++j) {
      seed = seed * 1664525u + 1013904223u;
      sum += (float)(seed >> 8) / 16777216.0f - 0.5f;
    }
    x[i] = narrow(sum * 1.7320508f);
  }
}

/* One row of one head against double arithmetic. Returns the largest error of o in units of what it may be:
 * half an ulp of o (2^-8 of it), half an ulp of each p, which the kernel rounds to bfloat16 as well, and
 * 2^-16 of float arithmetic. `last` is the last key that the row sees. */
static double check_row(const uint16_t* q, const uint16_t* k, const uint16_t* v, const uint16_t* o, float lse,
                        int last, float scale) {
  const int stride = kKeyHeads * kDim;
  double p[kKeys], largest = -INFINITY, sum = 0, worst = 0;
  int j, d;
  for (j = 0; j <= last; ++j) {
    p[j] = 0;
    for (d = 0; d < kDim; ++d) p[j] += (double)widen(q[d]) * widen(k[j * stride + d]);
    p[j] *= scale;
    if (p[j] > largest) largest = p[j];
  }
  for (j = 0; j <= last; ++j) sum += p[j] = exp(p[j] - largest);
  for (d = 0; d < kDim; ++d) {
    double exact = 0, magnitude = 0, error, allowed;
    for (j = 0; j <= last; ++j) {
      exact += p[j] / sum * widen(v[j * stride + d]);
      magnitude += p[j] / sum * fabs(widen(v[j * stride + d]));
    }
    error = fabs(widen(o[d]) - exact);
    allowed = ldexp(fabs(exact), -8) + ldexp(magnitude, -8) + ldexp(magnitude, -16);
    if (!(error <= worst * allowed)) worst = error / allowed; /* NaN comes here too */
  }
  if (!(fabs(lse - (log(sum) + largest)) <= 1e-5 * fmax(1, fabs(largest)))) return INFINITY;
  return worst;
}

static int check(const char* what, const fmha_fwd_params* params, const uint16_t* q, const uint16_t* k,
                 const uint16_t* v) {
  static uint16_t o[kCountQ];
  static float lse[kBatch * kHeads * kQueries];
  double worst = 0;
  int b, h, i;
  HIP(hipMemcpy(o, params->o.data, sizeof o, hipMemcpyDeviceToHost));
  HIP(hipMemcpy(lse, params->lse.data, sizeof lse, hipMemcpyDeviceToHost));
  for (b = 0; b < kBatch; ++b) {
    for (h = 0; h < kHeads; ++h) {
      for (i = 0; i < kQueries; ++i) {
        const int row = ((b * kQueries + i) * kHeads + h) * kDim;
        const int keys = (b * kKeys * kKeyHeads + h / (kHeads / kKeyHeads)) * kDim;
        const double error =
            check_row(q + row, k + keys, v + keys, o + row, lse[(b * kHeads + h) * kQueries + i],
                      i + kKeys - kQueries, params->softmax_scale);
        if (!(error <= worst)) worst = error;
      }
    }
  }
  printf("%s: largest error %.2f of what roundings allow\n", what, worst);
  return worst <= 1;
}

/* (batch, seqlen, nhead, hdim), contiguous; strides are in elements. */
static fmha_tensor tensor(void* data, int64_t seqlen, int64_t nhead) {
  fmha_tensor t = {data, seqlen * nhead * kDim, nhead * kDim, kDim};
  return t;
}

static void* allocate(size_t bytes) {
  void* pointer = NULL;
  HIP(hipMalloc(&pointer, bytes));
  return pointer;
}

static uint16_t q[kCountQ], k[kCountK], v[kCountK];

static void new_data(const fmha_fwd_params* params, uint32_t seed) {
  randomise(q, kCountQ, seed);
  randomise(k, kCountK, seed + 1);
  randomise(v, kCountK, seed + 2);
  HIP(hipMemcpy(params->q.data, q, sizeof q, hipMemcpyHostToDevice));
  HIP(hipMemcpy(params->k.data, k, sizeof k, hipMemcpyHostToDevice));
  HIP(hipMemcpy(params->v.data, v, sizeof v, hipMemcpyHostToDevice));
}

/* A graph is captured once and costs one launch a replay, whatever is in it. */
static hipGraphExec_t capture(const fmha_fwd_params* params, hipStream_t stream) {
  hipGraph_t graph;
  hipGraphExec_t exec;
  FMHA(fmha_fwd_prepare(params)); /* loads the kernel, which is not legal under capture */
  HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  FMHA(fmha_fwd(params, stream));
  HIP(hipStreamEndCapture(stream, &graph));
  HIP(hipGraphInstantiate(&exec, graph, NULL, NULL, 0));
  HIP(hipGraphDestroy(graph));
  return exec;
}

int main(void) {
  fmha_fwd_params params = {0}; /* zero is every field's default */
  fmha_kernel_info info = {0};
  hipStream_t stream;
  hipGraphExec_t graph;
  int right;
  HIP(hipStreamCreate(&stream));

  params.struct_size = sizeof params;
  params.dtype = FMHA_BF16;
  params.batch = kBatch;
  params.seqlen_q = kQueries;
  params.seqlen_k = kKeys;
  params.nhead_q = kHeads;
  params.nhead_k = kKeyHeads;
  params.hdim_q = params.hdim_v = kDim;
  params.softmax_scale = 1.0f / sqrtf((float)kDim);
  params.mask = FMHA_MASK_CAUSAL;
  params.q = tensor(allocate(sizeof q), kQueries, kHeads);
  params.k = tensor(allocate(sizeof k), kKeys, kKeyHeads);
  params.v = tensor(allocate(sizeof v), kKeys, kKeyHeads);
  params.o = tensor(allocate(sizeof q), kQueries, kHeads);
  params.lse.data = allocate(kBatch * kHeads * kQueries * sizeof(float));
  params.lse.stride_batch = kHeads * kQueries;
  params.lse.stride_head = kQueries;

  info.struct_size = sizeof info;
  FMHA(fmha_fwd_kernel(&params, &info));
  printf("fmha_rocm %s, %s, kernel %s for %s\n", fmha_version(), fmha_hip_runtime_path(), info.name,
         info.arch);

  new_data(&params, 1);
  FMHA(fmha_fwd(&params, stream)); /* returns at once */
  HIP(hipStreamSynchronize(stream));
  right = check("call", &params, q, k, v);

  graph = capture(&params, stream);
  new_data(&params, 100);
  HIP(hipGraphLaunch(graph, stream));
  HIP(hipStreamSynchronize(stream));
  right = check("graph", &params, q, k, v) && right;

  HIP(hipGraphExecDestroy(graph));
  HIP(hipFree(params.q.data));
  HIP(hipFree(params.k.data));
  HIP(hipFree(params.v.data));
  HIP(hipFree(params.o.data));
  HIP(hipFree(params.lse.data));
  HIP(hipStreamDestroy(stream));
  puts(right ? "right" : "WRONG");
  return !right;
}

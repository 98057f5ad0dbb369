/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A C program that runs a model of one MultiHeadAttention on our provider and on ONNX Runtime's own, and
 * compares both with attention in double precision: onnxruntime_client LIBRARY MODEL. The model has float32
 * inputs query, key and value (BATCH, SEQLEN, HEADS * HDIM).
 */
#include <math.h>
#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SEQLEN = 37, HEADS = 3, HDIM = 64, ROW = HEADS * HDIM, COUNT = BATCH * SEQLEN * ROW };

static const char kProvider[] = "FmhaRocmExecutionProvider";
static const OrtApi* g_ort;

static void check(OrtStatus* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", g_ort->GetErrorMessage(status));
  exit(1);
}

/* Sessions that run a node elsewhere are an error. */
static OrtSession* our_session(OrtEnv* env, const char* library, const char* model) {
  const OrtEpDevice* const* devices = NULL;
  const OrtEpDevice* ours = NULL;
  size_t count = 0;
  check(g_ort->RegisterExecutionProviderLibrary(env, "fmha", library));
  check(g_ort->GetEpDevices(env, &devices, &count));
  for (size_t i = 0; i < count; i++) {
    if (strcmp(g_ort->EpDevice_EpName(devices[i]), kProvider) == 0 && ours == NULL) ours = devices[i];
  }
  if (ours == NULL) {
    fprintf(stderr, "no device of %s\n", kProvider);
    exit(1);
  }
  OrtSessionOptions* options = NULL;
  OrtSession* session = NULL;
  check(g_ort->CreateSessionOptions(&options));
  check(g_ort->AddSessionConfigEntry(options, "session.disable_cpu_ep_fallback", "1"));
  check(g_ort->SessionOptionsAppendExecutionProvider_V2(options, env, &ours, 1, NULL, NULL, 0));
  check(g_ort->CreateSession(env, model, options, &session));
  g_ort->ReleaseSessionOptions(options);
  return session;
}

static OrtSession* cpu_session(OrtEnv* env, const char* model) {
  OrtSessionOptions* options = NULL;
  OrtSession* session = NULL;
  check(g_ort->CreateSessionOptions(&options));
  check(g_ort->CreateSession(env, model, options, &session));
  g_ort->ReleaseSessionOptions(options);
  return session;
}

static void run(OrtSession* session, float* tensors[3], float* output) {
  static const char* const kInputs[3] = {"query", "key", "value"};
  static const char* const kOutputs[1] = {"output"};
  const int64_t shape[3] = {BATCH, SEQLEN, ROW};
  OrtMemoryInfo* memory = NULL;
  OrtValue* inputs[3] = {NULL, NULL, NULL};
  OrtValue* result = NULL;
  const void* data = NULL;
  check(g_ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  for (int i = 0; i < 3; i++) {
    check(g_ort->CreateTensorWithDataAsOrtValue(memory, tensors[i], COUNT * sizeof(float), shape, 3,
                                                ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &inputs[i]));
  }
  check(g_ort->Run(session, NULL, kInputs, (const OrtValue* const*)inputs, 3, kOutputs, 1, &result));
  check(g_ort->GetTensorData(result, &data));
  memcpy(output, data, COUNT * sizeof(float));
  g_ort->ReleaseValue(result);
  for (int i = 0; i < 3; i++) g_ort->ReleaseValue(inputs[i]);
  g_ort->ReleaseMemoryInfo(memory);
}

/* One row of attention: query row i of batch b and head h. */
static void attend(float* tensors[3], int b, int h, int i, double* output) {
  double weights[SEQLEN];
  double sum = 0;
  const float* q = tensors[0] + ((size_t)b * SEQLEN + i) * ROW + h * HDIM;
  for (int j = 0; j < SEQLEN; j++) {
    const float* k = tensors[1] + ((size_t)b * SEQLEN + j) * ROW + h * HDIM;
    double score = 0;
    for (int d = 0; d < HDIM; d++) score += (double)q[d] * k[d];
    weights[j] = exp(score / sqrt(HDIM));
    sum += weights[j];
  }
  memset(output, 0, HDIM * sizeof *output);
  for (int j = 0; j < SEQLEN; j++) {
    const float* v = tensors[2] + ((size_t)b * SEQLEN + j) * ROW + h * HDIM;
    for (int d = 0; d < HDIM; d++) output[d] += weights[j] / sum * v[d];
  }
}

static double largest_error(float* tensors[3], const float* output) {
  double row[HDIM];
  double largest = 0;
  for (int i = 0; i < BATCH * SEQLEN * HEADS; i++) {
    attend(tensors, i / (SEQLEN * HEADS), i % HEADS, i / HEADS % SEQLEN, row);
    for (int d = 0; d < HDIM; d++) largest = fmax(largest, fabs(output[(size_t)i * HDIM + d] - row[d]));
  }
  return largest;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  g_ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  float* tensors[3];
  unsigned state = 1;
  for (int i = 0; i < 3; i++) {
    tensors[i] = malloc(COUNT * sizeof(float));
    for (int n = 0; n < COUNT; n++) {
      state = state * 1664525U + 1013904223U;
      tensors[i][n] = (float)(state >> 8) / (float)(1 << 23) - 1.0F;
    }
  }
  OrtEnv* env = NULL;
  check(g_ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "client", &env));
  OrtSession* sessions[2] = {our_session(env, argv[1], argv[2]), cpu_session(env, argv[2])};
  float* output = malloc(COUNT * sizeof(float));
  for (int i = 0; i < 2; i++) {
    run(sessions[i], tensors, output);
    printf("%s %.3g\n", i == 0 ? "ours" : "cpu", largest_error(tensors, output));
    g_ort->ReleaseSession(sessions[i]);
  }
  check(g_ort->UnregisterExecutionProviderLibrary(env, "fmha"));
  g_ort->ReleaseEnv(env);
  free(output);
  for (int i = 0; i < 3; i++) free(tensors[i]);
  return 0;
}

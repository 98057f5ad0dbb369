/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls the library without a card: `use_library WHAT [DLL...]`, where WHAT is one of the functions below. It
 * prints what the library says, and returns its status. On Windows it loads the DLLs before. */
#include <fmha_rocm.h>
#include <stdio.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
#endif

enum { kBatch = 2, kLength = 300, kHeads = 4, kKeyHeads = 2, kDim = 128 };

/* Addresses that nobody reads. */
static fmha_tensor tensor(uintptr_t number, int64_t nhead) {
  fmha_tensor t = {0};
  t.data = (void*)(number << 32);
  t.stride_batch = kLength * nhead * kDim;
  t.stride_seqlen = nhead * kDim;
  t.stride_head = kDim;
  return t;
}

static int tell(fmha_status status) {
  if (status != FMHA_OK) printf("status %d: %s\n", (int)status, fmha_last_error());
  return (int)status;
}

static int ends_with(const char* text, const char* end) {
  const size_t most = strlen(text), length = strlen(end);
  return most >= length && strcmp(text + most - length, end) == 0;
}

static int forward(int64_t batch) {
  fmha_fwd_params params = {0};
  fmha_kernel_info info = {0};
  int status;
  params.struct_size = sizeof params;
  params.dtype = FMHA_BF16;
  params.batch = batch;
  params.seqlen_q = params.seqlen_k = kLength;
  params.nhead_q = kHeads;
  params.nhead_k = kKeyHeads;
  params.hdim_q = params.hdim_v = kDim;
  params.softmax_scale = 0.125f;
  params.mask = FMHA_MASK_CAUSAL;
  params.q = tensor(1, kHeads);
  params.k = tensor(2, kKeyHeads);
  params.v = tensor(3, kKeyHeads);
  params.o = tensor(4, kHeads);
  info.struct_size = sizeof info;
  do { /* the first candidate whose arguments padding.cc knows */
    ++params.kernel;
    status = tell(fmha_fwd_kernel(&params, &info));
    if (status != 0) return status;
  } while (!ends_with(info.name, "_pingpong"));
  printf("kernel %s for %s, code object %s\n", info.name, info.arch, info.sha256);
  return tell(fmha_fwd(&params, NULL));
}

static int search(void) {
  int32_t i;
  for (i = 0;; ++i) {
    fmha_hip_source source;
    char path[4096];
    const int status = tell(fmha_hip_runtime_search(i, &source, path, sizeof path));
    if (status != 0 || source == FMHA_HIP_NONE) return status;
    printf("%d %s\n", (int)source, path);
  }
}

static int runtime(void) {
  const char* path = fmha_hip_runtime_path();
  puts(path != NULL ? path : fmha_last_error());
  return path == NULL;
}

int main(int argc, char** argv) {
  const char* what = argc >= 2 ? argv[1] : "";
#ifdef _WIN32
  int i;
  for (i = 2; i < argc; ++i) {
    if (LoadLibraryA(argv[i]) == NULL) return printf("%s was not loaded\n", argv[i]);
  }
#endif
  if (strcmp(what, "version") == 0) return puts(fmha_version()) < 0;
  if (strcmp(what, "build_info") == 0) return puts(fmha_build_info()) < 0;
  if (strcmp(what, "search") == 0) return search();
  if (strcmp(what, "runtime") == 0) return runtime();
  if (strcmp(what, "forward") == 0) return forward(kBatch);
  if (strcmp(what, "bad_batch") == 0) return forward(-5000000000);
  fprintf(stderr, "use_library: got '%s', expected the name of a function\n", what);
  return 100;
}

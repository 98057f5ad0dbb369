/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The HIP functions that tests need, taken by name from the runtime that the library uses: so a test links
 * nothing but the library, as any program may. */
#ifndef FMHA_TESTS_HIP_CALLS_H
#define FMHA_TESTS_HIP_CALLS_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fmha_rocm.h"

typedef struct hip_calls {
  int (*get_device_count)(int* count);
  int (*set_device)(int device);
  int (*malloc_)(void** pointer, size_t bytes);
  int (*free_)(void* pointer);
  int (*copy)(void* to, const void* from, size_t bytes, int kind);
  int (*synchronize)(void);
  int (*stream_create)(void** stream);
  int (*stream_synchronize)(void* stream);
  int (*stream_destroy)(void* stream);
} hip_calls;

enum { HIP_TO_DEVICE = 1, HIP_TO_HOST = 2 }; /* hipMemcpyKind */

static inline int hip_bind(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "no %s in the HIP runtime\n", name);
    return 0;
  }
  memcpy(function, &symbol, sizeof symbol);
  return 1;
}

/* 1 on success. Binds the library to its runtime if it is not yet. */
static inline int hip_open(hip_calls* hip) {
  const char* path = fmha_hip_runtime_path();
  void* library;
  if (path == NULL) {
    fprintf(stderr, "%s\n", fmha_last_error());
    return 0;
  }
  fprintf(stderr, "HIP runtime: %s\n", path);
  library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 0;
  }
  return hip_bind(library, "hipGetDeviceCount", &hip->get_device_count) &&
         hip_bind(library, "hipSetDevice", &hip->set_device) &&
         hip_bind(library, "hipMalloc", &hip->malloc_) && hip_bind(library, "hipFree", &hip->free_) &&
         hip_bind(library, "hipMemcpy", &hip->copy) &&
         hip_bind(library, "hipDeviceSynchronize", &hip->synchronize) &&
         hip_bind(library, "hipStreamCreate", &hip->stream_create) &&
         hip_bind(library, "hipStreamSynchronize", &hip->stream_synchronize) &&
         hip_bind(library, "hipStreamDestroy", &hip->stream_destroy);
}

#endif

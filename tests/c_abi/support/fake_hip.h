/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A HIP runtime that runs nothing: it counts calls, keeps the last launch and fails on demand. Only for
 * tests of the way to a launch; what kernels compute is tested on the software device. */
#ifndef FMHA_TESTS_FAKE_HIP_H
#define FMHA_TESTS_FAKE_HIP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fake_hip_state {
  /* Calls so far; every function of the runtime adds to exactly one. */
  int inits, get_devices, attributes, pointer_queries, loads, unloads, get_functions, launches, memsets;
  int last_error_reads, capture_queries;

  /* Set by a test: the error to give (0: none), what the device claims to be. */
  int init_error, pointer_error, load_error, get_function_error, launch_error, memset_error;
  int launches_before_error; /* with launch_error: so many launches still work */
  void* capturing;           /* the stream that is being captured */
  int capability_major, capability_minor, version;
  const char* arch_name; /* gcnArchName */

  /* The last launch. */
  unsigned grid[3], block[3], lds_bytes;
  void* stream;
  unsigned char arguments[1024];
  size_t argument_bytes;
  char function_name[128];

  /* The last memset, and how many launches came before it. */
  void *memset_memory, *memset_stream;
  int memset_value, launches_before_memset;
  size_t memset_bytes;
} fake_hip_state;

typedef fake_hip_state* (*fake_hip_fn)(void);

#ifdef __cplusplus
}
#endif
#endif

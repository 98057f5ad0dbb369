/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls in a loop and the nanoseconds each took, for benchmarks/call_overhead.py: so that no Python is in
 * what it says of C. The functions come as pointers, from whatever copy of them the caller measures. */
#define _POSIX_C_SOURCE 199309L
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

typedef int (*forward_function)(const void* params, void* stream);
typedef int (*pointer_function)(void* value, int attribute, void* pointer);
typedef int (*launch_function)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned lds_bytes,
                               void* stream, void** params, void** extra);

/* Only this thread's: what other processes take of its core does not count. */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Each returns nanoseconds a call, or -1 if a call failed. */
EXPORT double call_loop_forward(forward_function forward, const void* params, void* stream, int64_t calls) {
  const double start = now();
  int64_t i;
  for (i = 0; i < calls; ++i) {
    if (forward(params, stream) != 0) return -1;
  }
  return (now() - start) / (double)calls;
}

/* The launch that a program would write without this library: the arguments are one block of bytes. */
EXPORT double call_loop_launch(launch_function launch, void* function, const uint32_t grid[3], uint32_t block,
                               void* stream, void* arguments, size_t argument_bytes, int64_t calls) {
  const double start = now();
  int64_t i;
  for (i = 0; i < calls; ++i) {
    /* HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END */
    void* extra[] = {(void*)1, arguments, (void*)2, &argument_bytes, (void*)3};
    if (launch(function, grid[0], grid[1], grid[2], block, 1, 1, 0, stream, NULL, extra) != 0) return -1;
  }
  return (now() - start) / (double)calls;
}

EXPORT double call_loop_pointer(pointer_function query, void* pointer, int64_t calls) {
  const double start = now();
  int64_t i;
  for (i = 0; i < calls; ++i) {
    int device = -1;
    if (query(&device, 9, pointer) != 0) return -1; /* HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
  }
  return (now() - start) / (double)calls;
}

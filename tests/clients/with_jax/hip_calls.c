// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts the calls of HIP's graph functions that pass through here on their way to libamdhip64. With
// LD_PRELOAD a program's calls do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static void* next(const char* name) {
  void* runtime = dlopen("libamdhip64.so.7", RTLD_LAZY);
  void* function = runtime ? dlsym(runtime, name) : NULL;
  if (!function) {
    fprintf(stderr, "hip_calls: %s\n", dlerror());
    abort();
  }
  return function;
}

// NAME_calls is how often NAME was called.
#define COUNTED(name, parameters, arguments) \
  int name##_calls;                          \
  int name parameters {                      \
    static int(*function) parameters;        \
    if (!function) function = next(#name);   \
    ++name##_calls;                          \
    return function arguments;               \
  }

COUNTED(hipStreamBeginCapture, (void* stream, int mode), (stream, mode))
COUNTED(hipGraphAddKernelNode, (void* node, void* graph, void* from, size_t count, void* parameters),
        (node, graph, from, count, parameters))
COUNTED(hipGraphAddChildGraphNode, (void* node, void* graph, void* from, size_t count, void* child),
        (node, graph, from, count, child))
COUNTED(hipGraphExecKernelNodeSetParams, (void* graph, void* node, void* parameters),
        (graph, node, parameters))
COUNTED(hipGraphExecChildGraphNodeSetParams, (void* graph, void* node, void* child), (graph, node, child))
COUNTED(hipGraphLaunch, (void* graph, void* stream), (graph, stream))

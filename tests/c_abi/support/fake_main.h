// SPDX-License-Identifier: MIT OR Apache-2.0
// The main of a test over the runtime that counts, whose path is its argument. For the one source file of a
// program, which defines run_tests().
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstring>

#include "check.h"
#include "fake_hip.h"
#include "fmha_rocm.h"

inline fake_hip_state* hip;
inline int (*hip_malloc)(void**, size_t);
inline int (*hip_host_malloc)(void**, size_t, unsigned);
inline int (*hip_set_device)(int);

inline void* device_memory(size_t bytes) {
  void* pointer = nullptr;
  CHECK(hip_malloc(&pointer, bytes) == 0);
  return pointer;
}

static void run_tests();

template <typename Function>
bool bind(void* library, const char* name, Function& function) {
  void* symbol = library != nullptr ? dlsym(library, name) : nullptr;
  CHECK(symbol != nullptr);
  std::memcpy(&function, &symbol, sizeof function);
  return symbol != nullptr;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  CHECK_OK(fmha_set_hip_runtime(argv[1]));
  void* library = dlopen(fmha_hip_runtime_path(), RTLD_NOW | RTLD_NOLOAD);
  fake_hip_fn state = nullptr;
  if (bind(library, "fake_hip", state) && bind(library, "hipMalloc", hip_malloc) &&
      bind(library, "hipHostMalloc", hip_host_malloc) && bind(library, "hipSetDevice", hip_set_device)) {
    hip = state();
    run_tests();
  }
  return check_result();
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// The runtime that counts, as the library's own. The build says its path, FAKE_HIP.
#pragma once

#include <dlfcn.h>

#include <cstddef>

#include "fake_hip.h"
#include "fmha_rocm.h"
#include "status.h"

class FakeRuntime {
 public:
  static const FakeRuntime& get() {
    static const FakeRuntime runtime;
    return runtime;
  }

  fake_hip_state* state;
  int (*malloc_)(void**, size_t);
  int (*host_malloc)(void**, size_t, unsigned);
  int (*set_device)(int);

 private:
  FakeRuntime() {
    REQUIRE_OK(fmha_set_hip_runtime(FAKE_HIP));
    void* library = dlopen(fmha_hip_runtime_path(), RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(library != nullptr);
    fake_hip_fn fake_hip = nullptr;
    bind(library, "fake_hip", fake_hip);
    bind(library, "hipMalloc", malloc_);
    bind(library, "hipHostMalloc", host_malloc);
    bind(library, "hipSetDevice", set_device);
    state = fake_hip();
  }

  template <typename Function>
  static void bind(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    REQUIRE_MESSAGE(function != nullptr, name);
  }
};

inline fake_hip_state* hip() { return FakeRuntime::get().state; }
inline int hip_host_malloc(void** pointer, size_t bytes) {
  return FakeRuntime::get().host_malloc(pointer, bytes, 0);
}
inline int hip_set_device(int device) { return FakeRuntime::get().set_device(device); }

inline void* device_memory(size_t bytes) {
  void* pointer = nullptr;
  CHECK(FakeRuntime::get().malloc_(&pointer, bytes) == 0);
  return pointer;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// A child by fork of a process that has used the device gets an error at once, and never hangs; one that was
// forked before that works.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "fmha_rocm.h"
#include "on_device.h"
#include "params.h"
#include "status.h"

namespace {

constexpr int kHipErrorNotInitialized = 3;

void run_forward() {
  fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 1, 128, 128, 1, 1, 64);
  for (fmha_tensor* t : {&p.q, &p.k, &p.v, &p.o}) REQUIRE(hip().malloc_(&t->data, 128 * 64 * 2) == 0);
  REQUIRE_OK(fmha_fwd(&p, nullptr));
  REQUIRE(hip().synchronize() == 0);
  for (const fmha_tensor* t : {&p.q, &p.k, &p.v, &p.o}) REQUIRE(hip().free_(t->data) == 0);
}

void check_library_refuses() {
  const fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 1, 128, 128, 1, 1, 64);
  const char* const text = "this process was forked from one that had used HIP";
  REQUIRE_STATUS(fmha_fwd_supported(&p), FMHA_HIP_ERROR, text);
  REQUIRE_STATUS(fmha_fwd_prepare(&p), FMHA_HIP_ERROR, "start it by spawn or exec");
  REQUIRE_STATUS(fmha_set_hip_runtime(fmha_hip_runtime_path()), FMHA_HIP_ERROR, text);
}

// The software device says it too, to whoever calls it without this library.
void check_device_refuses() {
  if (dlsym(dlopen(fmha_hip_runtime_path(), RTLD_NOW), "fmha_emu_last_error") == nullptr) return;
  void* memory = nullptr;
  REQUIRE(hip().malloc_(&memory, 4096) == kHipErrorNotInitialized);
  REQUIRE(hip().synchronize() == kHipErrorNotInitialized);
  REQUIRE(hip().stream_synchronize(nullptr) == kHipErrorNotInitialized);
}

// Ends as a program does, by exit: what runs there must not wait either. A check that fails there is thrown.
template <typename Body>
void in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    try {
      body();
    } catch (...) {
      exit(1);
    }
    exit(0);
  }
  int status = -1;
  REQUIRE(child > 0);
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

// Forks while another thread is at work in the library and in the device.
void fork_during_calls() {
  std::thread other([] {
    for (int i = 0; i < 20; ++i) run_forward();
  });
  for (int i = 0; i < 5; ++i) in_child(check_library_refuses);
  other.join();
}

TEST_CASE("a child works if it was forked before the first use, and is refused after it") {
  // Binds the runtime and uses no device. Only here: a fork during dlopen leaves the child the loader's lock.
  (void)hip();
  in_child(run_forward);
  in_child([] { in_child(run_forward); });
  run_forward();
  in_child([] {
    check_library_refuses();
    check_device_refuses();
  });
  in_child([] { in_child(check_library_refuses); });
  fork_during_calls();
  run_forward();  // the parent goes on
}

}  // namespace

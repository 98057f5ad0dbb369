// SPDX-License-Identifier: MIT OR Apache-2.0
// A child by fork of a process that has used the device gets an error at once, and never hangs; one that was
// forked before that works.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "check.h"
#include "fmha_rocm.h"
#include "hip_calls.h"
#include "params.h"

namespace {

constexpr int kHipErrorNotInitialized = 3;

hip_calls hip;

void run_forward() {
  fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 1, 128, 128, 1, 1, 64);
  for (fmha_tensor* t : {&p.q, &p.k, &p.v, &p.o}) CHECK(hip.malloc_(&t->data, 128 * 64 * 2) == 0);
  CHECK_OK(fmha_fwd(&p, nullptr));
  CHECK(hip.synchronize() == 0);
  for (const fmha_tensor* t : {&p.q, &p.k, &p.v, &p.o}) CHECK(hip.free_(t->data) == 0);
}

void check_library_refuses() {
  const fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 1, 128, 128, 1, 1, 64);
  const char* const text = "this process was forked from one that had used HIP";
  CHECK_STATUS(fmha_fwd_supported(&p), FMHA_HIP_ERROR, text);
  CHECK_STATUS(fmha_fwd_prepare(&p), FMHA_HIP_ERROR, "start it by spawn or exec");
  CHECK_STATUS(fmha_set_hip_runtime(fmha_hip_runtime_path()), FMHA_HIP_ERROR, text);
}

// The software device says it too, to whoever calls it without this library.
void check_device_refuses() {
  if (dlsym(dlopen(fmha_hip_runtime_path(), RTLD_NOW), "fmha_emu_last_error") == nullptr) return;
  void* memory = nullptr;
  CHECK(hip.malloc_(&memory, 4096) == kHipErrorNotInitialized);
  CHECK(hip.synchronize() == kHipErrorNotInitialized);
  CHECK(hip.stream_synchronize(nullptr) == kHipErrorNotInitialized);
}

// Ends as a program does, by exit: what runs there must not wait either.
template <typename Body>
void in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    g_check_failures = 0;
    body();
    exit(check_result());
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Forks while another thread is at work in the library and in the device.
void fork_during_calls() {
  std::thread other([] {
    for (int i = 0; i < 20; ++i) run_forward();
  });
  for (int i = 0; i < 5; ++i) in_child(check_library_refuses);
  other.join();
}

}  // namespace

int main() {
  // Binds the runtime and uses no device. Only here: a fork during dlopen leaves the child the loader's lock.
  if (!hip_open(&hip)) return 1;
  in_child(run_forward);  // before the first use
  in_child([] { in_child(run_forward); });
  run_forward();
  in_child([] {
    check_library_refuses();
    check_device_refuses();
  });
  in_child([] { in_child(check_library_refuses); });
  fork_during_calls();
  run_forward();  // the parent goes on
  return check_result();
}

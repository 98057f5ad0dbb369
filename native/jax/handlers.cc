// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions that XLA calls.
#include <atomic>
#include <exception>
#include <mutex>

#include "call.h"
#include "fmha_rocm_jax.h"
#include "frame.h"
#include "host_memory.h"

namespace fmha::jax {
namespace {

fmha_jax_library g_library{};

// Calls on the CPU platform are made one after the other: they come from a thread for each of XLA's CPU
// devices, share buffers, and there is one software device behind them all, with all cores busy for each
// launch.
std::mutex g_cpu_mutex;
fmha_jax_device g_device{};
std::atomic<bool> g_device_found{false};

// Not under the mutex: it is Python that is asked, which may have to wait for a thread that waits for us.
void find_device() {
  if (g_device_found.load(std::memory_order_acquire)) return;
  char message[2048] = "";
  fmha_jax_device device{};
  if (g_library.find_device(&device, message, sizeof message) != 0) {
    raise(XLA_FFI_Error_Code_FAILED_PRECONDITION, "%s", message);
  }
  const std::lock_guard lock(g_cpu_mutex);
  g_device = device;
  g_device_found.store(true, std::memory_order_release);
}

void wait() {
  if (const int error = g_device.stream_synchronize(nullptr)) {
    (void)g_device.get_last_error();  // taken note of: the device serves the next call
    raise(XLA_FFI_Error_Code_INTERNAL, "the kernel failed on the software device: %s",
          g_device.get_error_name(error));
  }
}

void run_on_cpu(const Call& call) {
  find_device();
  const std::lock_guard lock(g_cpu_mutex);
  const HostMemory memory(g_device, call.used());
  try {
    call.launch(nullptr);
  } catch (const Error&) {  // launches before the one refused are still at work
    if (g_device.stream_synchronize(nullptr) != 0) (void)g_device.get_last_error();
    throw;
  }
  wait();
}

template <typename Body>
XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, Pass pass, XLA_FFI_Handler_Traits traits, Body body) {
  try {
    if (!answer_metadata(*frame, traits)) body(Call(*frame, g_library, pass));
    return nullptr;
  } catch (const Error& error) {
    return make_error(*frame, error.code, error.message.c_str());
  } catch (const std::exception& error) {
    return make_error(*frame, XLA_FFI_Error_Code_INTERNAL, error.what());
  }
}

XLA_FFI_Error* prepare_rocm(XLA_FFI_CallFrame* frame, Pass pass) {
  return handle(frame, pass, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE,
                [](const Call& call) { call.prepare(); });
}

XLA_FFI_Error* run_rocm(XLA_FFI_CallFrame* frame, Pass pass) {
  return handle(frame, pass, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE,
                [frame](const Call& call) { call.launch(stream_of(*frame)); });
}

}  // namespace
}  // namespace fmha::jax

using namespace fmha::jax;

void fmha_jax_connect(const fmha_jax_library* library) { g_library = *library; }

// The handlers of a pass: fmha_jax_NAME_prepare_rocm, fmha_jax_NAME_rocm and fmha_jax_NAME_cpu.
#define FMHA_HANDLERS(name, pass)                                                                   \
  XLA_FFI_Error* fmha_jax_##name##_prepare_rocm(XLA_FFI_CallFrame* frame) {                         \
    return prepare_rocm(frame, pass);                                                               \
  }                                                                                                 \
  XLA_FFI_Error* fmha_jax_##name##_rocm(XLA_FFI_CallFrame* frame) { return run_rocm(frame, pass); } \
  XLA_FFI_Error* fmha_jax_##name##_cpu(XLA_FFI_CallFrame* frame) {                                  \
    return handle(frame, pass, 0, run_on_cpu);                                                      \
  }

FMHA_HANDLERS(fwd, Pass::kForward)
FMHA_HANDLERS(bwd, Pass::kBackward)
FMHA_HANDLERS(decode, Pass::kDecode)
FMHA_HANDLERS(kv_append, Pass::kAppend)
FMHA_HANDLERS(merge, Pass::kMerge)

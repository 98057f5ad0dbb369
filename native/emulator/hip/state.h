// SPDX-License-Identifier: MIT OR Apache-2.0
// State the HIP entry points share: devices, the error of the calling thread, handles, the gate between
// launches and frees.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <utility>

#include "archs.h"
#include "base/per_thread.h"
#include "code/code_object.h"
#include "code/launch.h"
#include "core/card.h"
#include "hip/process.h"
#include "hip/rocm.h"
#include "hip/types.h"

// Every entry point: C name, exported, no exception leaves it.
#define HIP_API extern "C" [[gnu::visibility("default")]]

namespace fmha::emu {

// Remembers the error and its text for this thread (hipGetLastError, fmha_emu_last_error); returns the error.
[[gnu::format(printf, 2, 3)]] int fail(int error, const char* format, ...);
const char* error_name(int error);
const char* error_text(int error);

// Sets what hipGetLastError returns, without a text of its own.
void set_last_error(int error);

// Runs the body of an entry point that asks about the device, or says what this thread wants, between
// call_begins() and call_ends(); std::bad_alloc, and a thread that cannot be started, become
// hipErrorOutOfMemory.
template <class F>
int answered(F&& body) noexcept {
  if (const int e = call_begins()) return e;
  try {
    return call_ends(body());
  } catch (const std::bad_alloc&) {
    return fail(hipErrorOutOfMemory, "no host memory");
  } catch (const std::system_error& e) {
    return fail(hipErrorOutOfMemory, "the host starts no more threads: %s", e.what());
  } catch (const std::exception& e) {
    return fail(hipErrorUnknown, "%s", e.what());
  }
}

// Guards an entry point that uses the device.
template <class F>
int guarded(F&& body) noexcept {
  if (!may_use_device())
    return fail(hipErrorNotInitialized, "the device was used before this process was forked");
  return answered(std::forward<F>(body));
}

constexpr uint32_t kDefaultStack = 1024;

struct Device {
  int index = 0;
  std::atomic<uint64_t> used_bytes{0};
  std::atomic<uint32_t> stack_bytes{kDefaultStack};  // hipLimitStackSize
  std::atomic<int> retained{0};                      // how often its primary context is
  // A launch stopped: launches, copies and waits on the device return this until it is acknowledged, by
  // hipGetLastError on a thread that was told, or by hipDeviceReset.
  std::atomic<int> fault{0};
  std::atomic<int> last_fault{0};   // the newest, acknowledged or not
  std::atomic<uint64_t> faults{0};  // how many so far: work queued before one does not run after it
};

std::string device_name();
uint64_t device_memory_bytes();
int device_count();
Device& device(int index);
int current_device();
void set_current_device(int index);
// hipSuccess, or the recorded error of a device that does not exist or an argument that is null.
int check_device(int index, const char* function);
int null_argument(const char* function, const char* name);
// hipSuccess, or the fault that a launch on the device ended in.
int device_fault(int index);
// The calling thread has been told of device `index`'s fault; -1: of another error.
void set_told_of_fault(int index);

// Work on a device holds it shared; what takes memory away from under it, exclusively, and first: whoever
// waits for it exclusively is not overtaken for ever.
class Gate {
 public:
  void lock() {
    turnstile_.lock();
    mutex_.lock();
    turnstile_.unlock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  void lock_shared() {
    turnstile_.lock();
    mutex_.lock_shared();
    turnstile_.unlock();
  }
  void unlock_shared() { mutex_.unlock_shared(); }

 private:
  std::mutex turnstile_;
  std::shared_mutex mutex_;
};
Gate& launch_gate();

// Device of a stream: the current one for the null stream and its kin, or if it is none.
int stream_device(HipStream stream);
// hipSuccess, or an error recorded: not a stream, or its device has faulted.
int check_stream(HipStream stream, const char* function);

struct Function {
  Module* module;
  const KernelCode* kernel;
};

// Null with the error recorded if `function` is not a live handle. Unloading takes it away: see module_of().
const Function* find_function(HipFunction function, const char* caller);

// Queues a launch on `stream`. The arguments, as pointers (params) or as one block (extra), are copied.
int launch(HipFunction function, HipDim3 grid, HipDim3 block, uint32_t dynamic_lds, HipStream stream,
           void** params, void** extra, const char* caller);

// Ends the process if a variable that only launches read cannot be taken.
void check_launch_variables();

// Frees everything hipMalloc gave on `device`.
void free_device_memory(int device);

}  // namespace fmha::emu

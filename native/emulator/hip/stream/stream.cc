// SPDX-License-Identifier: MIT OR Apache-2.0
// Streams: handles, waiting for them, host functions.
#include <algorithm>

#include "hip/graph/graph.h"

namespace fmha::emu {
namespace {

constexpr int kLowestPriority = 1, kHighestPriority = -1;

int create_stream(HipStream* out, unsigned flags, int priority, const char* function) {
  return guarded([&] {
    if (!out) return fail(hipErrorInvalidValue, "%s: stream is null", function);
    if (flags > kNonBlocking)
      return fail(hipErrorInvalidValue, "%s: flags is %u, expected 0 or 1", function, flags);
    *out = add_stream(current_device(), flags, std::clamp(priority, kHighestPriority, kLowestPriority)).get();
    return static_cast<int>(hipSuccess);
  });
}

// The operations that the stream was given so far, if they may be waited for.
int pending(HipStream handle, const char* function, StreamRef* stream, std::vector<OpRef>* ops) {
  *stream = find_stream(handle, function);
  if (!*stream) return hipErrorContextIsDestroyed;
  if (const int e = check_stream_waitable(**stream, function)) return e;
  std::lock_guard lock(queue_mutex());
  *ops = pending_of(**stream);
  return hipSuccess;
}

int synchronize(HipStream handle, const char* function) {
  return guarded([&] {
    StreamRef stream;
    std::vector<OpRef> ops;
    if (const int e = pending(handle, function, &stream, &ops)) return e;
    if (const int e = wait_for(ops, function)) return e;
    return outcome_of(*stream, function);
  });
}

int query(HipStream handle, const char* function) {
  return guarded([&] {
    StreamRef stream;
    std::vector<OpRef> ops;
    if (const int e = pending(handle, function, &stream, &ops)) return e;
    if (const int e = outcome_of(*stream, function)) return e;
    return static_cast<int>(ops.empty() ? hipSuccess : hipErrorNotReady);  // not an error to remember
  });
}

}  // namespace

int stream_device(HipStream handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 2) return current_device();
  const StreamRef stream = find_stream(handle, "stream");
  return stream ? stream->device : current_device();
}

int check_stream(HipStream handle, const char* function) {
  const StreamRef stream = find_stream(handle, function);
  return stream ? device_fault(stream->device) : hipErrorContextIsDestroyed;
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipStreamCreate(HipStream* out) { return create_stream(out, 0, 0, "hipStreamCreate"); }
HIP_API int hipStreamCreateWithFlags(HipStream* out, unsigned flags) {
  return create_stream(out, flags, 0, "hipStreamCreateWithFlags");
}
HIP_API int hipStreamCreateWithPriority(HipStream* out, unsigned flags, int priority) {
  return create_stream(out, flags, priority, "hipStreamCreateWithPriority");
}

// Returns at once; the stream goes when its work is done.
HIP_API int hipStreamDestroy(HipStream handle) {
  return guarded([&] {
    const auto number = reinterpret_cast<uintptr_t>(handle);
    const StreamRef stream = number > 2 ? find_stream(handle, "hipStreamDestroy") : nullptr;
    if (stream) {
      std::lock_guard lock(queue_mutex());
      if (stream->capture && stream->capture->origin == stream) {
        return invalidate(*stream->capture, hipErrorStreamCaptureUnsupported, "hipStreamDestroy",
                          "the stream is being captured; end the capture first");
      }
    }
    if (stream && remove_stream(handle)) return static_cast<int>(hipSuccess);
    return fail(hipErrorInvalidHandle, "hipStreamDestroy: %p is not a stream to destroy",
                static_cast<void*>(handle));
  });
}

HIP_API int hipStreamQuery(HipStream stream) { return query(stream, "hipStreamQuery"); }
HIP_API int hipStreamSynchronize(HipStream stream) { return synchronize(stream, "hipStreamSynchronize"); }
HIP_API int hipStreamQuery_spt(HipStream stream) {
  return query(stream ? stream : kPerThread, "hipStreamQuery_spt");
}
HIP_API int hipStreamSynchronize_spt(HipStream stream) {
  return synchronize(stream ? stream : kPerThread, "hipStreamSynchronize_spt");
}

HIP_API int hipStreamGetFlags(HipStream handle, unsigned* flags) {
  return answered([&]() -> int {
    if (!flags) return fail(hipErrorInvalidValue, "hipStreamGetFlags: flags is null");
    const StreamRef stream = find_stream(handle, "hipStreamGetFlags");
    if (!stream) return hipErrorContextIsDestroyed;
    *flags = stream->flags;
    return hipSuccess;
  });
}

HIP_API int hipStreamGetPriority(HipStream handle, int* priority) {
  return answered([&]() -> int {
    if (!priority) return fail(hipErrorInvalidValue, "hipStreamGetPriority: priority is null");
    const StreamRef stream = find_stream(handle, "hipStreamGetPriority");
    if (!stream) return hipErrorContextIsDestroyed;
    *priority = stream->priority;
    return hipSuccess;
  });
}

HIP_API int hipStreamGetDevice(HipStream handle, int* device) {
  return answered([&]() -> int {
    if (!device) return fail(hipErrorInvalidValue, "hipStreamGetDevice: device is null");
    const StreamRef stream = find_stream(handle, "hipStreamGetDevice");
    if (!stream) return hipErrorContextIsDestroyed;
    *device = stream->device;
    return hipSuccess;
  });
}

// The device itself, not a status; -1: no such stream.
HIP_API int hipGetStreamDeviceId(HipStream handle) {
  const StreamRef stream = find_stream(handle, "hipGetStreamDeviceId");
  return stream ? stream->device : -1;
}

HIP_API int hipStreamGetId(HipStream handle, unsigned long long* id) {
  return answered([&]() -> int {
    if (!id) return fail(hipErrorInvalidValue, "hipStreamGetId: streamId is null");
    const StreamRef stream = find_stream(handle, "hipStreamGetId");
    if (!stream) return hipErrorContextIsDestroyed;
    *id = stream->id;
    return hipSuccess;
  });
}

// The function runs even if the device has stopped, and is told so.
HIP_API int hipStreamAddCallback(HipStream handle, HipStreamCallback callback, void* user_data,
                                 unsigned flags) {
  return guarded([&] {
    const char* const function = "hipStreamAddCallback";
    if (!callback || flags) return fail(hipErrorInvalidValue, "%s: null callback or flags", function);
    const StreamRef stream = find_stream(handle, function);
    if (!stream) return static_cast<int>(hipErrorContextIsDestroyed);
    wait_for_room(stream);
    std::lock_guard lock(queue_mutex());
    if (stream->capture) {
      return invalidate(*stream->capture, hipErrorStreamCaptureUnsupported, function,
                        "a callback cannot be captured; use hipLaunchHostFunc");
    }
    if (const int e = check_legacy(*stream, function)) return e;
    const int index = stream->device;
    OpBody body = [=](bool alive) {
      callback(handle, alive ? static_cast<int>(hipSuccess) : device(index).last_fault.load(), user_data);
    };
    submit(stream, std::move(body), {}, {.runs_program = true});
    return static_cast<int>(hipSuccess);
  });
}

// The function runs even if the device has stopped: who waits for it to run would wait for ever.
HIP_API int hipLaunchHostFunc(HipStream stream, HipHostFn function, void* user_data) {
  return guarded([&] {
    if (!function) return fail(hipErrorInvalidValue, "hipLaunchHostFunc: fn is null");
    return enqueue("hipLaunchHostFunc", stream, HostWork{function, user_data});
  });
}

// Tests call it. The stream begins nothing more until it has been released as often as it was held.
// Another stream then sees its results as it would if a wait were missing.
HIP_API int fmha_emu_stream_hold(HipStream handle) {
  const StreamRef stream = find_stream(handle, "fmha_emu_stream_hold");
  if (!stream) return hipErrorContextIsDestroyed;
  std::lock_guard lock(queue_mutex());
  ++stream->holds;
  return hipSuccess;
}
HIP_API int fmha_emu_stream_release(HipStream handle) {
  const StreamRef stream = find_stream(handle, "fmha_emu_stream_release");
  if (!stream) return hipErrorContextIsDestroyed;
  std::lock_guard lock(queue_mutex());
  if (!stream->holds) return fail(hipErrorIllegalState, "fmha_emu_stream_release: the stream is not held");
  if (--stream->holds == 0) stream->wake.notify_one();
  return hipSuccess;
}

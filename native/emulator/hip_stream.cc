// SPDX-License-Identifier: MIT OR Apache-2.0
// Streams and events. Work runs on the thread that submits it, in order, so a stream has always finished and
// an event is recorded at once; handles are checked all the same.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "hip_state.h"

namespace fmha::emu {
namespace {

template <class T>
class Handles {
 public:
  T* add(std::unique_ptr<T> object) {
    std::lock_guard lock(mutex_);
    T* p = object.get();
    live_.emplace(p, std::move(object));
    return p;
  }
  bool has(T* p) {
    std::shared_lock lock(mutex_);
    return live_.contains(p);
  }
  bool remove(T* p) {
    std::lock_guard lock(mutex_);
    return live_.erase(p) != 0;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<T*, std::unique_ptr<T>> live_;
};

Handles<Stream>& streams() {
  static auto* h = new Handles<Stream>;
  return *h;
}
Handles<Event>& events() {
  static auto* h = new Handles<Event>;
  return *h;
}

constexpr unsigned kNonBlocking = 1, kDisableTiming = 2;
constexpr int kLowestPriority = 1, kHighestPriority = -1;
constexpr int kCaptureNone = 0;

// The null stream, hipStreamLegacy and hipStreamPerThread.
bool is_default(HipStream s) { return reinterpret_cast<uintptr_t>(s) <= 2; }

std::mutex event_mutex;  // of the fields of events

int check_event(HipEvent event, const char* function) {
  if (event && events().has(event)) return hipSuccess;
  return fail(hipErrorInvalidHandle, "%s: %p is not an event", function, static_cast<void*>(event));
}

int create_stream(HipStream* out, unsigned flags, int priority, const char* function) {
  return guarded([&] {
    if (!out) return fail(hipErrorInvalidValue, "%s: stream is null", function);
    if (flags > kNonBlocking)
      return fail(hipErrorInvalidValue, "%s: flags is %u, expected 0 or 1", function, flags);
    static std::atomic<uint64_t> next_id{3};
    auto stream = std::make_unique<Stream>();
    stream->device = current_device();
    stream->flags = flags;
    stream->priority = std::clamp(priority, kHighestPriority, kLowestPriority);
    stream->id = next_id++;
    *out = streams().add(std::move(stream));
    return static_cast<int>(hipSuccess);
  });
}

int no_capture(const char* function) {
  return fail(hipErrorNotSupported, "%s: the software device does not capture graphs", function);
}

}  // namespace

bool stream_is_valid(HipStream stream) { return is_default(stream) || streams().has(stream); }

int stream_device(HipStream stream) { return is_default(stream) ? current_device() : stream->device; }

int check_stream(HipStream stream, const char* function) {
  if (!stream_is_valid(stream)) {
    return fail(hipErrorContextIsDestroyed, "%s: %p is not a stream of this runtime", function,
                static_cast<void*>(stream));
  }
  return device_fault(stream_device(stream));
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

HIP_API int hipStreamDestroy(HipStream stream) {
  if (is_default(stream) || !streams().remove(stream)) {
    return fail(hipErrorInvalidHandle, "hipStreamDestroy: %p is not a stream to destroy",
                static_cast<void*>(stream));
  }
  return hipSuccess;
}

HIP_API int hipStreamQuery(HipStream stream) { return check_stream(stream, "hipStreamQuery"); }
HIP_API int hipStreamSynchronize(HipStream stream) { return check_stream(stream, "hipStreamSynchronize"); }
HIP_API int hipStreamQuery_spt(HipStream stream) { return check_stream(stream, "hipStreamQuery_spt"); }
HIP_API int hipStreamSynchronize_spt(HipStream stream) {
  return check_stream(stream, "hipStreamSynchronize_spt");
}

HIP_API int hipStreamWaitEvent(HipStream stream, HipEvent event, unsigned flags) {
  if (flags) return fail(hipErrorInvalidValue, "hipStreamWaitEvent: flags is %u, expected 0", flags);
  if (int e = check_stream(stream, "hipStreamWaitEvent")) return e;
  return check_event(event, "hipStreamWaitEvent");
}

HIP_API int hipStreamGetFlags(HipStream stream, unsigned* flags) {
  if (!flags) return fail(hipErrorInvalidValue, "hipStreamGetFlags: flags is null");
  if (int e = check_stream(stream, "hipStreamGetFlags")) return e;
  *flags = is_default(stream) ? 0 : stream->flags;
  return hipSuccess;
}

HIP_API int hipStreamGetPriority(HipStream stream, int* priority) {
  if (!priority) return fail(hipErrorInvalidValue, "hipStreamGetPriority: priority is null");
  if (int e = check_stream(stream, "hipStreamGetPriority")) return e;
  *priority = is_default(stream) ? 0 : stream->priority;
  return hipSuccess;
}

HIP_API int hipStreamGetDevice(HipStream stream, int* device) {
  if (!device) return fail(hipErrorInvalidValue, "hipStreamGetDevice: device is null");
  if (int e = check_stream(stream, "hipStreamGetDevice")) return e;
  *device = stream_device(stream);
  return hipSuccess;
}

HIP_API int hipStreamGetId(HipStream stream, unsigned long long* id) {
  if (!id) return fail(hipErrorInvalidValue, "hipStreamGetId: streamId is null");
  if (int e = check_stream(stream, "hipStreamGetId")) return e;
  *id = is_default(stream) ? reinterpret_cast<uintptr_t>(stream) : stream->id;
  return hipSuccess;
}

HIP_API int hipStreamAddCallback(HipStream stream, HipStreamCallback callback, void* user_data,
                                 unsigned flags) {
  if (!callback || flags) return fail(hipErrorInvalidValue, "hipStreamAddCallback: null callback or flags");
  if (!stream_is_valid(stream)) return check_stream(stream, "hipStreamAddCallback");
  callback(stream, device_fault(stream_device(stream)), user_data);
  return hipSuccess;
}

HIP_API int hipLaunchHostFunc(HipStream stream, HipHostFn function, void* user_data) {
  if (!function) return fail(hipErrorInvalidValue, "hipLaunchHostFunc: fn is null");
  if (int e = check_stream(stream, "hipLaunchHostFunc")) return e;
  function(user_data);
  return hipSuccess;
}

HIP_API int hipStreamIsCapturing(HipStream stream, int* status) {
  if (!status) return fail(hipErrorInvalidValue, "hipStreamIsCapturing: status is null");
  if (int e = check_stream(stream, "hipStreamIsCapturing")) return e;
  *status = kCaptureNone;
  return hipSuccess;
}

HIP_API int hipStreamGetCaptureInfo(HipStream stream, int* status, unsigned long long* id) {
  if (id) *id = 0;
  return hipStreamIsCapturing(stream, status);
}

HIP_API int hipStreamBeginCapture(HipStream, int) { return no_capture("hipStreamBeginCapture"); }
HIP_API int hipStreamEndCapture(HipStream, void**) { return no_capture("hipStreamEndCapture"); }
HIP_API int hipThreadExchangeStreamCaptureMode(int*) {
  return no_capture("hipThreadExchangeStreamCaptureMode");
}

HIP_API int hipEventCreateWithFlags(HipEvent* out, unsigned flags) {
  return guarded([&] {
    if (!out) return fail(hipErrorInvalidValue, "hipEventCreate: event is null");
    auto event = std::make_unique<Event>();
    event->flags = flags;
    event->device = current_device();
    *out = events().add(std::move(event));
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipEventCreate(HipEvent* out) { return hipEventCreateWithFlags(out, 0); }

HIP_API int hipEventDestroy(HipEvent event) {
  if (events().remove(event)) return hipSuccess;
  return fail(hipErrorInvalidHandle, "hipEventDestroy: %p is not an event", static_cast<void*>(event));
}

HIP_API int hipEventRecord(HipEvent event, HipStream stream) {
  if (int e = check_event(event, "hipEventRecord")) return e;
  if (int e = check_stream(stream, "hipEventRecord")) return e;
  if (stream_device(stream) != event->device) {
    return fail(hipErrorInvalidHandle, "hipEventRecord: event of device %d, stream of device %d",
                event->device, stream_device(stream));
  }
  std::lock_guard lock(event_mutex);
  event->recorded = true;
  event->time = std::chrono::steady_clock::now();
  return hipSuccess;
}
HIP_API int hipEventRecordWithFlags(HipEvent event, HipStream stream, unsigned) {
  return hipEventRecord(event, stream);
}
HIP_API int hipEventRecord_spt(HipEvent event, HipStream stream) { return hipEventRecord(event, stream); }

HIP_API int hipEventQuery(HipEvent event) {
  if (int e = check_event(event, "hipEventQuery")) return e;
  return device_fault(event->device);
}

HIP_API int hipEventSynchronize(HipEvent event) {
  if (int e = check_event(event, "hipEventSynchronize")) return e;
  return device_fault(event->device);
}

HIP_API int hipEventElapsedTime(float* ms, HipEvent start, HipEvent stop) {
  if (!ms) return fail(hipErrorInvalidValue, "hipEventElapsedTime: ms is null");
  for (HipEvent event : {start, stop}) {
    if (int e = check_event(event, "hipEventElapsedTime")) return e;
  }
  std::lock_guard lock(event_mutex);
  for (HipEvent event : {start, stop}) {
    if (!event->recorded)
      return fail(hipErrorInvalidHandle, "hipEventElapsedTime: an event was not recorded");
    if (event->flags & kDisableTiming) {
      return fail(hipErrorInvalidHandle, "hipEventElapsedTime: an event was made with hipEventDisableTiming");
    }
  }
  *ms = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
  return hipSuccess;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Events: marks in streams, which the host and other streams wait for.
#include "hip/stream/event.h"

#include "hip/graph/graph.h"
#include "hip/handles.h"

namespace fmha::emu {

// Guarded by queue_mutex() but for what never changes.
struct Event {
  unsigned flags = 0;
  int device = 0;
  OpRef op;                          // the mark recorded last
  std::shared_ptr<Capture> capture;  // it was recorded in this one instead, behind these nodes
  std::vector<GraphNode*> nodes;
};

namespace {

constexpr unsigned kDisableTiming = 2;
constexpr unsigned kExternal = 1;  // of hipEventRecordWithFlags, hipStreamWaitEvent: a node of the capture

Handles<Event>& events() {
  static auto* h = new Handles<Event>;
  return *h;
}

int record(HipEvent handle, HipStream stream_handle, unsigned flags, const char* function) {
  const EventRef event = find_event(handle, function);
  if (!event) return hipErrorInvalidHandle;
  if (flags > kExternal) return fail(hipErrorInvalidValue, "%s: flags is %u", function, flags);
  const StreamRef stream = find_stream(stream_handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  if (const int e = device_fault(stream->device)) return e;
  if (stream->device != event->device) {
    return fail(hipErrorInvalidHandle, "%s: event of device %d, stream of device %d", function, event->device,
                stream->device);
  }
  wait_for_room(stream);
  std::lock_guard lock(queue_mutex());
  if (!stream->capture) {
    if (const int e = check_legacy(*stream, function)) return e;
    event->op = submit(stream, nullptr);
    event->capture = nullptr;
    event->nodes.clear();
    return hipSuccess;
  }
  if (flags & kExternal) return capture_work(*stream, RecordWork{event}, function);
  if (stream->capture->invalid)
    return fail(hipErrorStreamCaptureInvalidated, "%s: a call has invalidated the capture", function);
  event->op = nullptr;
  event->capture = stream->capture;
  event->nodes = stream->frontier;
  return hipSuccess;
}

int wait_event(HipStream stream_handle, HipEvent handle, unsigned flags) {
  const char* const function = "hipStreamWaitEvent";
  if (flags > kExternal)
    return fail(hipErrorInvalidValue, "%s: flags is %u, expected 0 or 1", function, flags);
  const StreamRef stream = find_stream(stream_handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  const EventRef event = find_event(handle, function);
  if (!event) return hipErrorInvalidHandle;
  if (const int e = device_fault(stream->device)) return e;
  wait_for_room(stream);
  std::lock_guard lock(queue_mutex());
  if (flags & kExternal && stream->capture) return capture_work(*stream, WaitWork{event}, function);
  if (event->capture) return join_capture(stream, event->capture, event->nodes, function);
  if (stream->capture) {
    return invalidate(*stream->capture, hipErrorStreamCaptureIsolation, function,
                      "the stream is being captured, the event was recorded outside of the capture");
  }
  if (const int e = check_legacy(*stream, function)) return e;
  if (event->op && !event->op->done) submit(stream, nullptr, {event->op});
  return hipSuccess;
}

// The event's mark, if the host may wait for it; null if it was never recorded.
int mark_of(Event& event, const char* function, OpRef* op) {
  std::lock_guard lock(queue_mutex());
  if (!event.capture) return *op = event.op, hipSuccess;
  const char* const what = "the event was recorded in a stream that was being captured";
  if (event.capture->ended) return fail(hipErrorCapturedEvent, "%s: %s", function, what);
  return invalidate(*event.capture, hipErrorCapturedEvent, function, what);
}

int elapsed(float* ms, HipEvent start, HipEvent stop) {
  const char* const function = "hipEventElapsedTime";
  if (!ms) return fail(hipErrorInvalidValue, "%s: ms is null", function);
  std::chrono::steady_clock::time_point times[2];
  const HipEvent handles[2] = {start, stop};
  for (int i = 0; i < 2; ++i) {
    OpRef op;
    const EventRef event = find_event(handles[i], function);
    if (!event) return hipErrorInvalidHandle;
    if (event->flags & kDisableTiming)
      return fail(hipErrorInvalidHandle, "%s: an event was made with hipEventDisableTiming", function);
    if (const int e = mark_of(*event, function, &op)) return e;
    if (!op) return fail(hipErrorInvalidHandle, "%s: an event was not recorded", function);
    std::lock_guard lock(queue_mutex());
    if (!op->done) return hipErrorNotReady;
    times[i] = op->time;
  }
  *ms = std::chrono::duration<float, std::milli>(times[1] - times[0]).count();
  return hipSuccess;
}

}  // namespace

EventRef find_event(HipEvent handle, const char* function) {
  EventRef event = handle ? events().find(handle) : nullptr;
  if (!event) fail(hipErrorInvalidHandle, "%s: %p is not an event", function, static_cast<void*>(handle));
  return event;
}

OpRef recorded(const Event& event) { return event.op; }

OpRef begin_mark(Event& event, const StreamRef& stream) {
  event.op = loose_mark(stream);
  event.capture = nullptr;
  event.nodes.clear();
  return event.op;
}

int record_event(HipEvent event, HipStream stream, const char* function) {
  return record(event, stream, 0, function);
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipEventCreateWithFlags(HipEvent* out, unsigned flags) {
  return guarded([&] {
    if (!out) return fail(hipErrorInvalidValue, "hipEventCreate: event is null");
    auto event = std::make_shared<Event>();
    event->flags = flags;
    event->device = current_device();
    *out = events().add(std::move(event));
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipEventCreate(HipEvent* out) { return hipEventCreateWithFlags(out, 0); }

HIP_API int hipEventDestroy(HipEvent event) {
  return answered([&]() -> int {
    if (events().remove(event)) return hipSuccess;
    return fail(hipErrorInvalidHandle, "hipEventDestroy: %p is not an event", static_cast<void*>(event));
  });
}

HIP_API int hipEventRecord(HipEvent event, HipStream stream) {
  return guarded([&] { return record(event, stream, 0, "hipEventRecord"); });
}
HIP_API int hipEventRecordWithFlags(HipEvent event, HipStream stream, unsigned flags) {
  return guarded([&] { return record(event, stream, flags, "hipEventRecordWithFlags"); });
}
HIP_API int hipEventRecord_spt(HipEvent event, HipStream stream) {
  return guarded([&] { return record(event, stream ? stream : kPerThread, 0, "hipEventRecord_spt"); });
}
HIP_API int hipStreamWaitEvent(HipStream stream, HipEvent event, unsigned flags) {
  return guarded([&] { return wait_event(stream, event, flags); });
}
HIP_API int hipStreamWaitEvent_spt(HipStream stream, HipEvent event, unsigned flags) {
  return guarded([&] { return wait_event(stream ? stream : kPerThread, event, flags); });
}

HIP_API int hipEventQuery(HipEvent handle) {
  return guarded([&] {
    OpRef op;
    const EventRef event = find_event(handle, "hipEventQuery");
    if (!event) return static_cast<int>(hipErrorInvalidHandle);
    if (const int e = mark_of(*event, "hipEventQuery", &op)) return e;
    if (const int e = device_fault(event->device)) return e;
    std::lock_guard lock(queue_mutex());
    return static_cast<int>(!op || op->done ? hipSuccess : hipErrorNotReady);
  });
}

HIP_API int hipEventSynchronize(HipEvent handle) {
  return guarded([&] {
    OpRef op;
    const EventRef event = find_event(handle, "hipEventSynchronize");
    if (!event) return static_cast<int>(hipErrorInvalidHandle);
    if (const int e = mark_of(*event, "hipEventSynchronize", &op)) return e;
    if (op) {
      if (const int e = wait_for({op}, "hipEventSynchronize")) return e;
    }
    if (const int e = device_fault(event->device)) return e;
    if (!op || !op->dropped) return static_cast<int>(hipSuccess);
    return fail(op->dropped, "hipEventSynchronize: the work before the event was dropped: %s",
                error_name(op->dropped));
  });
}

HIP_API int hipEventElapsedTime(float* ms, HipEvent start, HipEvent stop) {
  return guarded([&] { return elapsed(ms, start, stop); });
}

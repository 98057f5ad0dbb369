// SPDX-License-Identifier: MIT OR Apache-2.0
// Stream capture: calls on a capturing stream become nodes of a graph. Events carry a capture to other
// streams, which must come back to the one it began on before it ends.
#include <algorithm>
#include <unordered_set>

#include "base/per_thread.h"
#include "hip/graph/graph.h"

namespace fmha::emu {
namespace {

// Captures that have not ended. Guarded by queue_mutex().
std::vector<std::shared_ptr<Capture>>& captures() {
  static auto* all = new std::vector<std::shared_ptr<Capture>>;
  return *all;
}

FMHA_THREAD_NUMBER int thread_mode = kCaptureGlobal;

std::shared_ptr<Capture> capture_of(Stream& stream) {
  std::lock_guard lock(queue_mutex());
  return stream.capture;
}

// True if a call that could upset `c` is forbidden in this thread.
bool forbids(const Capture& c) {
  if (c.mode == kCaptureRelaxed || thread_mode == kCaptureRelaxed) return false;
  if (c.thread == std::this_thread::get_id()) return true;
  return c.mode == kCaptureGlobal && thread_mode == kCaptureGlobal;
}

int status_of(const Capture* c) {
  if (!c) return kCaptureNone;
  return c->invalid ? kCaptureInvalidated : kCaptureActive;
}

// The streams go back to running what they are given.
void end(const std::shared_ptr<Capture>& c) {
  c->ended = true;
  for (const StreamRef& s : c->streams) {
    s->capture = nullptr;
    s->frontier.clear();
  }
  c->streams.clear();
  c->origin = nullptr;
  std::erase(captures(), c);
}

// True if every joined stream's work comes before what the origin has come to.
bool all_joined(const Capture& c) {
  std::unordered_set<const GraphNode*> reached;
  std::vector<GraphNode*> todo = c.origin->frontier;
  while (!todo.empty()) {
    GraphNode* node = todo.back();
    todo.pop_back();
    if (!reached.insert(node).second) continue;
    todo.insert(todo.end(), node->before.begin(), node->before.end());
  }
  return std::ranges::all_of(c.streams, [&](const StreamRef& s) {
    return std::ranges::all_of(s->frontier, [&](const GraphNode* n) { return reached.contains(n); });
  });
}

int begin(HipStream handle, int mode) {
  const StreamRef stream = find_stream(handle, "hipStreamBeginCapture");
  if (!stream) return hipErrorContextIsDestroyed;
  if (mode < kCaptureGlobal || mode > kCaptureRelaxed)
    return fail(hipErrorInvalidValue, "hipStreamBeginCapture: mode is %d, expected 0 to 2", mode);
  if (stream->is_null)
    return fail(hipErrorStreamCaptureUnsupported,
                "hipStreamBeginCapture: the null stream cannot be captured");
  if (const int e = device_fault(stream->device)) return e;
  std::lock_guard lock(queue_mutex());
  if (stream->capture)
    return fail(hipErrorIllegalState, "hipStreamBeginCapture: the stream is being captured already");
  static uint64_t next_id = 1;
  auto c = std::make_shared<Capture>();
  c->id = next_id++;
  c->mode = mode;
  c->thread = std::this_thread::get_id();
  c->origin = stream;
  c->graph = std::make_shared<Graph>();
  c->streams = {stream};
  captures().push_back(c);
  stream->capture = c;
  return hipSuccess;
}

int end_capture(HipStream handle, HipGraph* out) {
  const char* const function = "hipStreamEndCapture";
  if (!out) return fail(hipErrorInvalidValue, "%s: pGraph is null", function);
  *out = nullptr;
  const StreamRef stream = find_stream(handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  std::lock_guard lock(queue_mutex());
  const std::shared_ptr<Capture> c = stream->capture;
  if (!c) return fail(hipErrorIllegalState, "%s: the stream is not being captured", function);
  if (c->origin != stream)
    return invalidate(*c, hipErrorStreamCaptureUnmatched, function, "the capture began on another stream");
  if (c->mode != kCaptureRelaxed && c->thread != std::this_thread::get_id()) {
    return invalidate(*c, hipErrorStreamCaptureWrongThread, function,
                      "the capture began in another thread, and its mode is not relaxed");
  }
  const bool joined = all_joined(*c);
  end(c);
  if (c->invalid)
    return fail(hipErrorStreamCaptureInvalidated, "%s: a call has invalidated the capture", function);
  if (!joined) {
    return fail(hipErrorStreamCaptureUnjoined,
                "%s: another stream's captured work was not joined to this stream with an event", function);
  }
  *out = publish_graph(c->graph);
  return hipSuccess;
}

int capture_info(HipStream handle, const char* function, int* status, unsigned long long* id, HipGraph* graph,
                 const HipGraphNode** nodes, size_t* count) {
  if (!status) return fail(hipErrorInvalidValue, "%s: captureStatus is null", function);
  const StreamRef stream = find_stream(handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  std::lock_guard lock(queue_mutex());
  const Capture* c = stream->capture.get();
  if (stream->is_null) {
    if (const int e = check_legacy(*stream, function)) return e;
  }
  *status = status_of(c);
  if (id) *id = c ? c->id : 0;
  const bool active = *status == kCaptureActive;
  if (graph) *graph = active ? c->graph.get() : nullptr;
  if (nodes) *nodes = active ? stream->frontier.data() : nullptr;
  if (count) *count = active ? stream->frontier.size() : 0;
  return hipSuccess;
}

int update_dependencies(HipStream handle, HipGraphNode* nodes, size_t count, unsigned flags) {
  const char* const function = "hipStreamUpdateCaptureDependencies";
  const StreamRef stream = find_stream(handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  if (flags > 1) return fail(hipErrorInvalidValue, "%s: flags is %u, expected 0 or 1", function, flags);
  std::lock_guard lock(queue_mutex());
  if (status_of(stream->capture.get()) != kCaptureActive)
    return fail(hipErrorIllegalState, "%s: the stream is not being captured", function);
  if (const int e = check_nodes(nodes, count, stream->capture->graph.get(), function)) return e;
  if (flags == 1) stream->frontier.clear();
  for (size_t i = 0; i < count; ++i) {
    if (!std::ranges::count(stream->frontier, nodes[i])) stream->frontier.push_back(nodes[i]);
  }
  return hipSuccess;
}

}  // namespace

int invalidate(Capture& capture, int error, const char* function, const char* what) {
  capture.invalid = true;
  return fail(error, "%s: %s", function, what);
}

int capture_work(Stream& stream, Work work, const char* function) {
  Capture& c = *stream.capture;
  if (c.invalid)
    return fail(hipErrorStreamCaptureInvalidated, "%s: a call has invalidated the stream's capture",
                function);
  stream.frontier = {add_node(*c.graph, std::move(work), stream.frontier)};
  return hipSuccess;
}

int check_legacy(const Stream& stream, const char* function) {
  if (!stream.is_null) return hipSuccess;
  for (const std::shared_ptr<Capture>& c : captures()) {
    for (const StreamRef& s : c->streams) {
      if (s->device != stream.device || !s->is_blocking) continue;
      return invalidate(*c, hipErrorStreamCaptureImplicit, function,
                        "the null stream would have to wait for a stream that is being captured");
    }
  }
  return hipSuccess;
}

int join_capture(const StreamRef& stream, const std::shared_ptr<Capture>& capture,
                 const std::vector<GraphNode*>& nodes, const char* function) {
  if (capture->ended || stream->is_null) {
    if (!capture->ended) capture->invalid = true;
    return fail(hipErrorCapturedEvent, "%s: the event was recorded in a capture%s", function,
                capture->ended ? ", which has ended" : "");
  }
  if (stream->capture && stream->capture != capture) {
    stream->capture->invalid = true;
    return invalidate(*capture, hipErrorStreamCaptureMerge, function, "stream and event are of two captures");
  }
  if (capture->invalid)
    return fail(hipErrorStreamCaptureInvalidated, "%s: a call has invalidated the capture", function);
  if (!stream->capture) {
    stream->capture = capture;
    capture->streams.push_back(stream);
  }
  for (GraphNode* n : nodes) {
    if (!std::ranges::count(stream->frontier, n)) stream->frontier.push_back(n);
  }
  return hipSuccess;
}

int check_unsafe(const char* function) {
  std::lock_guard lock(queue_mutex());
  int error = hipSuccess;
  for (const std::shared_ptr<Capture>& c : captures()) {
    if (!forbids(*c)) continue;
    error = invalidate(*c, hipErrorStreamCaptureUnsupported, function,
                       "not permitted while a stream is being captured; the capture is invalid now");
  }
  return error;
}

int check_stream_waitable(Stream& stream, const char* function) {
  std::lock_guard lock(queue_mutex());
  if (stream.capture) {
    return invalidate(*stream.capture, hipErrorStreamCaptureUnsupported, function,
                      "the stream is being captured; the capture is invalid now");
  }
  return check_legacy(stream, function);
}

int end_captures(int code, const char* function) {
  std::lock_guard lock(queue_mutex());
  int error = hipSuccess;
  for (const std::shared_ptr<Capture>& c : captures()) {
    error =
        invalidate(*c, code, function,
                   "not permitted while any stream of the process is being captured, in whatever mode and "
                   "thread; its capture is invalid now");
  }
  return error;
}

bool is_capturing(Stream& stream) { return capture_of(stream) != nullptr; }

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipStreamBeginCapture(HipStream stream, int mode) {
  return guarded([&] { return begin(stream, mode); });
}
HIP_API int hipStreamEndCapture(HipStream stream, HipGraph* graph) {
  return guarded([&] { return end_capture(stream, graph); });
}

HIP_API int hipStreamIsCapturing(HipStream stream, int* status) {
  return guarded([&] {
    return capture_info(stream, "hipStreamIsCapturing", status, nullptr, nullptr, nullptr, nullptr);
  });
}
HIP_API int hipStreamGetCaptureInfo(HipStream stream, int* status, unsigned long long* id) {
  return guarded(
      [&] { return capture_info(stream, "hipStreamGetCaptureInfo", status, id, nullptr, nullptr, nullptr); });
}
HIP_API int hipStreamGetCaptureInfo_v2(HipStream stream, int* status, unsigned long long* id, HipGraph* graph,
                                       const HipGraphNode** nodes, size_t* count) {
  return guarded(
      [&] { return capture_info(stream, "hipStreamGetCaptureInfo_v2", status, id, graph, nodes, count); });
}
HIP_API int hipStreamUpdateCaptureDependencies(HipStream stream, HipGraphNode* nodes, size_t count,
                                               unsigned flags) {
  return guarded([&] { return update_dependencies(stream, nodes, count, flags); });
}

HIP_API int hipThreadExchangeStreamCaptureMode(int* mode) {
  return answered([&]() -> int {
    if (!mode || *mode < kCaptureGlobal || *mode > kCaptureRelaxed)
      return fail(hipErrorInvalidValue, "hipThreadExchangeStreamCaptureMode: mode is null or not 0 to 2");
    std::swap(thread_mode, *mode);
    return hipSuccess;
  });
}

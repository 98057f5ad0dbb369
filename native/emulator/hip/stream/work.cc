// SPDX-License-Identifier: MIT OR Apache-2.0
// Queueing work, and doing it.
#include "hip/stream/work.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/memory.h"
#include "core/shadow.h"
#include "hip/graph/graph.h"
#include "hip/graph/memory_nodes.h"

namespace fmha::emu {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

// The range was memory of this runtime when the work was queued: it must be now.
bool still_there(int device, const char* what, const void* p, size_t bytes) {
  Allocation a;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  if (memory_find(address, &a) && bytes <= a.bytes - (address - a.base)) return true;
  char text[128];
  std::snprintf(text, sizeof text, "%s: %p, %zu bytes were freed before it ran; now that is ", what, p,
                bytes);
  tell_fault(device, hipErrorIllegalAddress, text + memory_describe_nearest(address));
  return false;
}

void copy_rows(const CopyWork& c) {
  const uint8_t* staged = c.staged ? c.staged->data() : nullptr;
  for (size_t z = 0; z < c.depth; ++z) {
    for (size_t y = 0; y < c.height; ++y) {
      char* dst = static_cast<char*>(c.dst) + z * c.dst_slice + y * c.dst_pitch;
      const char* src = static_cast<const char*>(c.src) + z * c.src_slice + y * c.src_pitch;
      if (staged) {
        std::memcpy(dst, staged, c.width);
        unwritten_note_write(dst, c.width);
        staged += c.width;
      } else {
        std::memmove(dst, src, c.width);
        unwritten_note_copy(dst, src, c.width);
      }
    }
  }
}

bool execute_copy(const CopyWork& c, int device) {
  std::shared_lock gate(launch_gate());
  if (c.dst_known && !still_there(device, "copy: dst", c.dst, c.dst_bytes())) return false;
  if (c.src_known && !still_there(device, "copy: src", c.src, c.src_bytes())) return false;
  copy_rows(c);
  return true;
}

template <class T>
void fill_rows(const FillWork& f) {
  for (size_t y = 0; y < f.height; ++y) {
    char* row = static_cast<char*>(f.dst) + y * f.pitch;
    std::fill_n(reinterpret_cast<T*>(row), f.width, static_cast<T>(f.value));
    unwritten_note_write(row, f.width * sizeof(T));
  }
}

bool execute_fill(const FillWork& f, int device) {
  if (!f.width || !f.height) return true;
  std::shared_lock gate(launch_gate());
  if (!still_there(device, "fill: dst", f.dst, f.bytes())) return false;
  if (f.element_bytes == 1) fill_rows<uint8_t>(f);
  if (f.element_bytes == 2) fill_rows<uint16_t>(f);
  if (f.element_bytes == 4) fill_rows<uint32_t>(f);
  if (f.element_bytes == 8) fill_rows<uint64_t>(f);
  return true;
}

Load load_of(const Work& work) {
  const auto* const copy = std::get_if<CopyWork>(&work);
  return {copy && copy->staged ? copy->staged->size() : 0, runs_program(work)};
}

}  // namespace

bool runs_program(const Work& work) {
  if (std::holds_alternative<HostWork>(work) || std::holds_alternative<WaitWork>(work)) return true;
  const auto* const graph = std::get_if<GraphWork>(&work);
  return graph && std::ranges::any_of(graph->program->steps, runs_program);
}

bool execute(const Work& work, int device) {
  return std::visit(Overloaded{
                        [](const KernelWork& w) { return execute_kernel(w); },
                        [&](const CopyWork& w) { return execute_copy(w, device); },
                        [&](const FillWork& w) { return execute_fill(w, device); },
                        [](const HostWork& w) { return w.fn(w.user_data), true; },
                        [](const EmptyWork&) { return true; },
                        [](const AllocWork& w) { return execute_alloc(*w.memory); },
                        [](const FreeWork& w) { return execute_free(*w.memory); },
                        [](const auto&) { return true; },
                    },
                    work);
}

int enqueue(const char* function, const StreamRef& stream, Work work, OpRef* op) {
  wait_for_room(stream);
  std::lock_guard lock(queue_mutex());
  if (stream->capture) return capture_work(*stream, std::move(work), function);
  if (const int e = check_legacy(*stream, function)) return e;
  const Load load = load_of(work);
  OpBody body = [work = std::move(work), index = stream->device](bool alive) {
    if (alive || std::holds_alternative<HostWork>(work)) execute(work, index);
  };
  OpRef queued = submit(stream, std::move(body), {}, load);
  if (op) *op = std::move(queued);
  return hipSuccess;
}

int enqueue(const char* function, HipStream handle, Work work) {
  const StreamRef stream = find_stream(handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  if (!std::holds_alternative<HostWork>(work)) {
    if (const int e = device_fault(stream->device)) return e;
  }
  return enqueue(function, stream, std::move(work));
}

}  // namespace fmha::emu

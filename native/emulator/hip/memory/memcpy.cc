// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies and fills.
#include <cstring>

#include "core/memory.h"
#include "hip/graph/graph.h"
#include "hip/graph/memory_nodes.h"

namespace fmha::emu {
namespace {

// The memory that one end of a copy must be in.
enum class Side { kHost, kDevice, kAny };

// A range the copy touches: inside one allocation, or, for the host, outside all.
int check_range(const char* function, const char* name, const void* p, size_t bytes, Side side) {
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  if (!p) return fail(hipErrorInvalidValue, "%s: %s is null", function, name);
  Allocation a;
  if (find_memory(address, &a)) {
    if (bytes <= a.bytes - (address - a.base)) return hipSuccess;
    return fail(hipErrorInvalidValue, "%s: %s = %p, %zu bytes leave the allocation at 0x%llx (%llu bytes)",
                function, name, p, bytes, static_cast<unsigned long long>(a.base),
                static_cast<unsigned long long>(a.bytes));
  }
  if (side == Side::kDevice) {
    return fail(hipErrorInvalidValue, "%s: %s = %p is not device memory; it is %s", function, name, p,
                memory_describe_nearest(address).c_str());
  }
  if (memory_overlaps(address, bytes)) {
    return fail(hipErrorInvalidValue, "%s: %s = %p, %zu bytes run into an allocation", function, name, p,
                bytes);
  }
  return hipSuccess;
}

int sides(const char* function, int kind, Side* dst, Side* src) {
  switch (kind) {
    case hipMemcpyHostToHost:
      *dst = *src = Side::kHost;
      return hipSuccess;
    case hipMemcpyHostToDevice:
      *dst = Side::kDevice, *src = Side::kHost;
      return hipSuccess;
    case hipMemcpyDeviceToHost:
      *dst = Side::kHost, *src = Side::kDevice;
      return hipSuccess;
    case hipMemcpyDeviceToDevice:
    case hipMemcpyDeviceToDeviceNoCU:
      *dst = *src = Side::kDevice;
      return hipSuccess;
    case hipMemcpyDefault:
      *dst = *src = Side::kAny;
      return hipSuccess;
    default:
      return fail(hipErrorInvalidMemcpyDirection, "%s: kind is %d", function, kind);
  }
}

bool is_pageable(const void* p) {
  Allocation a;
  return !find_memory(reinterpret_cast<uint64_t>(p), &a);
}

// True if the host may look at it without asking the runtime.
bool is_host_visible(const void* p) {
  Allocation a;
  return !find_memory(reinterpret_cast<uint64_t>(p), &a) || a.kind == MemoryKind::kHost ||
         a.kind == MemoryKind::kRegistered || a.kind == MemoryKind::kManaged;
}

std::shared_ptr<std::vector<uint8_t>> stage(const CopyWork& c) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(c.width * c.height * c.depth);
  uint8_t* to = bytes->data();
  for (size_t z = 0; z < c.depth; ++z) {
    for (size_t y = 0; y < c.height; ++y, to += c.width)
      std::memcpy(to, static_cast<const char*>(c.src) + z * c.src_slice + y * c.src_pitch, c.width);
  }
  return bytes;
}

enum class Host { kWaits, kGoesOn };

// A copy or fill that the host waits for, in a process that captures.
int check_captures(Stream& stream, HipStream handle, const char* function) {
  if (!handle) return end_captures(hipErrorStreamCaptureImplicit, function);
  if (const int e = check_unsafe(function)) return e;
  return check_stream_waitable(stream, function);
}

int check_peers(int dst_device, int src_device) {
  for (const int d : {dst_device, src_device}) {
    if (d < 0 || d >= device_count())
      return fail(hipErrorInvalidDevice, "hipMemcpyPeer: there is no device %d", d);
  }
  return hipSuccess;
}

// As HIP documents it: the async forms return before the copy has run, but for one into pageable memory; of a
// pageable source they have taken a copy. The others wait, but for copies within devices.
int copy(const char* function, CopyWork c, HipStream handle, Host host) {
  return guarded([&] {
    bool empty = false;
    OpRef op;
    const StreamRef stream = find_stream(handle, function);
    if (!stream) return static_cast<int>(hipErrorContextIsDestroyed);
    if (host == Host::kWaits) {
      if (const int e = check_captures(*stream, handle, function)) return e;
    }
    if (const int e = device_fault(stream->device)) return e;
    if (const int e = check_copy(function, &c, &empty)) return e;
    if (empty) return static_cast<int>(hipSuccess);
    const bool to_host = is_host_visible(c.dst), from_host = is_host_visible(c.src);
    const bool waits = host == Host::kWaits ? to_host || from_host : !c.dst_known;
    if (!waits && !c.src_known && !is_capturing(*stream)) c.staged = stage(c);
    if (const int e = enqueue(function, stream, std::move(c), &op)) return e;
    if (!waits || !op) return static_cast<int>(hipSuccess);
    if (const int e = wait_for({op}, function)) return e;
    return outcome_of(*stream, function);
  });
}

CopyWork linear(void* dst, const void* src, size_t bytes, int kind) {
  CopyWork c;
  c.dst = dst;
  c.src = src;
  c.width = bytes;
  c.kind = kind;
  return c;
}
CopyWork rows(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
              int kind) {
  CopyWork c = linear(dst, src, width, kind);
  c.dst_pitch = dst_pitch;
  c.src_pitch = src_pitch;
  c.height = height;
  return c;
}

int copy(const char* function, void* dst, const void* src, size_t bytes, int kind) {
  return copy(function, linear(dst, src, bytes, kind), nullptr, Host::kWaits);
}
int copy_async(const char* function, void* dst, const void* src, size_t bytes, int kind, HipStream stream) {
  return copy(function, linear(dst, src, bytes, kind), stream, Host::kGoesOn);
}

// Rows of `width` elements of `value`. The host waits only for fills of memory it can see.
template <class T>
int fill(const char* function, void* dst, size_t pitch_bytes, T value, size_t width, size_t height,
         HipStream handle, Host host) {
  return guarded([&] {
    bool empty = false;
    OpRef op;
    const FillWork f{dst, pitch_bytes, static_cast<uint32_t>(value), sizeof(T), width, height};
    const StreamRef stream = find_stream(handle, function);
    if (!stream) return static_cast<int>(hipErrorContextIsDestroyed);
    if (host == Host::kWaits) {
      if (const int e = check_captures(*stream, handle, function)) return e;
    }
    if (const int e = device_fault(stream->device)) return e;
    if (const int e = check_fill(function, f, &empty)) return e;
    if (empty) return static_cast<int>(hipSuccess);
    if (const int e = enqueue(function, stream, f, &op)) return e;
    if (host == Host::kGoesOn || !op || !is_host_visible(dst)) return static_cast<int>(hipSuccess);
    if (const int e = wait_for({op}, function)) return e;
    return outcome_of(*stream, function);
  });
}

// One end of a HipMemcpy2D, as an address.
void* end_of(int type, void* device_pointer, const void* host_pointer) {
  return type == hipMemoryTypeHost ? const_cast<void*>(host_pointer) : device_pointer;
}

int copy_params(const char* function, const HipMemcpy2D* p, HipStream stream, Host host) {
  if (!p) return fail(hipErrorInvalidValue, "%s: pCopy is null", function);
  if (p->src_array || p->dst_array)
    return fail(hipErrorNotSupported, "%s: arrays are not supported", function);
  auto* dst = static_cast<char*>(end_of(p->dst_type, p->dst_device, p->dst_host));
  const auto* src = static_cast<const char*>(end_of(p->src_type, p->src_device, p->src_host));
  if (!dst || !src)
    return fail(hipErrorInvalidValue, "%s: the pointer of the source's or destination's type is null",
                function);
  return copy(function,
              rows(dst + p->dst_y * p->dst_pitch + p->dst_x_bytes, p->dst_pitch,
                   src + p->src_y * p->src_pitch + p->src_x_bytes, p->src_pitch, p->width_bytes, p->height,
                   hipMemcpyDefault),
              stream, host);
}

// A box of bytes within another, at one end of a copy: where it starts, and how far its rows and slices are
// apart.
struct Box {
  char* base;
  size_t x, y, z, pitch, height;
};
// The product, or more than there is of anything.
size_t product(size_t a, size_t b) {
  size_t all = 0;
  return __builtin_mul_overflow(a, b, &all) ? ~size_t{0} : all;
}
// Where the box starts; null, which is no memory, if that is beyond all addresses.
char* start_of(const Box& b) {
  size_t slices = 0, in_slice = 0, all = 0;
  const bool far = __builtin_mul_overflow(b.z, product(b.pitch, b.height), &slices) ||
                   __builtin_mul_overflow(b.y, b.pitch, &in_slice) ||
                   __builtin_add_overflow(slices, in_slice, &all) || __builtin_add_overflow(all, b.x, &all);
  return far ? nullptr : b.base + all;
}
CopyWork boxes(const Box& dst, const Box& src, size_t width, size_t height, size_t depth, int kind) {
  CopyWork c = rows(start_of(dst), dst.pitch, start_of(src), src.pitch, width, height, kind);
  c.depth = depth;
  c.dst_slice = product(dst.pitch, dst.height);
  c.src_slice = product(src.pitch, src.height);
  return c;
}

int boxes(const char* function, const HipMemcpy3D* p, CopyWork* out) {
  if (!p) return fail(hipErrorInvalidValue, "%s: the copy's parameters are null", function);
  if (p->src_array || p->dst_array)
    return fail(hipErrorNotSupported, "%s: arrays are not supported", function);
  if (!p->src.ptr || !p->dst.ptr) return fail(hipErrorInvalidValue, "%s: srcPtr or dstPtr is null", function);
  const auto box = [](const HipPitchedPtr& end, const HipPos& pos) {
    return Box{static_cast<char*>(end.ptr), pos.x, pos.y, pos.z, end.pitch, end.ysize};
  };
  *out =
      boxes(box(p->dst, p->dst_pos), box(p->src, p->src_pos), p->width_bytes, p->height, p->depth, p->kind);
  return hipSuccess;
}

int boxes(const char* function, const HipDrvMemcpy3D* p, CopyWork* out) {
  if (!p) return fail(hipErrorInvalidValue, "%s: the copy's parameters are null", function);
  if (p->src.array || p->dst.array)
    return fail(hipErrorNotSupported, "%s: arrays are not supported", function);
  const auto box = [](const HipDrvMemcpy3D::End& end) {
    void* base = end_of(end.type, end.device, end.host);
    return Box{static_cast<char*>(base), end.x_bytes, end.y, end.z, end.pitch, end.height};
  };
  const Box dst = box(p->dst), src = box(p->src);
  if (!dst.base || !src.base)
    return fail(hipErrorInvalidValue, "%s: the pointer of the source's or destination's type is null",
                function);
  *out = boxes(dst, src, p->width_bytes, p->height, p->depth, hipMemcpyDefault);
  return hipSuccess;
}

template <class Params>
int copy_boxes(const char* function, const Params* p, HipStream stream, Host host) {
  CopyWork c;
  if (const int e = boxes(function, p, &c)) return e;
  return copy(function, std::move(c), stream, host);
}

// False: rows and slices reach further than an address can.
bool fits(size_t slice, size_t depth, size_t pitch, size_t height, size_t width) {
  size_t slices = 0, in_slice = 0, all = 0;
  return !__builtin_mul_overflow(slice, depth - 1, &slices) &&
         !__builtin_mul_overflow(pitch, height - 1, &in_slice) &&
         !__builtin_add_overflow(slices, in_slice, &all) && !__builtin_add_overflow(all, width, &all);
}

}  // namespace

int check_copy(const char* function, CopyWork* c, bool* empty) {
  Side dst_side{}, src_side{};  // set by sides(), which gcc cannot see
  if (const int e = sides(function, c->kind, &dst_side, &src_side)) return e;
  *empty = !c->width || !c->height || !c->depth;
  if (*empty) return hipSuccess;
  if (c->height > 1 && (c->dst_pitch < c->width || c->src_pitch < c->width)) {
    return fail(hipErrorInvalidPitchValue, "%s: pitches are %zu and %zu, width is %zu", function,
                c->dst_pitch, c->src_pitch, c->width);
  }
  if (!fits(c->dst_slice, c->depth, c->dst_pitch, c->height, c->width) ||
      !fits(c->src_slice, c->depth, c->src_pitch, c->height, c->width)) {
    return fail(hipErrorInvalidValue, "%s: %zu x %zu x %zu bytes, pitches %zu and %zu: beyond all addresses",
                function, c->width, c->height, c->depth, c->dst_pitch, c->src_pitch);
  }
  if (const int e = check_range(function, "dst", c->dst, c->dst_bytes(), dst_side)) return e;
  if (const int e = check_range(function, "src", c->src, c->src_bytes(), src_side)) return e;
  c->dst_known = !is_pageable(c->dst);
  c->src_known = !is_pageable(c->src);
  return hipSuccess;
}

int check_fill(const char* function, const FillWork& f, bool* empty) {
  *empty = !f.width || !f.height;
  if (*empty) return hipSuccess;
  if (f.width > ~size_t{0} / f.element_bytes)
    return fail(hipErrorInvalidValue, "%s: count is %zu", function, f.width);
  if (f.height > 1 && f.pitch < f.width * f.element_bytes) {
    return fail(hipErrorInvalidPitchValue, "%s: pitch is %zu, a row has %zu bytes", function, f.pitch,
                f.width * f.element_bytes);
  }
  if (!fits(0, 1, f.pitch, f.height, f.width * f.element_bytes))
    return fail(hipErrorInvalidValue, "%s: %zu rows %zu bytes apart: beyond all addresses", function,
                f.height, f.pitch);
  if (reinterpret_cast<uint64_t>(f.dst) % f.element_bytes) {
    return fail(hipErrorInvalidValue, "%s: dst = %p is not a multiple of %u", function, f.dst,
                f.element_bytes);
  }
  return check_range(function, "dst", f.dst, f.bytes(), Side::kDevice);
}

int copy_work_of(const HipMemcpy3D* p, const char* function, CopyWork* out) {
  if (const int e = boxes(function, p, out)) return e;
  bool empty = false;
  return check_copy(function, out, &empty);
}
int copy_work_of(const HipDrvMemcpy3D* p, const char* function, CopyWork* out) {
  if (const int e = boxes(function, p, out)) return e;
  bool empty = false;
  return check_copy(function, out, &empty);
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipMemcpy(void* dst, const void* src, size_t bytes, int kind) {
  return copy("hipMemcpy", dst, src, bytes, kind);
}
HIP_API int hipMemcpy_spt(void* dst, const void* src, size_t bytes, int kind) {
  return copy("hipMemcpy_spt", linear(dst, src, bytes, kind), kPerThread, Host::kWaits);
}
HIP_API int hipMemcpyWithStream(void* dst, const void* src, size_t bytes, int kind, HipStream stream) {
  return copy("hipMemcpyWithStream", linear(dst, src, bytes, kind), stream, Host::kWaits);
}
HIP_API int hipMemcpyAsync(void* dst, const void* src, size_t bytes, int kind, HipStream stream) {
  return copy_async("hipMemcpyAsync", dst, src, bytes, kind, stream);
}
HIP_API int hipMemcpyAsync_spt(void* dst, const void* src, size_t bytes, int kind, HipStream stream) {
  return copy_async("hipMemcpyAsync_spt", dst, src, bytes, kind, stream ? stream : kPerThread);
}
HIP_API int hipMemcpyHtoD(void* dst, const void* src, size_t bytes) {
  return copy("hipMemcpyHtoD", dst, src, bytes, hipMemcpyHostToDevice);
}
HIP_API int hipMemcpyDtoH(void* dst, void* src, size_t bytes) {
  return copy("hipMemcpyDtoH", dst, src, bytes, hipMemcpyDeviceToHost);
}
HIP_API int hipMemcpyDtoD(void* dst, void* src, size_t bytes) {
  return copy("hipMemcpyDtoD", dst, src, bytes, hipMemcpyDeviceToDevice);
}
HIP_API int hipMemcpyHtoDAsync(void* dst, const void* src, size_t bytes, HipStream stream) {
  return copy_async("hipMemcpyHtoDAsync", dst, src, bytes, hipMemcpyHostToDevice, stream);
}
HIP_API int hipMemcpyDtoHAsync(void* dst, void* src, size_t bytes, HipStream stream) {
  return copy_async("hipMemcpyDtoHAsync", dst, src, bytes, hipMemcpyDeviceToHost, stream);
}
HIP_API int hipMemcpyDtoDAsync(void* dst, void* src, size_t bytes, HipStream stream) {
  return copy_async("hipMemcpyDtoDAsync", dst, src, bytes, hipMemcpyDeviceToDevice, stream);
}
HIP_API int hipMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t bytes,
                               HipStream stream) {
  if (const int e = check_peers(dst_device, src_device)) return e;
  return copy_async("hipMemcpyPeerAsync", dst, src, bytes, hipMemcpyDeviceToDevice, stream);
}
HIP_API int hipMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t bytes) {
  if (const int e = check_peers(dst_device, src_device)) return e;
  return copy("hipMemcpyPeer", dst, src, bytes, hipMemcpyDeviceToDevice);
}
HIP_API int hipMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                             size_t height, int kind, HipStream stream) {
  return copy("hipMemcpy2DAsync", rows(dst, dst_pitch, src, src_pitch, width, height, kind), stream,
              Host::kGoesOn);
}
HIP_API int hipMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                        size_t height, int kind) {
  return copy("hipMemcpy2D", rows(dst, dst_pitch, src, src_pitch, width, height, kind), nullptr,
              Host::kWaits);
}
HIP_API int hipMemcpyParam2D(const HipMemcpy2D* p) {
  return copy_params("hipMemcpyParam2D", p, nullptr, Host::kWaits);
}
HIP_API int hipMemcpyParam2DAsync(const HipMemcpy2D* p, HipStream stream) {
  return copy_params("hipMemcpyParam2DAsync", p, stream, Host::kGoesOn);
}

HIP_API int hipMemcpy3D(const HipMemcpy3D* p) { return copy_boxes("hipMemcpy3D", p, nullptr, Host::kWaits); }
HIP_API int hipMemcpy3D_spt(const HipMemcpy3D* p) {
  return copy_boxes("hipMemcpy3D_spt", p, kPerThread, Host::kWaits);
}
HIP_API int hipMemcpy3DAsync(const HipMemcpy3D* p, HipStream stream) {
  return copy_boxes("hipMemcpy3DAsync", p, stream, Host::kGoesOn);
}
HIP_API int hipMemcpy3DAsync_spt(const HipMemcpy3D* p, HipStream stream) {
  return copy_boxes("hipMemcpy3DAsync_spt", p, stream ? stream : kPerThread, Host::kGoesOn);
}
HIP_API int hipDrvMemcpy3D(const HipDrvMemcpy3D* p) {
  return copy_boxes("hipDrvMemcpy3D", p, nullptr, Host::kWaits);
}
HIP_API int hipDrvMemcpy3DAsync(const HipDrvMemcpy3D* p, HipStream stream) {
  return copy_boxes("hipDrvMemcpy3DAsync", p, stream, Host::kGoesOn);
}

HIP_API int hipMemset(void* dst, int value, size_t bytes) {
  return fill("hipMemset", dst, 0, static_cast<uint8_t>(value), bytes, 1, nullptr, Host::kWaits);
}
HIP_API int hipMemset_spt(void* dst, int value, size_t bytes) {
  return fill("hipMemset_spt", dst, 0, static_cast<uint8_t>(value), bytes, 1, kPerThread, Host::kWaits);
}
HIP_API int hipMemsetAsync(void* dst, int value, size_t bytes, HipStream stream) {
  return fill("hipMemsetAsync", dst, 0, static_cast<uint8_t>(value), bytes, 1, stream, Host::kGoesOn);
}
HIP_API int hipMemsetAsync_spt(void* dst, int value, size_t bytes, HipStream stream) {
  return hipMemsetAsync(dst, value, bytes, stream ? stream : kPerThread);
}
HIP_API int hipMemsetD8(void* dst, unsigned char value, size_t count) {
  return fill("hipMemsetD8", dst, 0, static_cast<uint8_t>(value), count, 1, nullptr, Host::kWaits);
}
HIP_API int hipMemsetD8Async(void* dst, unsigned char value, size_t count, HipStream stream) {
  return fill("hipMemsetD8Async", dst, 0, static_cast<uint8_t>(value), count, 1, stream, Host::kGoesOn);
}
HIP_API int hipMemsetD16(void* dst, unsigned short value, size_t count) {
  return fill("hipMemsetD16", dst, 0, static_cast<uint16_t>(value), count, 1, nullptr, Host::kWaits);
}
HIP_API int hipMemsetD16Async(void* dst, unsigned short value, size_t count, HipStream stream) {
  return fill("hipMemsetD16Async", dst, 0, static_cast<uint16_t>(value), count, 1, stream, Host::kGoesOn);
}
HIP_API int hipMemsetD32(void* dst, int value, size_t count) {
  return fill("hipMemsetD32", dst, 0, static_cast<uint32_t>(value), count, 1, nullptr, Host::kWaits);
}
HIP_API int hipMemsetD32Async(void* dst, int value, size_t count, HipStream stream) {
  return fill("hipMemsetD32Async", dst, 0, static_cast<uint32_t>(value), count, 1, stream, Host::kGoesOn);
}
HIP_API int hipMemset2DAsync(void* dst, size_t pitch, int value, size_t width, size_t height,
                             HipStream stream) {
  return fill("hipMemset2DAsync", dst, pitch, static_cast<uint8_t>(value), width, height, stream,
              Host::kGoesOn);
}
HIP_API int hipMemset2D(void* dst, size_t pitch, int value, size_t width, size_t height) {
  return fill("hipMemset2D", dst, pitch, static_cast<uint8_t>(value), width, height, nullptr, Host::kWaits);
}

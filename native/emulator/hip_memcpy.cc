// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies and fills. Streams run in order on the calling thread, so the async forms have finished when they
// return, which HIP allows.
#include <algorithm>
#include <cstring>

#include "hip_state.h"
#include "memory.h"
#include "shadow.h"

namespace fmha::emu {
namespace {

// What one end of a copy must be.
enum class Side { kHost, kDevice, kAny };

// A range the copy touches: inside one allocation, or, for the host, outside all.
int check_range(const char* function, const char* name, const void* p, size_t bytes, Side side) {
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  if (!p) return fail(hipErrorInvalidValue, "%s: %s is null", function, name);
  Allocation a;
  if (memory_find(address, &a)) {
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

// A copy of rows; one row is a plain copy.
struct Copy {
  void* dst;
  size_t dst_pitch;
  const void* src;
  size_t src_pitch;
  size_t width, height;
};

int copy(const char* function, const Copy& c, int kind, HipStream stream) {
  return guarded([&] {
    Side dst_side{}, src_side{};  // set by sides(), which gcc cannot see
    if (const int e = check_stream(stream, function)) return e;
    if (const int e = sides(function, kind, &dst_side, &src_side)) return e;
    if (!c.width || !c.height) return static_cast<int>(hipSuccess);
    if (c.height > 1 && (c.dst_pitch < c.width || c.src_pitch < c.width)) {
      return fail(hipErrorInvalidPitchValue, "%s: pitches are %zu and %zu, width is %zu", function,
                  c.dst_pitch, c.src_pitch, c.width);
    }
    const size_t dst_bytes = c.dst_pitch * (c.height - 1) + c.width,
                 src_bytes = c.src_pitch * (c.height - 1) + c.width;
    if (const int e = check_range(function, "dst", c.dst, dst_bytes, dst_side)) return e;
    if (const int e = check_range(function, "src", c.src, src_bytes, src_side)) return e;
    for (size_t y = 0; y < c.height; ++y) {
      std::memmove(static_cast<char*>(c.dst) + y * c.dst_pitch,
                   static_cast<const char*>(c.src) + y * c.src_pitch, c.width);
      unwritten_note_copy(static_cast<char*>(c.dst) + y * c.dst_pitch,
                          static_cast<const char*>(c.src) + y * c.src_pitch, c.width);
    }
    return static_cast<int>(hipSuccess);
  });
}

int copy(const char* function, void* dst, const void* src, size_t bytes, int kind, HipStream stream) {
  return copy(function, {dst, 0, src, 0, bytes, 1}, kind, stream);
}

// Rows of `width` elements of `value`.
template <class T>
int fill(const char* function, void* dst, size_t pitch_bytes, T value, size_t width, size_t height,
         HipStream stream) {
  return guarded([&] {
    if (const int e = check_stream(stream, function)) return e;
    if (!width || !height) return static_cast<int>(hipSuccess);
    if (width > ~size_t{0} / sizeof(T))
      return fail(hipErrorInvalidValue, "%s: count is %zu", function, width);
    if (height > 1 && pitch_bytes < width * sizeof(T)) {
      return fail(hipErrorInvalidPitchValue, "%s: pitch is %zu, a row has %zu bytes", function, pitch_bytes,
                  width * sizeof(T));
    }
    const size_t bytes = pitch_bytes * (height - 1) + width * sizeof(T);
    if (reinterpret_cast<uint64_t>(dst) % sizeof(T)) {
      return fail(hipErrorInvalidValue, "%s: dst = %p is not a multiple of %zu", function, dst, sizeof(T));
    }
    if (const int e = check_range(function, "dst", dst, bytes, Side::kDevice)) return e;
    for (size_t y = 0; y < height; ++y) {
      std::fill_n(reinterpret_cast<T*>(static_cast<char*>(dst) + y * pitch_bytes), width, value);
      unwritten_note_write(static_cast<char*>(dst) + y * pitch_bytes, width * sizeof(T));
    }
    return static_cast<int>(hipSuccess);
  });
}

// One end of a HipMemcpy2D, as an address.
void* end_of(int type, void* device_pointer, const void* host_pointer) {
  return type == hipMemoryTypeHost ? const_cast<void*>(host_pointer) : device_pointer;
}

int copy_params(const char* function, const HipMemcpy2D* p, HipStream stream) {
  if (!p) return fail(hipErrorInvalidValue, "%s: pCopy is null", function);
  if (p->src_array || p->dst_array)
    return fail(hipErrorNotSupported, "%s: arrays are not supported", function);
  auto* dst = static_cast<char*>(end_of(p->dst_type, p->dst_device, p->dst_host));
  const auto* src = static_cast<const char*>(end_of(p->src_type, p->src_device, p->src_host));
  if (!dst || !src)
    return fail(hipErrorInvalidValue, "%s: the pointer of the source's or destination's type is null",
                function);
  const Copy c{dst + p->dst_y * p->dst_pitch + p->dst_x_bytes,
               p->dst_pitch,
               src + p->src_y * p->src_pitch + p->src_x_bytes,
               p->src_pitch,
               p->width_bytes,
               p->height};
  return copy(function, c, hipMemcpyDefault, stream);
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipMemcpy(void* dst, const void* src, size_t bytes, int kind) {
  return copy("hipMemcpy", dst, src, bytes, kind, nullptr);
}
HIP_API int hipMemcpy_spt(void* dst, const void* src, size_t bytes, int kind) {
  return copy("hipMemcpy_spt", dst, src, bytes, kind, nullptr);
}
HIP_API int hipMemcpyWithStream(void* dst, const void* src, size_t bytes, int kind, HipStream stream) {
  return copy("hipMemcpyWithStream", dst, src, bytes, kind, stream);
}
HIP_API int hipMemcpyAsync(void* dst, const void* src, size_t bytes, int kind, HipStream stream) {
  return copy("hipMemcpyAsync", dst, src, bytes, kind, stream);
}
HIP_API int hipMemcpyAsync_spt(void* dst, const void* src, size_t bytes, int kind, HipStream stream) {
  return copy("hipMemcpyAsync_spt", dst, src, bytes, kind, stream);
}
HIP_API int hipMemcpyHtoD(void* dst, const void* src, size_t bytes) {
  return copy("hipMemcpyHtoD", dst, src, bytes, hipMemcpyHostToDevice, nullptr);
}
HIP_API int hipMemcpyDtoH(void* dst, void* src, size_t bytes) {
  return copy("hipMemcpyDtoH", dst, src, bytes, hipMemcpyDeviceToHost, nullptr);
}
HIP_API int hipMemcpyDtoD(void* dst, void* src, size_t bytes) {
  return copy("hipMemcpyDtoD", dst, src, bytes, hipMemcpyDeviceToDevice, nullptr);
}
HIP_API int hipMemcpyHtoDAsync(void* dst, const void* src, size_t bytes, HipStream stream) {
  return copy("hipMemcpyHtoDAsync", dst, src, bytes, hipMemcpyHostToDevice, stream);
}
HIP_API int hipMemcpyDtoHAsync(void* dst, void* src, size_t bytes, HipStream stream) {
  return copy("hipMemcpyDtoHAsync", dst, src, bytes, hipMemcpyDeviceToHost, stream);
}
HIP_API int hipMemcpyDtoDAsync(void* dst, void* src, size_t bytes, HipStream stream) {
  return copy("hipMemcpyDtoDAsync", dst, src, bytes, hipMemcpyDeviceToDevice, stream);
}
HIP_API int hipMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t bytes,
                               HipStream stream) {
  for (const int d : {dst_device, src_device}) {
    if (d < 0 || d >= device_count())
      return fail(hipErrorInvalidDevice, "hipMemcpyPeer: there is no device %d", d);
  }
  return copy("hipMemcpyPeer", dst, src, bytes, hipMemcpyDeviceToDevice, stream);
}
HIP_API int hipMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t bytes) {
  return hipMemcpyPeerAsync(dst, dst_device, src, src_device, bytes, nullptr);
}
HIP_API int hipMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                             size_t height, int kind, HipStream stream) {
  return copy("hipMemcpy2DAsync", {dst, dst_pitch, src, src_pitch, width, height}, kind, stream);
}
HIP_API int hipMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                        size_t height, int kind) {
  return copy("hipMemcpy2D", {dst, dst_pitch, src, src_pitch, width, height}, kind, nullptr);
}
HIP_API int hipMemcpyParam2D(const HipMemcpy2D* p) { return copy_params("hipMemcpyParam2D", p, nullptr); }
HIP_API int hipMemcpyParam2DAsync(const HipMemcpy2D* p, HipStream stream) {
  return copy_params("hipMemcpyParam2DAsync", p, stream);
}

HIP_API int hipMemset(void* dst, int value, size_t bytes) {
  return fill("hipMemset", dst, 0, static_cast<uint8_t>(value), bytes, 1, nullptr);
}
HIP_API int hipMemset_spt(void* dst, int value, size_t bytes) { return hipMemset(dst, value, bytes); }
HIP_API int hipMemsetAsync(void* dst, int value, size_t bytes, HipStream stream) {
  return fill("hipMemsetAsync", dst, 0, static_cast<uint8_t>(value), bytes, 1, stream);
}
HIP_API int hipMemsetAsync_spt(void* dst, int value, size_t bytes, HipStream stream) {
  return hipMemsetAsync(dst, value, bytes, stream);
}
HIP_API int hipMemsetD8(void* dst, unsigned char value, size_t count) {
  return fill("hipMemsetD8", dst, 0, static_cast<uint8_t>(value), count, 1, nullptr);
}
HIP_API int hipMemsetD8Async(void* dst, unsigned char value, size_t count, HipStream stream) {
  return fill("hipMemsetD8Async", dst, 0, static_cast<uint8_t>(value), count, 1, stream);
}
HIP_API int hipMemsetD16(void* dst, unsigned short value, size_t count) {
  return fill("hipMemsetD16", dst, 0, static_cast<uint16_t>(value), count, 1, nullptr);
}
HIP_API int hipMemsetD16Async(void* dst, unsigned short value, size_t count, HipStream stream) {
  return fill("hipMemsetD16Async", dst, 0, static_cast<uint16_t>(value), count, 1, stream);
}
HIP_API int hipMemsetD32(void* dst, int value, size_t count) {
  return fill("hipMemsetD32", dst, 0, static_cast<uint32_t>(value), count, 1, nullptr);
}
HIP_API int hipMemsetD32Async(void* dst, int value, size_t count, HipStream stream) {
  return fill("hipMemsetD32Async", dst, 0, static_cast<uint32_t>(value), count, 1, stream);
}
HIP_API int hipMemset2DAsync(void* dst, size_t pitch, int value, size_t width, size_t height,
                             HipStream stream) {
  return fill("hipMemset2DAsync", dst, pitch, static_cast<uint8_t>(value), width, height, stream);
}
HIP_API int hipMemset2D(void* dst, size_t pitch, int value, size_t width, size_t height) {
  return fill("hipMemset2D", dst, pitch, static_cast<uint8_t>(value), width, height, nullptr);
}

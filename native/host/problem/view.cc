// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/view.h"

#include <algorithm>
#include <cinttypes>
#include <cstddef>

#include "error.h"

namespace fmha {
namespace {

// Row offsets are int32 elements; in bytes they are taken modulo 4 GiB.
constexpr int64_t kMaxSpanElements = int64_t{1} << 31;
constexpr int64_t kMaxSpanBytes = int64_t{1} << 32;
// Rows past the end of what is written are dropped by adding 2 GiB to their address: they need a span below
// that.
constexpr int64_t kMaxPaddedStoreBytes = int64_t{1} << 31;

// More than any process can address.
constexpr uint64_t kAddressSpace = uint64_t{1} << 57;

constexpr const char* kStrideNames[] = {"stride_batch", "stride_seqlen", "stride_head"};

// Bytes from the first to past the last element. Sizes and strides are below 2^31, so the sum of three
// products fits 64 unsigned bits, though not always an address space.
uint64_t reach_bytes(const View& v) {
  uint64_t reach = static_cast<uint64_t>(v.row);
  for (size_t i = 0; i < v.size.size(); ++i) {
    reach += static_cast<uint64_t>(v.size[i] - 1) * static_cast<uint64_t>(v.stride[i]);
  }
  return std::min(reach, kAddressSpace / static_cast<uint64_t>(v.element_bytes)) *
         static_cast<uint64_t>(v.element_bytes);
}

void check_stride(const View& v, size_t i, int64_t align) {
  const int64_t stride = v.stride[i];
  if (stride < 0) {
    fail(FMHA_INVALID_ARGUMENT, "%s.%s = %" PRId64 ": expected 0 or more", v.name, kStrideNames[i], stride);
  }
  if ((stride & (align - 1)) != 0) {
    fail(FMHA_INVALID_ARGUMENT,
         "%s.%s = %" PRId64 ": expected a multiple of %" PRId64 " elements (16-byte loads)", v.name,
         kStrideNames[i], stride, align);
  }
  if (stride > INT32_MAX) {
    fail(FMHA_UNSUPPORTED, "%s.%s = %" PRId64 ": kernels take strides below 2^31 elements", v.name,
         kStrideNames[i], stride);
  }
}

// Without a sum that could wrap around. A pointer that was left out overlaps nothing.
bool overlap(const Extent& a, const Extent& b) {
  if (a.begin == 0 || b.begin == 0) return false;
  return a.begin <= b.begin ? b.begin - a.begin < a.bytes : a.begin - b.begin < b.bytes;
}

[[noreturn]] void fail_overlap(const Extent& written, const Extent& other) {
  fail(FMHA_INVALID_ARGUMENT,
       "%s is written but overlaps %s: %s spans %" PRIu64 " bytes from %p, %s %" PRIu64 " bytes from %p",
       written.name, other.name, written.name, written.bytes, reinterpret_cast<void*>(written.begin),
       other.name, other.bytes, reinterpret_cast<void*>(other.begin));
}

}  // namespace

View array_view(const char* name, const void* data, int64_t element_bytes, int64_t count) {
  return View{.name = name,
              .pointer = name,
              .data = data,
              .element_bytes = element_bytes,
              .row = count,
              .size = {1, 1, 1},
              .stride = {0, 0, 0},
              .sequence = 1,
              .varlen = false,
              .touched = data != nullptr && count > 0};
}

void check_strides(View& v, int64_t align) {
  for (size_t i = 0; i < v.stride.size(); ++i) {
    if (v.size[i] > 1) {
      check_stride(v, i, align);
    } else {
      // Any value will do that is aligned and small, and steps over the row, so that rows past the end lie
      // past the end.
      v.stride[i] = std::min<int64_t>(v.row, INT32_MAX / kTileRows);
    }
  }
}

void check_span(const View& v, bool written) {
  const int64_t rows = (v.sequence + kTileRows - 1) / kTileRows * kTileRows;
  const bool padded_store = written && (v.varlen || rows != v.sequence);
  const int64_t most_bytes = padded_store ? kMaxPaddedStoreBytes : kMaxSpanBytes;
  const int64_t most = std::min(kMaxSpanElements * v.element_bytes, most_bytes);
  const int64_t span = (rows * v.stride[1] + v.row) * v.element_bytes;
  if (span >= most) {
    fail(FMHA_UNSUPPORTED,
         "%s.stride_seqlen = %" PRId64 " over %" PRId64 " rows: one head spans %" PRId64
         " bytes, and kernels address %" PRId64
         "; a layout with a smaller stride_seqlen, such as (batch, head, seqlen, ...), fits",
         v.name, v.stride[1], v.sequence, span, most);
  }
}

// Sufficient for distinct elements to have distinct addresses, and met by every permuted, sliced or padded
// dense layout: each stride steps over all that the smaller ones reach.
void check_no_self_overlap(const View& v) {
  if (!v.touched) return;  // an empty array's strides may well be 0
  std::array<size_t, 3> order = {0, 1, 2};
  const auto swap_if = [&](size_t a,
                           size_t b) {  // three elements: std::sort is most of a microsecond's tenth
    if (v.stride[order[b]] < v.stride[order[a]]) std::swap(order[a], order[b]);
  };
  swap_if(0, 1), swap_if(1, 2), swap_if(0, 1);
  uint64_t reach = static_cast<uint64_t>(v.row);
  for (const size_t i : order) {
    if (v.size[i] <= 1) continue;
    if (static_cast<uint64_t>(v.stride[i]) < reach) {
      fail(FMHA_INVALID_ARGUMENT,
           "%s.%s = %" PRId64 ": its elements overlap one another; expected %" PRIu64 " or more", v.name,
           kStrideNames[i], v.stride[i], reach);
    }
    reach += static_cast<uint64_t>(v.size[i] - 1) * static_cast<uint64_t>(v.stride[i]);
  }
}

void check_pointer(const View& v, int64_t align_bytes, Pointers pointers) {
  if (!v.touched) return;
  if (v.data == nullptr) {
    if (pointers == Pointers::kOptional) return;
    fail(FMHA_INVALID_ARGUMENT, "%s = NULL: expected a device pointer", v.pointer);
  }
  if ((reinterpret_cast<uintptr_t>(v.data) & static_cast<uintptr_t>(align_bytes - 1)) != 0) {
    fail(FMHA_INVALID_ARGUMENT, "%s = %p: expected an address aligned to %" PRId64 " bytes", v.pointer,
         v.data, align_bytes);
  }
}

void Extents::add(const View& v, bool written) {
  if (!v.touched) return;
  if (count_ == kMost) fail(FMHA_INTERNAL, "a call touches more tensors than Extents holds");
  extents_[count_++] = {v.name, v.pointer, reinterpret_cast<uintptr_t>(v.data), reach_bytes(v), written};
}

void Extents::check_overlaps() const {
  for (size_t i = 0; i < count_; ++i) {
    const Extent& a = extents_[i];
    for (size_t j = i + 1; j < count_; ++j) {
      const Extent& b = extents_[j];
      if (!a.written && !b.written) continue;
      if (overlap(a, b)) {
        // If both are written, the later one is the optional one, which the caller can move.
        b.written ? fail_overlap(b, a) : fail_overlap(a, b);
      }
    }
  }
}

}  // namespace fmha

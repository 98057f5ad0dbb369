// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/view.h"

#include <algorithm>
#include <cinttypes>

#include "error.h"

namespace fmha {
namespace {

// More than any process can address, and a multiple of every element's size.
constexpr uint64_t kAddressSpace = uint64_t{1} << 57;

// a * b + c, or kAddressSpace if it is more than that.
uint64_t multiply_add(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || __builtin_add_overflow(result, c, &result)) {
    return kAddressSpace;
  }
  return std::min(result, kAddressSpace);
}

// Whether sizes and strides, none of them negative, are below 2^31, as nearly always: then a sum of three
// products and a row fits 64 bits, and only its bytes need a look.
bool is_small(const View& v) {
  return ((v.size[0] | v.size[1] | v.size[2] | v.stride[0] | v.stride[1] | v.stride[2] | v.row) >> 31) == 0;
}

// Bytes from the first element to past the last.
uint64_t reach_bytes(const View& v) {
  const auto product = [&](size_t i) {
    return static_cast<uint64_t>(v.size[i] - 1) * static_cast<uint64_t>(v.stride[i]);
  };
  const auto element_bytes = static_cast<uint64_t>(v.element_bytes);
  if (is_small(v)) {
    const uint64_t reach = static_cast<uint64_t>(v.row) + product(0) + product(1) + product(2);
    return std::min(reach, kAddressSpace / sizeof(double)) * element_bytes;
  }
  auto reach = static_cast<uint64_t>(v.row);
  for (size_t i = 0; i < v.size.size(); ++i) {
    if (v.size[i] <= 1) continue;
    reach = multiply_add(static_cast<uint64_t>(v.size[i] - 1), static_cast<uint64_t>(v.stride[i]), reach);
  }
  return multiply_add(reach, element_bytes, 0);
}

// Without a sum that could wrap around. A pointer that was left out overlaps nothing.
bool overlap(const Extent& a, const Extent& b) {
  if (a.begin == 0 || b.begin == 0) return false;
  return a.begin <= b.begin ? b.begin - a.begin < a.bytes : a.begin - b.begin < b.bytes;
}

[[noreturn]] void raise_overlap(const Extent& written, const Extent& other) {
  raise(FMHA_INVALID_ARGUMENT,
        "%s is written but overlaps %s: %s spans %" PRIu64 " bytes from %p, %s %" PRIu64 " bytes from %p",
        written.name, other.name, written.name, written.bytes, reinterpret_cast<void*>(written.begin),
        other.name, other.bytes, reinterpret_cast<void*>(other.begin));
}

}  // namespace

View array_view(const char* name, const void* data, int64_t element_bytes, int64_t count) {
  return View{.name = name,
              .pointer = name,
              .data = const_cast<void*>(data),
              .element_bytes = element_bytes,
              .row = count,
              .size = {1, 1, 1},
              .stride = {0, 0, 0},
              .sequence = 1,
              .varlen = false,
              .touched = data != nullptr && count > 0};
}

void raise_stride(const View& v, size_t i) {
  raise(FMHA_INVALID_ARGUMENT, "%s.%s = %" PRId64 ": expected 0 or more", v.name, kStrideNames[i],
        v.stride[i]);
}

void raise_pointer(const View& v, int64_t align_bytes) {
  if (v.data == nullptr) raise(FMHA_INVALID_ARGUMENT, "%s = NULL: expected a device pointer", v.pointer);
  raise(FMHA_INVALID_ARGUMENT, "%s = %p: expected an address aligned to %" PRId64 " bytes", v.pointer, v.data,
        align_bytes);
}

// Sufficient for distinct elements to have distinct addresses, and met by every permuted, sliced or padded
// dense layout: each stride steps over all that the smaller ones reach.
void check_no_self_overlap(const View& v) {
  if (!v.touched) return;  // an empty array's strides may well be 0
  std::array<size_t, 3> order = {0, 1, 2};
  const auto swap_if = [&](size_t a, size_t b) {  // three elements: std::sort takes 10 ns of the call's 190
    if (v.stride[order[b]] < v.stride[order[a]]) std::swap(order[a], order[b]);
  };
  swap_if(0, 1), swap_if(1, 2), swap_if(0, 1);
  auto reach = static_cast<uint64_t>(v.row);
  for (const size_t i : order) {
    if (v.size[i] <= 1) continue;
    const auto stride = static_cast<uint64_t>(v.stride[i]);
    if (stride < reach) {
      raise(FMHA_INVALID_ARGUMENT,
            "%s.%s = %" PRId64 ": its elements overlap one another; expected %" PRIu64 " or more", v.name,
            kStrideNames[i], v.stride[i], reach);
    }
    reach = multiply_add(static_cast<uint64_t>(v.size[i] - 1), stride, reach);
  }
}

void Extents::add(const View& v, bool written) {
  if (!v.touched) return;
  if (count_ == kMost) raise(FMHA_INTERNAL, "a call touches more tensors than Extents holds");
  extents_[count_++] = {v.name, v.pointer, reinterpret_cast<uintptr_t>(v.data), reach_bytes(v), written};
}

// Of two that are both written, the later one is blamed: it is the optional one, which the caller can move.
void Extents::check_overlaps() const {
  for (size_t i = 0; i < count_; ++i) {
    const Extent& written = extents_[i];
    if (!written.written) continue;
    for (size_t j = 0; j < count_; ++j) {
      if (j == i || !overlap(written, extents_[j])) continue;
      j > i&& extents_[j].written ? raise_overlap(extents_[j], written) : raise_overlap(written, extents_[j]);
    }
  }
}

void Extents::check_overlaps_with(const Extent& written) const {
  for (const Extent& other : all()) {
    if (overlap(written, other)) raise_overlap(written, other);
  }
}

}  // namespace fmha

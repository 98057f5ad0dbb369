// SPDX-License-Identifier: MIT OR Apache-2.0
#include "memory/view.h"

#include <algorithm>
#include <cinttypes>
#include <cstdlib>

#include "error.h"

namespace fmha {
namespace {

// a * b + c, or kAddressSpace if it is more than that.
uint64_t multiply_add(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || __builtin_add_overflow(result, c, &result)) {
    return kAddressSpace;
  }
  return std::min(result, kAddressSpace);
}

// No sum here can wrap around. A pointer that was left out overlaps nothing.
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

// Dimensions with more than one index, the largest stride first.
class Steps {
 public:
  explicit Steps(const View& v) {
    for (size_t i = 0; i < v.size.size(); ++i) {
      if (v.size[i] > 1) order_[count_++] = i;
    }
    std::sort(order_.begin(), order_.begin() + count_,
              [&](size_t a, size_t b) { return v.stride[a] > v.stride[b]; });
  }
  std::span<const size_t> all() const { return {order_.data(), count_}; }

 private:
  std::array<size_t, 3> order_{};
  size_t count_ = 0;
};

// Tells whether the view has an element `delta` elements behind its first. Each stride steps over all that
// the smaller ones reach, so that there is one way at most to get there.
bool holds(const View& v, int64_t delta) {
  if (delta < 0) return false;
  const Steps steps(v);
  for (const size_t i : steps.all()) delta -= std::min(delta / v.stride[i], v.size[i] - 1) * v.stride[i];
  return delta < v.row;
}

// Tells whether a row of `a` and one of `b`, which lies `delta` elements behind, meet. Both have these steps,
// and the difference of their indices is one of the two next to the quotient.
bool rows_meet(const View& a, const View& b, int64_t delta, std::span<const size_t> steps) {
  if (steps.empty()) return delta < a.row && -delta < b.row;
  const int64_t stride = a.stride[steps[0]];
  const int64_t below = delta / stride - (delta % stride < 0 ? 1 : 0);
  for (const int64_t indices : {below, below + 1}) {
    if (std::abs(indices) < a.size[steps[0]] && rows_meet(a, b, delta - indices * stride, steps.subspan(1)))
      return true;
  }
  return false;
}

bool same_steps(const View& a, const View& b) {
  const Steps steps(a);
  return std::ranges::all_of(steps.all(), [&](size_t i) { return a.stride[i] == b.stride[i]; });
}

Extent written_extent(const View& v) {
  return {v.name, v.pointer, reinterpret_cast<uintptr_t>(v.data), reach_bytes(v), true};
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

uint64_t reach_bytes_of_large(const View& v) {
  auto reach = static_cast<uint64_t>(v.row);
  for (size_t i = 0; i < v.size.size(); ++i) {
    if (v.size[i] <= 1) continue;
    reach = multiply_add(static_cast<uint64_t>(v.size[i] - 1), static_cast<uint64_t>(v.stride[i]), reach);
  }
  return multiply_add(reach, static_cast<uint64_t>(v.element_bytes), 0);
}

// Sufficient for distinct elements to have distinct addresses, and met by every permuted, sliced or padded
// dense layout: each stride steps over all that the smaller ones reach.
void check_no_self_overlap(const View& v, const char* const (&stride_names)[3]) {
  const std::array<size_t, 3> order = by_stride(v);
  auto reach = static_cast<uint64_t>(v.row);
  for (const size_t i : order) {
    if (v.size[i] <= 1) continue;
    const auto stride = static_cast<uint64_t>(v.stride[i]);
    if (stride < reach) {
      raise(FMHA_INVALID_ARGUMENT,
            "%s.%s = %" PRId64 ": its elements overlap one another; expected %" PRIu64 " or more", v.name,
            stride_names[i], v.stride[i], reach);
    }
    reach = multiply_add(static_cast<uint64_t>(v.size[i] - 1), stride, reach);
  }
}

void check_apart(View view, View later) {
  view.size[0] = later.size[0] = 1;
  const Extent a = written_extent(view), b = written_extent(later);
  if (!view.touched || !later.touched || !overlap(a, b)) return;
  // No further apart than what either reaches. Addresses that are no multiple of an element no kernel takes.
  const int64_t delta = static_cast<int64_t>(b.begin - a.begin) / view.element_bytes;
  const Steps steps(view);
  const bool meet = same_steps(view, later) ? rows_meet(view, later, delta, steps.all())
                                            : holds(view, delta) || holds(later, -delta);
  if (meet) raise_overlap(b, a);
}

void Extents::raise_too_many() { raise(FMHA_INTERNAL, "a call touches more tensors than Extents holds"); }

// If both are written, the later one is blamed: it is the optional one, which the caller can move.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
// A piece of the caller's memory: its shape and strides, its extent, and what it overlaps. The
// origin of kernels says what they want of strides and addresses (host/origins/fwd_limits.cc); the device
// says whose memory it is (launch/device.cc).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace fmha {

enum class Pointers : uint8_t {
  kRequired,  // a tensor that will be touched must have its data
  kOptional,  // NULL data is not looked at
};

inline constexpr const char* kStrideNames[] = {"stride_batch", "stride_seqlen", "stride_head"};

// Dimensions of a view's sizes and strides.
enum Dimension : uint8_t { kBatch, kSeqlen, kHead };

struct View {
  const char* name;     // the argument's, "q"
  const char* pointer;  // and its pointer's, "q.data"
  void* data;           // written through only if the call writes this tensor
  int64_t element_bytes;
  int64_t row;                    // contiguous elements at the end of each index
  std::array<int64_t, 3> size;    // by Dimension
  std::array<int64_t, 3> stride;  // elements; not read for dimensions of size one
  int64_t sequence;               // rows that a workgroup may walk over: those of its sequence, at most
  bool varlen;                    // sequences may be shorter than that
  bool touched;                   // false: has no elements, so the pointer means nothing

  // The address for a kernel: nullptr if nothing is touched.
  template <typename T = void>
  T* address() const {
    return touched ? static_cast<T*>(data) : nullptr;
  }

  // The stride for a kernel: 0 where the caller's may be anything, of a size of one or a tensor not wanted.
  int64_t step(Dimension i) const { return touched && size[i] > 1 ? stride[i] : 0; }
};

// An array without strides.
View array_view(const char* name, const void* data, int64_t element_bytes, int64_t count);

[[noreturn]] void raise_stride(const View& view, size_t dimension);
[[noreturn]] void raise_pointer(const View& view, int64_t align_bytes);

// Fails with INVALID_ARGUMENT if a stride that will be read is negative.
inline void check_strides(const View& v) {
  if ((v.stride[0] | v.stride[1] | v.stride[2]) >= 0) return;
  for (size_t i = 0; i < v.stride.size(); ++i) {
    if (v.stride[i] < 0 && v.size[i] > 1) raise_stride(v, i);
  }
}

// Fails with INVALID_ARGUMENT if the data is needed but NULL, or if an address that will be used is not a
// multiple of `align_bytes`, a power of two.
inline void check_pointer(const View& v, int64_t align_bytes, Pointers pointers) {
  if (!v.touched || (v.data == nullptr && pointers == Pointers::kOptional)) return;
  const bool aligned = (reinterpret_cast<uintptr_t>(v.data) & static_cast<uintptr_t>(align_bytes - 1)) == 0;
  if (v.data == nullptr || !aligned) raise_pointer(v, align_bytes);
}

// The dimensions by their strides, the smallest first.
inline std::array<size_t, 3> by_stride(const View& v) {
  std::array<size_t, 3> order = {0, 1, 2};
  const auto swap_if = [&](size_t a, size_t b) {  // three elements: std::sort takes 10 ns of the call's 190
    if (v.stride[order[b]] < v.stride[order[a]]) std::swap(order[a], order[b]);
  };
  swap_if(0, 1), swap_if(1, 2), swap_if(0, 1);
  return order;
}

// Checks what is written and has elements: fails with INVALID_ARGUMENT unless distinct elements have distinct
// addresses.
void check_no_self_overlap(const View& view, const char* const (&stride_names)[3] = kStrideNames);

// Fails with INVALID_ARGUMENT if two views that are written share an element of one page, or of one sequence.
// Neither overlaps itself, and their sizes are the same but for their rows. One may lie in the gaps of the
// other, or some pages further on, as where one pool has the pages of both. Where their strides differ, only
// the first element of each is looked for in the other.
void check_apart(View view, View later);

// More than any process can address, and a multiple of every element's size.
inline constexpr uint64_t kAddressSpace = uint64_t{1} << 57;

uint64_t reach_bytes_of_large(const View& view);

// Bytes from the first element to past the last, kAddressSpace at most. Sizes and strides, none of them
// negative, are nearly always below 2^31: then a sum of three products and a row fits 64 bits, and only its
// bytes need a look.
inline uint64_t reach_bytes(const View& v) {
  const int64_t all = v.size[0] | v.size[1] | v.size[2] | v.stride[0] | v.stride[1] | v.stride[2] | v.row;
  if ((all >> 31) != 0) return reach_bytes_of_large(v);
  const auto product = [&](size_t i) {
    return static_cast<uint64_t>(v.size[i] - 1) * static_cast<uint64_t>(v.stride[i]);
  };
  const uint64_t reach = static_cast<uint64_t>(v.row) + product(0) + product(1) + product(2);
  return std::min(reach, kAddressSpace / sizeof(double)) * static_cast<uint64_t>(v.element_bytes);
}

// A piece of memory that a call touches, from its first byte to past its last.
struct Extent {
  const char* name;     // the argument's, "q"
  const char* pointer;  // and its pointer's, "q.data"
  uintptr_t begin;      // 0: the caller has left the pointer out
  uint64_t bytes;
  bool written;
};

// All of them.
class Extents {
 public:
  Extents() {}  // writes no array: add() does, before anything reads it

  void add(const View& v, bool written) {
    if (!v.touched) return;
    add({v.name, v.pointer, reinterpret_cast<uintptr_t>(v.data), reach_bytes(v), written});
  }
  void add(const Extent& extent) {
    if (count_ == kMost) raise_too_many();
    extents_[count_++] = extent;
  }
  void clear() { count_ = 0; }
  void move(size_t i, const void* begin) { extents_[i].begin = reinterpret_cast<uintptr_t>(begin); }
  std::span<const Extent> all() const { return {extents_.data(), count_}; }

  // Fails with INVALID_ARGUMENT if something that is written overlaps anything else.
  void check_overlaps() const;

  // The same of one more extent, which is written.
  void check_overlaps_with(const Extent& written) const;

 private:
  static constexpr size_t kMost = 17;  // of a backward call

  [[noreturn]] static void raise_too_many();

  size_t count_ = 0;
  std::array<Extent, kMost> extents_;
};

}  // namespace fmha

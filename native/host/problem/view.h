// SPDX-License-Identifier: MIT OR Apache-2.0
// A piece of the caller's memory as it is checked: strides, spans, alignment, overlaps. Everything here is a
// matter of numbers; whose memory it is, the device says (launch.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fmha {

// Rows a kernel may address beyond a tensor's end are those that fill its last tile, and every tile height
// in the catalogue divides this (select.cc checks it).
inline constexpr int64_t kTileRows = 256;

// The kernels load and store 16 bytes at a time.
inline constexpr int64_t kAlignBytes = 16;

enum class Pointers {
  kRequired,  // a tensor that will be touched must have its data
  kOptional,  // NULL data is not looked at
};

struct View {
  const char* name;     // the argument's, "q"
  const char* pointer;  // and its pointer's, "q.data"
  const void* data;
  int64_t element_bytes;
  int64_t row;                    // contiguous elements at the end of each index
  std::array<int64_t, 3> size;    // batch, seqlen, head
  std::array<int64_t, 3> stride;  // elements
  int64_t sequence;               // rows that a workgroup may walk over: those of its sequence, at most
  bool varlen;                    // sequences may be shorter than that
  bool touched;                   // false: has no elements, so the pointer means nothing
};

// An array without strides.
View array_view(const char* name, const void* data, int64_t element_bytes, int64_t count);

// Checks the strides that will be read, and replaces the others, those of dims of size one. `align` is the
// number of elements a stride must be a multiple of, a power of two, as all alignments here are.
void check_strides(View& view, int64_t align);

// What one (batch, head) spans, padded to whole tiles, must fit the 32-bit offsets inside a kernel.
void check_span(const View& view, bool written);

// For what is written: distinct elements have distinct addresses.
void check_no_self_overlap(const View& view);

void check_pointer(const View& view, int64_t align_bytes, Pointers pointers);

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

  void add(const View& view, bool written);
  std::span<const Extent> all() const { return {extents_.data(), count_}; }

  // Fails with INVALID_ARGUMENT if something that is written overlaps anything else.
  void check_overlaps() const;

 private:
  static constexpr size_t kMost = 16;

  size_t count_ = 0;
  std::array<Extent, kMost> extents_;
};

}  // namespace fmha

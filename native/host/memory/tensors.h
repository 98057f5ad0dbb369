// SPDX-License-Identifier: MIT OR Apache-2.0
// Views of the ABI's tensors, for every family.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fmha_rocm.h"
#include "memory/view.h"

namespace fmha {

// Shapes of what is indexed by (batch, seqlen, head): packed sequences are one batch of all their rows.
struct Rows {
  int64_t batch;
  int64_t count;     // along the seqlen dimension
  int64_t sequence;  // the most of one sequence
  bool varlen;
};

inline Rows rows_of(bool packed, int64_t batch, int64_t seqlen, int64_t total) {
  if (packed) return {1, total, std::min(seqlen, total), true};
  return {batch, seqlen, seqlen, false};
}

// How messages call a tensor and its pointer.
struct TensorName {
  const char* name;     // "q"
  const char* pointer;  // "q.data"
};

// Everything but name and strides, which differ in the ABI's structs.
inline void set_shape(View& view, const void* data, const Rows& rows, int64_t nhead, int64_t row,
                      int64_t element_bytes, bool wanted) {
  view.data = const_cast<void*>(data);
  view.element_bytes = element_bytes;
  view.row = row;
  view.size = {rows.batch, rows.count, nhead};
  view.sequence = rows.sequence;
  view.varlen = rows.varlen;
  view.touched = wanted && rows.sequence > 0;
}

// A tensor of the ABI, checked as far as it is the same for all kernels: how addresses are to be aligned,
// their origin says.
inline void set_tensor(View& view, const TensorName& name, const fmha_tensor& t, const Rows& rows,
                       int64_t nhead, int64_t hdim, int64_t element_bytes, bool wanted, Pointers pointers) {
  view.name = name.name;
  view.pointer = name.pointer;
  view.stride = {t.stride_batch, t.stride_seqlen, t.stride_head};
  set_shape(view, t.data, rows, nhead, hdim, element_bytes, wanted);
  check_strides(view);
  check_pointer(view, 1, pointers);
}

}  // namespace fmha

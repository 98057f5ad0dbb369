// SPDX-License-Identifier: MIT OR Apache-2.0
// A problem takes over the addresses of another call that is like its own in all else: see api/remembered.h.
// Where the calls left something out, both did, so that what is nullptr stays so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/view.h"

namespace fmha {

// Goes over a problem's memory in the order in which its extents were added.
class Rebinder {
 public:
  // `others`: an append's second list, which lacks the cache.
  explicit Rebinder(Extents& extents, Extents* others = nullptr) : extents_(extents), others_(others) {}

  void view(View& v, const void* data, bool in_others = true) {
    if (v.data != nullptr) v.data = const_cast<void*>(data);
    if (v.touched) next(v.data, in_others);
  }

  template <typename T>
  void array(const T*& array, const T* data) {
    if (array == nullptr) return;
    array = data;
    next(data, true);
  }

 private:
  void next(const void* data, bool in_others) {
    extents_.move(done_++, data);
    if (others_ != nullptr && in_others) others_->move(others_done_++, data);
  }

  Extents& extents_;
  Extents* others_;
  size_t done_ = 0, others_done_ = 0;
};

}  // namespace fmha

// SPDX-License-Identifier: MIT OR Apache-2.0
// The embedded code objects, out of their compressed form.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "catalogue/catalogue.h"

namespace fmha {

struct FreeImage {
  static constexpr size_t kPage = 4096;
  void operator()(void* image) const { ::operator delete(image, std::align_val_t{kPage}); }
};
using Image = std::unique_ptr<void, FreeImage>;

// The ELF itself, aligned to a page as a loader would have it. Fails with INTERNAL if what is embedded is
// damaged.
Image unpack(const CodeObject& object);

}  // namespace fmha

// SPDX-License-Identifier: MIT OR Apache-2.0
// The embedded code objects, out of their compressed form.
#pragma once

#include <cstdlib>
#include <memory>

#include "catalogue/catalogue.h"

namespace fmha {

struct FreeImage {
  void operator()(void* image) const { std::free(image); }
};
using Image = std::unique_ptr<void, FreeImage>;

// The ELF itself, aligned to a page as a loader would have it. Fails with INTERNAL if what is embedded is
// damaged.
Image unpack(const CodeObject& object);

}  // namespace fmha

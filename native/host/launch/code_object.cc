// SPDX-License-Identifier: MIT OR Apache-2.0
#include "launch/code_object.h"

#include <zstd.h>

#include <new>

#include "error.h"

namespace fmha {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

Image unpack(const CodeObject& object) {
  Image image(std::aligned_alloc(kPage, (object.bytes + kPage - 1) / kPage * kPage));
  if (image == nullptr) throw std::bad_alloc();
  const size_t bytes = ZSTD_decompress(image.get(), object.bytes, object.packed, object.packed_bytes);
  if (ZSTD_isError(bytes) != 0 || bytes != object.bytes) {
    raise(FMHA_INTERNAL, "the embedded code object %s is damaged: %s", object.sha256,
          ZSTD_isError(bytes) != 0 ? ZSTD_getErrorName(bytes) : "it unpacks to another size");
  }
  return image;
}

}  // namespace fmha

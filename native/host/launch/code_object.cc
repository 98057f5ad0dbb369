// SPDX-License-Identifier: MIT OR Apache-2.0
#include "launch/code_object.h"

#include <zstd.h>

#include <memory>
#include <new>

#include "error.h"

namespace fmha {
namespace {

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

Image unpack(const CodeObject& object) {
  const Image base = object.base != nullptr ? unpack(*object.base) : nullptr;
  Image image(::operator new(object.bytes, std::align_val_t{FreeImage::kPage}));
  const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  if (context == nullptr) throw std::bad_alloc();
  if (object.base != nullptr) ZSTD_DCtx_refPrefix(context.get(), base.get(), object.base->bytes);
  const size_t bytes =
      ZSTD_decompressDCtx(context.get(), image.get(), object.bytes, object.packed, object.packed_bytes);
  if (ZSTD_isError(bytes) != 0 || bytes != object.bytes) {
    raise(FMHA_INTERNAL, "the embedded code object %s is damaged: %s", object.sha256,
          ZSTD_isError(bytes) != 0 ? ZSTD_getErrorName(bytes) : "it unpacks to another size");
  }
  return image;
}

}  // namespace fmha

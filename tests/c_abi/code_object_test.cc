// SPDX-License-Identifier: MIT OR Apache-2.0
// Code objects out of their compressed form: by themselves, after another one, and damaged.
#include "launch/code_object.h"

#include <doctest/doctest.h>
#include <zstd.h>

#include <cstring>
#include <string>
#include <vector>

#include "error.h"

namespace {

using Bytes = std::vector<unsigned char>;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

// `base` may be empty.
Bytes pack(const Bytes& object, const Bytes& base) {
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  if (!base.empty()) ZSTD_CCtx_refPrefix(context.get(), base.data(), base.size());
  Bytes packed(ZSTD_compressBound(object.size()));
  packed.resize(ZSTD_compress2(context.get(), packed.data(), packed.size(), object.data(), object.size()));
  return packed;
}

// Bytes that no compressor makes smaller.
Bytes noise(size_t count) {
  Bytes out(count);
  uint32_t state = 1;
  for (unsigned char& byte : out) byte = (state = state * 1664525 + 1013904223) >> 24;
  return out;
}

fmha::CodeObject object_of(const Bytes& packed, const Bytes& object, const fmha::CodeObject* base) {
  return {packed.data(), packed.size(), object.size(), "0123", base};
}

bool unpacks_to(const fmha::CodeObject& object, const Bytes& wanted) {
  return std::memcmp(fmha::unpack(object).get(), wanted.data(), wanted.size()) == 0;
}

std::string refusal(const fmha::CodeObject& object) {
  try {
    fmha::unpack(object);
  } catch (const fmha::Error& error) {
    return error.message;
  }
  return "";
}

TEST_CASE("code objects out of their compressed form") {
  const Bytes first = noise(100000);
  Bytes second = first;
  second[48] = 0x36;
  second.push_back(7);
  const Bytes packed_first = pack(first, {}), packed_second = pack(second, first);
  CHECK(packed_first.size() > first.size());
  CHECK(packed_second.size() < 100);

  const fmha::CodeObject base = object_of(packed_first, first, nullptr);
  CHECK(unpacks_to(base, first));
  const fmha::CodeObject after = object_of(packed_second, second, &base);
  CHECK(unpacks_to(after, second));
  CHECK(unpacks_to(after, second));

  // A base may have one.
  Bytes third = second;
  third[49] = 0x37;
  const Bytes packed_third = pack(third, second);
  CHECK(packed_third.size() < 100);
  CHECK(unpacks_to(object_of(packed_third, third, &after), third));
  CHECK(refusal(object_of(packed_third, third, &base)).find("is damaged") != std::string::npos);

  // Without its base, after another one, and where the base is damaged.
  CHECK(refusal(object_of(packed_second, second, nullptr)).find("0123 is damaged") != std::string::npos);
  CHECK(refusal(object_of(packed_second, second, &after)).find("is damaged") != std::string::npos);
  Bytes damaged = packed_first;
  damaged[damaged.size() / 2] ^= 1;
  const fmha::CodeObject broken = object_of(damaged, first, nullptr);
  CHECK(refusal(broken).find("is damaged") != std::string::npos);
  CHECK(refusal(object_of(packed_second, second, &broken)).find("is damaged") != std::string::npos);
}

}  // namespace

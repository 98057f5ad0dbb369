// SPDX-License-Identifier: MIT OR Apache-2.0
#include "image/offload_bundle.h"

#include <algorithm>
#include <cstring>

#include "image/bundle_table.h"
#include "image/compressed_bundle.h"

namespace fmha::emu {
namespace {

bool starts_with(const void* image, size_t bytes, const char* magic) {
  const size_t n = std::strlen(magic);
  return bytes >= n && std::memcmp(image, magic, n) == 0;
}

uint64_t number_at(const uint8_t* p, size_t at) {
  uint64_t v;
  std::memcpy(&v, p + at, sizeof v);
  return v;
}

size_t plain_bundle_bytes(const uint8_t* p) {
  size_t at = kBundleMagicBytes, end = 0;
  const uint64_t count = number_at(p, at);
  at += 8;
  for (uint64_t i = 0; i < count; ++i) {
    end = std::max<size_t>(end, number_at(p, at) + number_at(p, at + 8));
    at += 24 + number_at(p, at + 16);
  }
  return std::max(end, at);
}

bool pick_from_plain(std::span<const uint8_t> bundle, const Wanted& wanted, BundlePick* out,
                     std::string* error) {
  std::vector<BundleEntry> entries;
  if (read_bundle_table(bundle, bundle.size(), &entries) != TableState::kWhole) {
    *error = "offload bundle: its table is damaged";
    return false;
  }
  out->ids = ids_of(entries);
  for (const BundleEntry& e : entries) {
    const auto image = bundle.subspan(e.offset, e.bytes);
    if (!wanted(image.first(std::min(image.size(), kEntryHeadBytes)))) continue;
    out->image = image;
    break;
  }
  return true;
}

}  // namespace

bool is_bundle(const void* image, size_t bytes) {
  return starts_with(image, bytes, kBundleMagic) || starts_with(image, bytes, kCompressedMagic);
}

// One magic at a time, each no further than the first byte that differs: the image may be short.
size_t bundle_bytes(const void* image) {
  const auto* text = static_cast<const char*>(image);
  const auto* p = static_cast<const uint8_t*>(image);
  if (std::strncmp(text, kCompressedMagic, sizeof kCompressedMagic - 1) == 0)
    return compressed_bundle_bytes(p);
  if (std::strncmp(text, kBundleMagic, kBundleMagicBytes) == 0) return plain_bundle_bytes(p);
  return 0;
}

bool pick_from_bundle(std::span<const uint8_t> bundle, const Wanted& wanted, BundlePick* out,
                      std::string* error) {
  if (starts_with(bundle.data(), bundle.size(), kCompressedMagic)) {
    return pick_from_compressed(bundle, wanted, out, error);
  }
  return pick_from_plain(bundle, wanted, out, error);
}

}  // namespace fmha::emu

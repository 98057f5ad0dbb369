// SPDX-License-Identifier: MIT OR Apache-2.0
// The compressed form of an offload bundle: "CCOB", then
//
//   version 1                version 2                version 3
//   4  u16 version           4  u16 version           4  u16 version
//   6  u16 method            6  u16 method            6  u16 method
//   8  u32 plain bytes       8  u32 bytes of file     8  u64 bytes of file
//   12 u64 hash              12 u32 plain bytes       16 u64 plain bytes
//   20 data                  16 u64 hash              24 u64 hash
//                            24 data                  32 data
//
// Method 1 is zstd, 0 zlib, which clang takes if it was built without zstd; this device has zstd only. The
// hash is half of the MD5 of the plain bytes, which LLVM's own tool reads only to print it, and nothing here
// reads. All numbers are little-endian.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "image/offload_bundle.h"

namespace fmha::emu {

constexpr char kCompressedMagic[] = "CCOB";

// Like bundle_bytes, for data that starts with the magic.
size_t compressed_bundle_bytes(const uint8_t* image);

// Like pick_from_bundle. All of the bundle is unpacked, so that a wrong size is seen; `unpacked` gets the
// entry.
bool pick_from_compressed(std::span<const uint8_t> bundle, const Wanted& wanted, BundlePick* out,
                          std::string* error);

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// clang's offload bundles: a table, then an ELF for each target. A bundle is plain, or compressed as a whole
// behind a header of its own ("CCOB"). Nothing in one is trusted but the sizes that stand in for the length
// of the image, which hipModuleLoadData does not give.
//
// A compressed bundle is read as a stream, and only the entry that is wanted is kept: the largest have
// gigabytes when plain, nearly all of them for other cards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace fmha::emu {

// Tells by its first 64 bytes (all of them, if it has fewer) whether an entry is the one to take.
using Wanted = std::function<bool(std::span<const uint8_t> head)>;

// The entry of a bundle for a device.
struct BundlePick {
  std::span<const uint8_t> image;  // empty: nothing; else it lies in the bundle, or in `unpacked`
  std::vector<uint8_t> unpacked;
  std::string ids;  // of all entries, for messages
};

// True if it starts as a bundle does.
bool is_bundle(const void* image, size_t bytes);

// Bytes of the bundle that starts at `image`, by its own word: the header's size of the file (compressed,
// versions 2 and 3), the end of the frame (version 1, which has no such size: the headers of zstd's blocks
// are followed, at most as far as that many plain bytes can take), or the end of the last entry (plain). As
// many as its header has if the header makes no sense; 0 if it is no bundle.
size_t bundle_bytes(const void* image);

// Finds the first entry that is wanted. False with *error set if the bundle is damaged, or none that this can
// read.
bool pick_from_bundle(std::span<const uint8_t> bundle, const Wanted& wanted, BundlePick* out,
                      std::string* error);

}  // namespace fmha::emu

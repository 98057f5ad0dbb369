// SPDX-License-Identifier: MIT OR Apache-2.0
// The table at the head of an offload bundle, and taking one entry out of a bundle that comes piece by piece.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "image/offload_bundle.h"

namespace fmha::emu {

constexpr char kBundleMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr size_t kBundleMagicBytes = sizeof kBundleMagic - 1;

constexpr size_t kEntryHeadBytes = 64;  // of an entry, to know what it is

struct BundleEntry {
  std::string id;
  uint64_t offset, bytes;
};

enum class TableState { kWhole, kCutOff, kDamaged };
// Reads the table of a bundle of `bundle_bytes` bytes, of which `start` are the first.
TableState read_bundle_table(std::span<const uint8_t> start, uint64_t bundle_bytes,
                             std::vector<BundleEntry>* out);
// The entries' names, with commas.
std::string ids_of(const std::vector<BundleEntry>& entries);

// Takes the bytes of a plain bundle in their order, and keeps those of the first entry that is wanted.
class EntryPicker {
 public:
  EntryPicker(const Wanted& wanted, uint64_t bundle_bytes) : wanted_(wanted), bundle_bytes_(bundle_bytes) {}
  // False, with error() set, if this can be no bundle.
  bool take(std::span<const uint8_t> bytes);
  const std::string& error() const { return error_; }
  // Called after the last byte. Empty if no entry was wanted.
  std::vector<uint8_t> release_entry();
  std::string ids() const { return ids_; }
  bool has_table() const { return has_table_; }

 private:
  bool fail(const char* message);
  bool take_table(std::span<const uint8_t> bytes);
  bool order_entries();
  void take_entries(std::span<const uint8_t> bytes);

  const Wanted& wanted_;
  uint64_t bundle_bytes_;
  bool has_table_ = false, found_ = false;
  std::vector<uint8_t> start_;  // until the table is whole
  std::vector<BundleEntry> entries_;
  size_t current_ = 0;  // of entries_: the one to come, or of which entry_ has the first bytes
  std::vector<uint8_t> entry_;
  uint64_t at_ = 0;  // bytes taken so far
  std::string ids_, error_;
};

}  // namespace fmha::emu

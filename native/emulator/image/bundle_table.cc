// SPDX-License-Identifier: MIT OR Apache-2.0
#include "image/bundle_table.h"

#include <algorithm>
#include <cstring>

namespace fmha::emu {
namespace {

constexpr size_t kMostTableBytes = size_t{1} << 20;      // clang's have a few hundred
constexpr uint64_t kMostEntryBytes = uint64_t{1} << 32;  // as much as ElfImage maps
constexpr size_t kReserved = size_t{16} << 20;           // more only once the bytes have come

uint64_t number_at(std::span<const uint8_t> p, size_t at) {
  uint64_t v;
  std::memcpy(&v, p.data() + at, sizeof v);
  return v;
}

}  // namespace

TableState read_bundle_table(std::span<const uint8_t> start, uint64_t bundle_bytes,
                             std::vector<BundleEntry>* out) {
  const size_t known = std::min(start.size(), kBundleMagicBytes);
  if (std::memcmp(start.data(), kBundleMagic, known) != 0) return TableState::kDamaged;
  size_t at = kBundleMagicBytes;
  if (start.size() < at + 8) return TableState::kCutOff;
  const uint64_t count = number_at(start, at);
  at += 8;
  out->clear();
  for (uint64_t i = 0; i < count; ++i) {
    if (start.size() - at < 24) return TableState::kCutOff;
    const uint64_t offset = number_at(start, at), bytes = number_at(start, at + 8),
                   id = number_at(start, at + 16);
    at += 24;
    if (offset > bundle_bytes || bytes > bundle_bytes - offset || id > kMostTableBytes)
      return TableState::kDamaged;
    if (id > start.size() - at) return TableState::kCutOff;
    out->push_back({std::string(reinterpret_cast<const char*>(start.data() + at), id), offset, bytes});
    at += id;
  }
  return TableState::kWhole;
}

std::string ids_of(const std::vector<BundleEntry>& entries) {
  std::string out;
  for (const BundleEntry& e : entries) out += (out.empty() ? "" : ", ") + e.id;
  return out;
}

bool EntryPicker::fail(const char* message) {
  error_ = message;
  return false;
}

bool EntryPicker::take(std::span<const uint8_t> bytes) {
  if (!has_table_) return take_table(bytes);
  take_entries(bytes);
  return true;
}

bool EntryPicker::take_table(std::span<const uint8_t> bytes) {
  start_.insert(start_.end(), bytes.begin(), bytes.end());
  const TableState state = read_bundle_table(start_, bundle_bytes_, &entries_);
  if (state == TableState::kDamaged) return fail("its table is damaged");
  if (state == TableState::kCutOff) {
    return start_.size() <= kMostTableBytes || fail("its table has more than 1 MiB");
  }
  has_table_ = true;
  ids_ = ids_of(entries_);
  if (!order_entries()) return false;
  take_entries(start_);
  start_ = {};
  return true;
}

// A stream passes each byte once: the entries in the order of their bytes, without those that have none.
bool EntryPicker::order_entries() {
  std::erase_if(entries_, [](const BundleEntry& e) { return e.bytes == 0; });
  std::sort(entries_.begin(), entries_.end(),
            [](const BundleEntry& a, const BundleEntry& b) { return a.offset < b.offset; });
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i && entries_[i].offset < entries_[i - 1].offset + entries_[i - 1].bytes)
      return fail("its entries overlap");
    if (entries_[i].bytes > kMostEntryBytes) return fail("an entry has more than 4 GiB");
  }
  return true;
}

void EntryPicker::take_entries(std::span<const uint8_t> bytes) {
  const uint64_t end = at_ + bytes.size();
  while (!found_ || entry_.size() < entries_[current_].bytes) {
    if (current_ == entries_.size()) break;
    const BundleEntry& e = entries_[current_];
    const uint64_t from = e.offset + entry_.size();
    if (from >= end) break;
    // First the head, and the rest only if the head is what is wanted.
    const uint64_t wanted_bytes = found_ ? e.bytes : std::min<uint64_t>(kEntryHeadBytes, e.bytes);
    const auto piece = bytes.subspan(from - at_, std::min(end - from, wanted_bytes - entry_.size()));
    entry_.insert(entry_.end(), piece.begin(), piece.end());
    if (found_ || entry_.size() < wanted_bytes) continue;
    found_ = wanted_(entry_);
    if (found_) {
      entry_.reserve(std::min<uint64_t>(e.bytes, kReserved));
    } else {
      entry_.clear();
      ++current_;
    }
  }
  at_ = end;
}

std::vector<uint8_t> EntryPicker::release_entry() {
  return found_ ? std::move(entry_) : std::vector<uint8_t>();
}

}  // namespace fmha::emu

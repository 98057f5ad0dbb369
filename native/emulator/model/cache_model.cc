// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/cache_model.h"

#include <algorithm>
#include <new>

namespace fmha::emu {

SetCache::SetCache(uint64_t bytes, uint32_t ways) : sets_(bytes / kLineBytes / ways), ways_(ways) {
  lines_.reset(static_cast<Line*>(std::calloc(sets_ * ways_, sizeof(Line))));
  if (!lines_) throw std::bad_alloc();
}

SetCache::Line* SetCache::find(uint64_t number) {
  Line* set = set_of(number);
  for (uint32_t w = 0; w < ways_ && set[w].number_plus_1; ++w) {
    if (set[w].number_plus_1 != number + 1) continue;
    std::rotate(set, set + w, set + w + 1);
    return set;
  }
  return nullptr;
}

SetCache::Line& SetCache::insert(uint64_t number, Line* victim) {
  Line* set = set_of(number);
  if (!set->number_plus_1) used_.push_back(static_cast<uint32_t>(index_of(number)));
  *victim = set[ways_ - 1];
  std::move_backward(set, set + ways_ - 1, set + ways_);
  *set = Line{number + 1, 0, 0};
  return *set;
}

LineMask line_mask(uint64_t first, uint64_t bytes) {
  const LineMask ones = bytes >= kLineBytes ? ~LineMask{0} : (LineMask{1} << bytes) - 1;
  return ones << first;
}

CacheModel::CacheModel() {
  if (profile_card().mall_bytes.value)
    mall_.emplace(profile_card().mall_bytes.value, profile_card().mall_ways.value);
  for (uint64_t i = 0; i < profile_card().xcds.value; ++i)
    l2_.emplace_back(profile_card().l2_bytes_per_xcd.value, profile_card().l2_ways.value);
}

CacheLevel CacheModel::fill(SetCache::Line& line) {
  const uint64_t number = line.number_plus_1 - 1;
  line.fetched = 1;
  counts_.l2_fill_bytes += kLineBytes;
  if (mall_ && mall_->find(number)) {
    ++counts_.mall_hits;
    return CacheLevel::kMall;
  }
  ++counts_.mall_misses;
  counts_.hbm_read_bytes += kLineBytes;
  SetCache::Line clean;
  if (mall_) mall_->insert(number, &clean);
  return CacheLevel::kHbm;
}

void CacheModel::write_back(const SetCache::Line& line) {
  if (!line.dirty) return;
  const uint64_t number = line.number_plus_1 - 1;
  counts_.l2_writeback_bytes += kLineBytes;
  counts_.hbm_write_bytes += kLineBytes;
  SetCache::Line clean;
  if (mall_ && !mall_->find(number)) mall_->insert(number, &clean);
}

CacheLevel CacheModel::access(uint64_t workgroup, uint64_t number, LineMask mask, AccessKind kind) {
  // Workgroups go to the XCDs in turn.
  SetCache& l2 = l2_[workgroup % profile_card().xcds.value];
  ++counts_.l2_requests;
  SetCache::Line* line = l2.find(number);
  bool hit = line != nullptr;
  CacheLevel level = CacheLevel::kL2;
  if (!line) {
    SetCache::Line victim;
    line = &l2.insert(number, &victim);
    write_back(victim);
  }
  if (kind != AccessKind::kWrite && !line->fetched && (mask & ~line->dirty)) {
    hit = false;
    level = fill(*line);
  }
  if (kind != AccessKind::kRead) line->dirty |= mask;
  counts_.l2_hits += hit;
  return level;
}

void CacheModel::access_range(uint64_t workgroup, uint64_t address, uint64_t bytes, AccessKind kind) {
  while (bytes) {
    const uint64_t first = address % kLineBytes;
    const uint64_t n = std::min(bytes, kLineBytes - first);
    access(workgroup, address / kLineBytes, line_mask(first, n), kind);
    address += n;
    bytes -= n;
  }
}

void CacheModel::end_kernel() {
  for (SetCache& l2 : l2_) l2.clear([this](const SetCache::Line& line) { write_back(line); });
}

}  // namespace fmha::emu

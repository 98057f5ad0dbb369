// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/wave_trace.h"

namespace fmha::emu {
namespace {

constexpr uint64_t kL1Bytes = 32768;  // AMD CDNA 3 architecture white paper
constexpr uint32_t kL1Ways = 64;      // AMD Instinct MI300 (CDNA3) ISA: 64-way set-associative

}  // namespace

L1Model::L1Model() : lines_(kL1Bytes, kL1Ways) {}

bool L1Model::load(uint64_t line) {
  if (lines_.find(line)) return true;
  SetCache::Line victim;
  lines_.insert(line, &victim);
  return false;
}

void L1Model::clear() {
  lines_.clear([](const SetCache::Line&) {});
}

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine/pool.h"

namespace fmha::onnxruntime {
namespace {

// Sizes that grow a little from run to run, as those of caches do, find the same block for a while.
size_t rounded(size_t bytes) {
  size_t step = 512;
  while (step < bytes / 8) step *= 2;
  return (bytes + step - 1) / step * step;
}

}  // namespace

void* Pool::take(size_t bytes, HipStream stream) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  bytes = stream != nullptr ? rounded(bytes) : bytes;
  if (stream != nullptr) {
    Free& blocks = free_[stream];
    const auto found = blocks.lower_bound(bytes);
    if (found != blocks.end() && found->first <= 2 * bytes) {
      void* data = found->second;
      taken_[data] = {found->first, stream};
      blocks.erase(found);
      return data;
    }
  }
  void* data = allocate(bytes);
  taken_[data] = {bytes, stream};
  return data;
}

void* Pool::allocate(size_t bytes) {
  const CurrentDevice current(device_);
  void* data = nullptr;
  if (hip().malloc(&data, bytes) == 0) return data;
  (void)hip().get_last_error();
  for (auto& [stream, blocks] : free_) release(blocks);
  check_hip(hip().malloc(&data, bytes), "hipMalloc");
  return data;
}

void Pool::give(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(data);
  if (found == taken_.end()) return;
  const Block block = found->second;
  taken_.erase(found);
  if (block.stream != nullptr) {
    free_[block.stream].emplace(block.bytes, data);
  } else {
    (void)hip().free(data);
  }
}

void Pool::retire(HipStream stream) noexcept {
  const std::lock_guard lock(mutex_);
  release(free_[stream]);
  free_.erase(stream);
  for (auto& [data, block] : taken_) {
    if (block.stream == stream) block.stream = nullptr;
  }
}

void Pool::release(Free& blocks) noexcept {
  for (const auto& [bytes, data] : blocks) (void)hip().free(data);
  blocks.clear();
}

}  // namespace fmha::onnxruntime

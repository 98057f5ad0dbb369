// SPDX-License-Identifier: MIT OR Apache-2.0
#include "host_memory.h"

#include <algorithm>

namespace fmha::jax {

std::vector<Range> merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (range.begin == range.end) continue;
    if (!result.empty() && range.begin < result.back().end) {
      result.back().end = std::max(result.back().end, range.end);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

HostMemory::HostMemory(const fmha_jax_device& device, const std::vector<Buffer>& buffers) : device_(device) {
  std::vector<Range> ranges;
  for (const Buffer& buffer : buffers) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data);
    ranges.push_back({begin, begin + static_cast<uintptr_t>(buffer.bytes)});
  }
  ranges = merged(std::move(ranges));
  registered_.reserve(ranges.size());
  for (const Range& range : ranges) {
    auto* data = reinterpret_cast<void*>(range.begin);
    const size_t bytes = range.end - range.begin;
    if (const int error = device_.host_register(data, bytes, 0)) {
      (void)device_.get_last_error();
      // The destructor of an object that is not finished does not run.
      for (const Range& done : registered_) device_.host_unregister(reinterpret_cast<void*>(done.begin));
      raise(XLA_FFI_Error_Code_INTERNAL,
            "hipHostRegister (%p, %zu bytes of XLA's): %s; is the memory in use by another "
            "library on the software device?",
            data, bytes, device_.get_error_name(error));
    }
    registered_.push_back(range);
  }
}

HostMemory::~HostMemory() {
  for (const Range& range : registered_) device_.host_unregister(reinterpret_cast<void*>(range.begin));
}

}  // namespace fmha::jax

// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory of the process, lent to the software device.
#pragma once

#include <cstdint>
#include <vector>

#include "frame.h"

namespace fmha::jax {

struct Range {
  uintptr_t begin, end;
  bool operator==(const Range&) const = default;
};

// The same bytes in ranges that do not overlap, which is what a runtime takes; those that only touch stay
// apart.
std::vector<Range> merged(std::vector<Range> ranges);

// Memory that has been registered is unregistered again, whatever happens. Other memory must not be lent
// meanwhile that overlaps this.
class HostMemory {
 public:
  HostMemory(const fmha_jax_device& device, const std::vector<Buffer>& buffers);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

 private:
  const fmha_jax_device& device_;
  std::vector<Range> registered_;
};

}  // namespace fmha::jax

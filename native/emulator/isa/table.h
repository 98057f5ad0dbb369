// SPDX-License-Identifier: MIT OR Apache-2.0
// What isa/select.cc sees of the copies of the instruction table: one for each level of the host's vector
// instructions and each wave size.
#pragma once

#include <span>
#include <vector>

#include "isa/inst.h"

namespace fmha::emu {

using TableParts = std::vector<std::span<const Row>>;

namespace v2 {
TableParts table_parts();
}
namespace v2_w32 {
TableParts table_parts();
}
namespace v3 {
TableParts table_parts();
}
namespace v3_w32 {
TableParts table_parts();
}
namespace v4 {
TableParts table_parts();
}
namespace v4_w32 {
TableParts table_parts();
}

}  // namespace fmha::emu

// SPDX-License-Identifier: MIT OR Apache-2.0
// What isa/select.cc sees of the three copies of the instruction table.
#pragma once

#include <span>

#include "isa/inst.h"

namespace fmha::emu {

constexpr int kTableParts = 18;

// Each writes kTableParts spans.
namespace v2 {
void table_parts(std::span<const Row>* out);
}
namespace v3 {
void table_parts(std::span<const Row>* out);
}
namespace v4 {
void table_parts(std::span<const Row>* out);
}

}  // namespace fmha::emu

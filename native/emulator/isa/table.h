// SPDX-License-Identifier: MIT OR Apache-2.0
// The instruction table, and what isa/select.cc sees of its copies: one for each level of the host's vector
// instructions and each wave size.
#pragma once

#include <span>
#include <vector>

#include "core/inst.h"

namespace fmha::emu {

// The table for waves of 32 or 64 lanes: the same rows in the same order, with bodies that were compiled for
// the best level that the CPU can run. That of 32 lanes lacks MFMA, and has other types of WMMA's operands.
std::span<const Row> isa_rows(int wave_size);
// The rows that an arch has in waves of that size, bound to its opcodes; made at first use.
std::span<const BoundRow> isa_rows(Arch arch, int wave_size);
const char* isa_level();  // "x86-64-v2", "x86-64-v3" or "x86-64-v4"

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

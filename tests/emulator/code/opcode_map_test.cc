// SPDX-License-Identifier: MIT OR Apache-2.0
// The decoder's map refuses what no table may say: two rows with one opcode, and an opcode out of range.
#include "code/opcode_map.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "isa/table.h"

using namespace fmha::emu;

namespace {

constexpr uint32_t kVop3OfVop1 = 0x140;  // as on gfx9
BoundRow row(const char* mnemonic, Format format, uint16_t opcode, RowFlags flags = 0) {
  return {{mnemonic, Type::kI32, {Type::kI32}, flags, nullptr}, format, opcode, 0};
}

// A process that asks for the map of an arch whose table is wrong.
TEST_CASE("a wrong table ends the process") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    opcode_map(kDefaultArch, 64);
    _exit(0);
  }
  close(ends[1]);
  char text[256] = "";
  const ssize_t n = read(ends[0], text, sizeof text - 1);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_MESSAGE(std::string(text, n > 0 ? static_cast<size_t>(n) : 0) ==
                    std::string("amdhip64 software device: ") + arch_name(kDefaultArch) +
                        ": v_a and v_b have one opcode, 0x1\n",
                "the message");
  CHECK_MESSAGE((WIFSIGNALED(status) ? WTERMSIG(status) : 0) == SIGABRT, "the signal");
}

std::string filled(const std::vector<BoundRow>& rows) { return OpcodeMap().fill(rows, kVop3OfVop1); }

}  // namespace

// Stands in for isa/opcodes.cc: a table that no arch has.
std::span<const BoundRow> fmha::emu::isa_rows(Arch, int) {
  static const BoundRow kRows[] = {row("v_a", Format::kVop1, 1), row("v_b", Format::kVop1, 1)};
  return kRows;
}

TEST_CASE("what one map takes") {
  CHECK_MESSAGE(filled({row("v_a", Format::kVop1, 1), row("v_b", Format::kVop1, 2)}) == "", "opcodes apart");
  CHECK_MESSAGE(filled({row("v_a", Format::kVop1, 1), row("s_b", Format::kSop1, 1)}) == "", "formats apart");
  CHECK_MESSAGE(filled({row("v_a", Format::kVop1, 1), row("v_b", Format::kVop1, 1)}) ==
                    "v_a and v_b have one opcode, 0x1",
                "one opcode");
  CHECK_MESSAGE(filled({row("v_a", Format::kVop1, 1), row("v_a", Format::kVop1, 1)}) ==
                    "v_a and v_a have one opcode, 0x1",
                "one row twice");
  CHECK_MESSAGE(filled({row("v_a", Format::kVop3, 5), row("v_b", Format::kVop3b, 5)}) ==
                    "v_a and v_b have one opcode, 0x5",
                "formats of one encoding");
  CHECK_MESSAGE(filled({row("v_a", Format::kVop3, 0x103), row("v_b", Format::kVop2, 3)}) ==
                    "v_a and v_b have one opcode, 0x103",
                "the VOP3 form of a VOP2 row");
  CHECK_MESSAGE(filled({row("v_a", Format::kVop3, 0x103), row("v_b", Format::kVop2, 3, kOneForm)}) == "",
                "a VOP2 row without one");
  CHECK_MESSAGE(filled({row("v_a", Format::kVop3, 1024)}) == "opcode 0x400 of v_a is out of range",
                "out of range");
}

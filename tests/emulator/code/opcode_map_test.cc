// SPDX-License-Identifier: MIT OR Apache-2.0
// The decoder's map refuses what no table may say: two rows with one opcode, and an opcode out of range.
#include "code/opcode_map.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "isa/table.h"

using namespace fmha::emu;

namespace {

constexpr uint32_t kVop3OfVop1 = 0x140;  // as on gfx9
int failures = 0;

void expect(const char* what, const std::string& got, const std::string& expected) {
  if (got == expected) return;
  std::fprintf(stderr, "%s: got \"%s\", expected \"%s\"\n", what, got.c_str(), expected.c_str());
  ++failures;
}

BoundRow row(const char* mnemonic, Format format, uint16_t opcode, RowFlags flags = 0) {
  return {{mnemonic, Type::kI32, {Type::kI32}, flags, nullptr}, format, opcode, 0};
}

// A process that asks for the map of an arch whose table is wrong.
void expect_abort() {
  int ends[2];
  if (pipe(ends)) return;
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
  expect("the message", std::string(text, n > 0 ? static_cast<size_t>(n) : 0),
         std::string("amdhip64 software device: ") + arch_name(kDefaultArch) +
             ": v_a and v_b have one opcode, 0x1\n");
  expect("the signal", std::to_string(WIFSIGNALED(status) ? WTERMSIG(status) : 0), std::to_string(SIGABRT));
}

std::string filled(const std::vector<BoundRow>& rows) { return OpcodeMap().fill(rows, kVop3OfVop1); }

}  // namespace

// Stands in for isa/opcodes.cc: a table that no arch has.
std::span<const BoundRow> fmha::emu::isa_rows(Arch, int) {
  static const BoundRow kRows[] = {row("v_a", Format::kVop1, 1), row("v_b", Format::kVop1, 1)};
  return kRows;
}

int main() {
  expect("opcodes apart", filled({row("v_a", Format::kVop1, 1), row("v_b", Format::kVop1, 2)}), "");
  expect("formats apart", filled({row("v_a", Format::kVop1, 1), row("s_b", Format::kSop1, 1)}), "");
  expect("one opcode", filled({row("v_a", Format::kVop1, 1), row("v_b", Format::kVop1, 1)}),
         "v_a and v_b have one opcode, 0x1");
  expect("one row twice", filled({row("v_a", Format::kVop1, 1), row("v_a", Format::kVop1, 1)}),
         "v_a and v_a have one opcode, 0x1");
  expect("formats of one encoding", filled({row("v_a", Format::kVop3, 5), row("v_b", Format::kVop3b, 5)}),
         "v_a and v_b have one opcode, 0x5");
  expect("the VOP3 form of a VOP2 row",
         filled({row("v_a", Format::kVop3, 0x103), row("v_b", Format::kVop2, 3)}),
         "v_a and v_b have one opcode, 0x103");
  expect("a VOP2 row without one",
         filled({row("v_a", Format::kVop3, 0x103), row("v_b", Format::kVop2, 3, kOneForm)}), "");
  expect("out of range", filled({row("v_a", Format::kVop3, 1024)}), "opcode 0x400 of v_a is out of range");
  expect_abort();
  return failures ? 1 : 0;
}

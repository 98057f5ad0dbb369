// SPDX-License-Identifier: MIT OR Apache-2.0
#include "report.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fmha::fuzz {
namespace {

// Returns whether a message names an argument.
bool names_a_field(const char* message) {
  constexpr const char* kNames[] = {
      "dtype",         "batch",     "seqlen",      "nhead",    "hdim",         "softmax_scale",
      "mask",          "window_",   "q.",          "k.",       "v.",           "o.",
      "o is",          "lse",       "softcap",     "bias",     "alibi_slopes", "alibi_str",
      "cu_seqlens",    "seqused",   "total_",      "p_drop",   "kernel =",     "philox",
      "randval",       "descale",   "struct_size", "reserved", "fwd->",        "fwd is",
      "fwd =",         "dout",      "dq",          "dk",       "dv",           "accumulate",
      "deterministic", "workspace", "cache",       "parts",    "positions",    "rotary",
      "slots",         "splits",    "leftpad",     "sinks",    "q_out",        "flags",
      "q is",          "total =",   "x.",          "x is",     "out.",         "out is",
      "out_dtype",     "hadamard",  "scale_unit",  "given",    "heads_per",    "block_tok",
  };
  for (const char* name : kNames) {
    if (std::strstr(message, name) != nullptr) return true;
  }
  return false;
}

}  // namespace

void print_counts_at_exit(const Counts& counts) {
  static const Counts* const printed = &counts;
  static const bool registered =
      std::atexit([] {
        const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
        std::fprintf(stderr,
                     "fuzz: %llu cases: %llu refused, %llu accepted, of them %llu launched and %llu empty\n",
                     number(printed->cases), number(printed->refused), number(printed->accepted),
                     number(printed->launched), number(printed->empty));
      }) == 0;
  (void)registered;
}

std::function<void()> print_case = [] {};

void report(const char* format, ...) {
  std::fprintf(stderr, "\nfuzz: FOUND: ");
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "\nlast message: %s\n", fmha_last_error());
  print_case();
  std::abort();
}

void check_refusal(const char* call, fmha_status status, const Device& device) {
  const char* message = fmha_last_error();
  if (status != FMHA_INVALID_ARGUMENT && status != FMHA_UNSUPPORTED && status != FMHA_ABI_MISMATCH) {
    report("%s gave status %" PRId32, call, status);
  }
  if (message[0] == '\0') report("%s gave status %" PRId32 " without a message", call, status);
  if (!names_a_field(message)) report("%s: the message names no argument", call);
  if (device.last_error() != 0) report("%s left an error in HIP", call);
}

void put_lengths(const Case& c, Device& device) {
  const auto put = [&](Region region, const std::vector<int32_t>& values) {
    if (!values.empty()) device.put(region, values.data(), values.size() * sizeof values[0]);
  };
  put(kCuQ, c.cu_q);
  put(kCuK, c.cu_k);
  put(kUsedQ, c.used_q);
  put(kUsedK, c.used_k);
}

const char* difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  for (int i = 0; i < kRegionCount; ++i) {
    const auto region = static_cast<Region>(i);
    const size_t at = Device::offset(region);
    if (std::memcmp(a.data() + at, b.data() + at, Device::bytes(region)) != 0) return name_of(region);
  }
  return nullptr;
}

// A call that must not touch memory.
void check_untouched(const char* call, const Device& device) {
  const char* fault = nullptr;
  device.synchronize(&fault);
  if (fault != nullptr) report("%s: the device stopped: %s", call, fault);
  if (const char* region = device.changed()) report("%s wrote to %s", call, region);
}

}  // namespace fmha::fuzz

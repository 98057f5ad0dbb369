// SPDX-License-Identifier: MIT OR Apache-2.0
// A handler's view of XLA: buffers, attributes, a stream, and the error that it returns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fmha_rocm_jax.h"

namespace fmha::jax {

// Ends a call: what XLA reports.
struct Error {
  XLA_FFI_Error_Code code;
  std::string message;
};

[[noreturn]] __attribute__((format(printf, 2, 3))) void raise(XLA_FFI_Error_Code code, const char* format,
                                                              ...);

struct Buffer {
  char* data;
  int64_t bytes;
};

// Arguments, then results.
std::vector<Buffer> buffers_of(const XLA_FFI_CallFrame& frame);

std::span<const int64_t> attribute(const XLA_FFI_CallFrame& frame, const char* name);

void* stream_of(const XLA_FFI_CallFrame& frame);

// Answers XLA's question about the interface's version and the handler's traits. False: it asked something
// else.
bool answer_metadata(const XLA_FFI_CallFrame& frame, XLA_FFI_Handler_Traits traits);

XLA_FFI_Error* make_error(const XLA_FFI_CallFrame& frame, XLA_FFI_Error_Code code, const char* message);

}  // namespace fmha::jax

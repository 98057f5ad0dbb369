// SPDX-License-Identifier: MIT OR Apache-2.0
// Limits that CK's kernels of several families share. A check that fails says why, by the name of an
// argument.
#pragma once

#include <cstdint>

#include "error.h"
#include "memory/view.h"
#include "origins/ck/fwd.h"
#include "problem/fwd.h"

namespace fmha::ck {

// LSE offsets are int32 bytes, and a store past the last row is dropped by adding 2 GiB to its address, so
// that seqlen_q * 4 must stay below that. It also keeps the masks' int32 sums of two lengths from
// overflowing.
inline constexpr int64_t kMaxSeqlen = (int64_t{1} << 29) - kTileRows;

bool dim_fits(const char* name, int64_t value, int64_t most, Refusal& why);

// `align_bytes` is a power of two.
bool strides_fit(const View& view, int64_t align_bytes, Refusal& why);

// What one (batch, head) spans, padded to whole tiles, must fit the 32-bit offsets inside a kernel.
bool span_fits(const View& view, bool written, Refusal& why);

// Both, and the address.
bool tensor_fits(const View& view, bool written, Refusal& why);

bool dropout_fits(const char* name, const FwdProblem& problem, Refusal& why);
// Messages begin with `prefix`, of the struct that has the field.
bool softcap_fits(const char* prefix, const FwdProblem& problem, Refusal& why);
bool biases_fit(const char* prefix, const FwdProblem& problem, Refusal& why);
bool alibi_fits(const char* name, const FwdProblem& problem, Refusal& why);

}  // namespace fmha::ck

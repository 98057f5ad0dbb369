// SPDX-License-Identifier: MIT OR Apache-2.0
// Limits that kernels of several origins and families share. A check that fails says why, by the name of an
// argument.
#pragma once

#include <algorithm>
#include <cstdint>

#include "error.h"
#include "memory/view.h"
#include "problem/bwd.h"
#include "problem/fwd.h"

namespace fmha::origins {

// Rows a kernel may address beyond a tensor's end are those that fill its last tile. The height of every tile
// divides this.
inline constexpr int64_t kTileRows = 256;
static_assert((kTileRows & (kTileRows - 1)) == 0, "lengths are rounded up to it by its bits");

// LSE offsets are int32 bytes, and a store past the last row is dropped by adding 2 GiB to its address, so
// that seqlen_q * 4 must stay below that. It also keeps the masks' int32 sums of two lengths from
// overflowing.
inline constexpr int64_t kMaxSeqlen = (int64_t{1} << 29) - kTileRows;

// The stride that a kernel is handed of a dimension: the caller's, or for a dimension of size one a
// stride that is aligned and small, and steps over the row, so that rows past the end lie past the end.
inline int64_t kernel_stride(const View& v, Dimension i) {
  return v.size[i] > 1 ? v.stride[i] : std::min<int64_t>(v.row, INT32_MAX / kTileRows);
}

bool dim_fits(const char* name, int64_t value, int64_t most, Refusal& why);

// The limit of kernels that others wrote, whose grid has the batch in z.
bool batch_fits_z(const char* name, int64_t batch, Refusal& why);

// `align_bytes` is a power of two.
bool strides_fit(const View& view, int64_t align_bytes, Refusal& why);

// A kernel has 32-bit offsets: one (batch, head), padded to whole tiles, must not span more.
bool span_fits(const View& view, bool written, Refusal& why);

// Both, and the address.
bool tensor_fits(const View& view, bool written, Refusal& why);

bool dropout_fits(const char* name, const FwdProblem& problem, Refusal& why);
// Messages begin with `prefix`, of the struct that has the field.
bool softcap_fits(const char* prefix, const FwdProblem& problem, Refusal& why);
bool biases_fit(const char* prefix, const FwdProblem& problem, Refusal& why);
bool alibi_fits(const char* name, const FwdProblem& problem, Refusal& why);
bool v_descale_fits(const FwdProblem& problem, Refusal& why);

// Returns false, with the reason in `why`, if no kernel that loads whole tiles could do the problem.
bool fwd_within_limits(const FwdProblem& problem, Refusal& why);

// Lengths, strides and factors of a backward call, as all kernels count them. Fails like the next one.
bool bwd_is_countable(const BwdProblem& problem, Refusal& why);

// The same of a backward problem.
bool bwd_within_limits(const BwdProblem& problem, Refusal& why);

}  // namespace fmha::origins

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/mask.h"

#include <cinttypes>

#include "error.h"

namespace fmha {
namespace {

int64_t window_side(const char* name, int64_t value, int64_t seqlen_k) {
  if (value < 0) {
    raise(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected 0 or more (seqlen_k or more for no limit)", name,
          value);
  }
  return value >= seqlen_k ? Mask::kUnlimited : value;
}

}  // namespace

Mask make_mask(fmha_mask kind, int64_t window_left, int64_t window_right, int64_t seqlen_k) {
  Mask mask = {Mask::kUnlimited, Mask::kUnlimited, false};
  switch (kind) {
    case FMHA_MASK_NONE:
      return mask;
    case FMHA_MASK_CAUSAL_TOP_LEFT:
      mask.top_left = true;
      [[fallthrough]];
    case FMHA_MASK_CAUSAL:
      mask.right = 0;
      return mask;
    case FMHA_MASK_WINDOW_TOP_LEFT:
      mask.top_left = true;
      [[fallthrough]];
    case FMHA_MASK_WINDOW:
      mask.left = window_side("window_left", window_left, seqlen_k);
      mask.right = window_side("window_right", window_right, seqlen_k);
      return mask;
    default:
      raise(FMHA_INVALID_ARGUMENT, "mask = %" PRId32 ": expected one of FMHA_MASK_* (0 to 4)", kind);
  }
}

void drop_idle_sides(Mask& mask, int64_t seqlen_q, int64_t seqlen_k) {
  // A right side cuts most off the first row, whose column is 0 (top-left) or seqlen_k - seqlen_q.
  if (mask.right >= (mask.top_left ? seqlen_k : seqlen_q) - 1) mask.right = Mask::kUnlimited;
  // A left side cuts most off the last row, whose column is seqlen_q - 1 (top-left) or the last key.
  if (mask.left >= (mask.top_left ? seqlen_q : seqlen_k) - 1) mask.left = Mask::kUnlimited;
}

}  // namespace fmha

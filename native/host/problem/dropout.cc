// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/dropout.h"

#include "error.h"

namespace fmha {

void check_dropout(float p_drop, const void* randval) {
  if (!(p_drop >= 0.0F && p_drop < 1.0F)) {
    raise(FMHA_INVALID_ARGUMENT, "p_drop = %g: expected a chance from 0 to below 1", double{p_drop});
  }
  if (p_drop == 0.0F && randval != nullptr) {
    raise(FMHA_INVALID_ARGUMENT, "randval.data = %p: expected NULL if p_drop = 0, without random numbers",
          randval);
  }
}

}  // namespace fmha

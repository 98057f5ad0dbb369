// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/plan.h"

#include "error.h"

namespace fmha {

Step& Plan::add(Step::Kind kind) {
  if (count_ == kMostSteps) raise(FMHA_INTERNAL, "a call takes more steps than Plan holds");
  Step& step = steps_[count_++];
  step.kind = kind;
  return step;
}

}  // namespace fmha

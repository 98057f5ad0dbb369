// SPDX-License-Identifier: MIT OR Apache-2.0
// The sizes that an operator's calls over a cache share.
#pragma once

#include <cstdint>

#include "fmha_rocm.hpp"

namespace fmha::onnxruntime {

// Params: fmha::fwd_params or fmha::kv_append_params. Values are as wide as keys.
template <class Params>
Params sized(fmha_dtype dtype, int64_t batch, int64_t nhead_q, int64_t nhead_k, int64_t hdim) {
  Params params;
  params.dtype = dtype;
  params.batch = batch;
  params.nhead_q = nhead_q;
  params.nhead_k = nhead_k;
  params.hdim_q = params.hdim_v = hdim;
  return params;
}

}  // namespace fmha::onnxruntime

// SPDX-License-Identifier: MIT OR Apache-2.0
// Problems out of the fuzzer's bytes: one that makes sense and is small, then a few fields set to what a
// caller might get wrong.
#pragma once

#include <cstdint>
#include <vector>

#include "bytes.h"
#include "device.h"
#include "fmha_rocm.h"

namespace fmha::fuzz {

struct Case {
  fmha_fwd_params params;
  // Contents of the arrays on the device when it runs; empty: not used.
  std::vector<int32_t> cu_q, cu_k, used_q, used_k;
  int mutations = 0;

  // The struct as bytes, of params.struct_size where that is a size that can be read, in memory that ends
  // with it: a sanitizer sees a read behind.
  std::vector<uint8_t> raw;

  const fmha_fwd_params* pointer() const { return reinterpret_cast<const fmha_fwd_params*>(raw.data()); }
};

Case make_case(Bytes& bytes, const Device& device);

// Its two halves: the problem that makes sense, and what is wrong with it, which makes `raw` too.
Case make_sound(Bytes& bytes, const Device& device);
void make_wrong(Bytes& bytes, const Device& device, Case& c);

// A tensor of `rows` rows a batch, in one of the usual layouts, perhaps with room between rows.
fmha_tensor make_tensor(Bytes& bytes, uint8_t* data, int64_t rows, int64_t heads, int64_t hdim);

// A struct as bytes, with a struct_size that may be wrong: then `mutations` is one more. Fields that
// an older, shorter struct lacks are zero in `params`, too.
template <typename Params>
std::vector<uint8_t> make_raw(Bytes& bytes, Params& params, int& mutations);

// Every field, one a line, for the report of a finding.
void print(const Case& c);

int64_t element_bytes(fmha_dtype dtype);

inline bool is_fp8(fmha_dtype dtype) { return element_bytes(dtype) == 1; }

}  // namespace fmha::fuzz

// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention over the keys of one tensor for each of K and V, past ones and new ones: what MultiHeadAttention
// and ONNX's Attention have in common.
#pragma once

#include <cstdint>

#include "engine/call.h"
#include "engine/node.h"
#include "fmha_rocm.hpp"

namespace fmha::onnxruntime {

constexpr int64_t kStandIn = 16;  // for a length that only a run knows

// Addresses that stand for memory in questions to the library, which does not look at it. Tensors of
// different numbers do not overlap.
void* no_memory(int number);

// Throws for a type that no kernel has.
fmha_dtype dtype_of(const Value& value, const char* name);
size_t bytes_of(fmha_dtype dtype);

// The size of a dimension, or this one if only a run knows it.
int64_t size_or(const Value& value, size_t dim, int64_t otherwise);

// The size of a dimension that must be known before a run.
int64_t size_of(const Value& value, size_t dim, const char* name);

// Throws unless the node leaves the value out.
void expect_none(const Value& value, const char* name);

// An attribute `scale`, or 1 / sqrt(hdim) if it is left out.
float scale_of(const Node& node, int64_t hdim, bool zero_is_default);

// Keys to the left of a query's own that an attribute local_window_size, which is above 0, lets it see. The
// query's own key counts from ONNX Runtime 1.24 on.
int64_t window_left(int64_t local_window_size);

// (batch, nhead, seqlen, hdim)
fmha::tensor heads_first(void* data, int64_t nhead, int64_t seqlen, int64_t hdim);

// Run with the workspace that they ask for.
void forward(const Call& call, fmha::fwd_params params);
void decode(const Call& call, fmha::decode_params params);

// Copies the rows of a past (batch, nhead, past, hdim) to the beginning of those of a present.
void copy_past(const Call& call, const Tensor& past, const Tensor& present, size_t element_bytes);

struct Sizes {
  int64_t batch, seqlen_q, seqlen_new, past;
  int64_t seqlen_k() const { return past + seqlen_new; }
};

// Where a run finds the tensors, in the slots of the operator's schema.
struct DenseSlots {
  size_t bias, past_key, past_value, present_key, present_value;
  size_t key_lengths = SIZE_MAX;  // int32 (batch): keys of each sequence that count, the first ones
};

struct Dense {
  fmha_dtype dtype = 0;
  int64_t nhead_q = 0, nhead_k = 0, hdim_q = 0, hdim_v = 0;
  float scale = 0, softcap = 0;
  bool causal = false;
  DenseSlots slots{};

  // Throws if no kernel does the node, of these sizes as far as they are known.
  void check_supported(const Node& node, const Sizes& sizes) const;

  // q, k, v and o have their data.
  void run(const Call& call, const Sizes& sizes, const fmha::tensor& q, const fmha::tensor& k,
           const fmha::tensor& v, const fmha::tensor& o) const;

 private:
  fmha::fwd_params params(const Sizes& sizes) const;
  void pack(const Sizes& sizes, const int32_t* starts, const int32_t* key_lengths,
            fmha::fwd_params& params) const;
  fmha::kv_append_params append(const Sizes& sizes, const fmha::cache& cache) const;
  fmha::cache cache(const Sizes& sizes, void* k, void* v) const;
  bool keeps(const Call& call) const;
  void forward_lengths(const Call& call, const Sizes& sizes, fmha::fwd_params attention) const;
};

// The past's length in a run; 0 without one.
int64_t past_length(const Call& call, size_t past_key);

}  // namespace fmha::onnxruntime

// SPDX-License-Identifier: MIT OR Apache-2.0
// com.microsoft MultiHeadAttention.
#include <array>

#include "ops/dense.h"
#include "ops/operator.h"

namespace fmha::onnxruntime {
namespace {

enum Input : size_t {
  kQuery,
  kKey,
  kValue,
  kProjectionBias,
  kKeyPaddingMask,
  kAttentionBias,
  kPastKey,
  kPastValue,
  kPastLength,
  kCacheIndirection
};
enum Output : size_t { kOutput, kPresentKey, kPresentValue, kScores };

enum class Layout {
  kSeparate,    // query (B, S, N H), key and value (B, L, N H)
  kHeadsFirst,  // key and value (B, N, L, H)
  kPackedKv,    // key (B, L, N, 2, H)
  kPackedQkv    // query (B, S, N, 3, H)
};

class MultiHead : public Operator {
 public:
  explicit MultiHead(const Node& node);
  void run(const Call& call) const override;

 private:
  void read_layout(const Node& node);
  void read_mask(const Node& node);
  fmha::tensor query(const Tensor& query, int64_t seqlen) const;
  std::array<fmha::tensor, 2> keys_values(const Call& call, const Tensor& query, int64_t* seqlen) const;

  Layout layout_ = Layout::kSeparate;
  Dense dense_;
};

void MultiHead::read_layout(const Node& node) {
  const Value& query = node.input(kQuery);
  const Value& key = node.input(kKey);
  const Value& value = node.input(kValue);
  const int64_t heads = dense_.nhead_q;
  if (query.rank() == 5) {
    layout_ = Layout::kPackedQkv;
    dense_.hdim_q = dense_.hdim_v = size_of(query, 4, "query");
    return;
  }
  if (query.rank() != 3) {
    fail(ORT_NOT_IMPLEMENTED, "rank of query: got %zu, expected 3 or 5", query.rank());
  }
  dense_.hdim_q = size_of(query, 2, "query") / heads;
  if (key.rank() == 5) {
    layout_ = Layout::kPackedKv;
    dense_.hdim_v = dense_.hdim_q;
  } else if (key.rank() == 4 && value.rank() == 4) {
    layout_ = Layout::kHeadsFirst;
    dense_.hdim_v = size_of(value, 3, "value");
  } else if (key.rank() == 3 && value.rank() == 3) {
    dense_.hdim_v = size_of(value, 2, "value") / heads;
  } else {
    fail(ORT_NOT_IMPLEMENTED,
         "ranks of key and value: got %zu and %zu, expected 3 and 3, 4 and 4 or 5 and none", key.rank(),
         value.rank());
  }
}

// The kernels read the first of its forms: the number of keys of each sequence.
void MultiHead::read_mask(const Node& node) {
  const Value& mask = node.input(kKeyPaddingMask);
  if (!mask.given()) return;
  if (mask.rank() != 1 || !(mask.dims[0] == node.input(kQuery).dims[0])) {
    fail(ORT_NOT_IMPLEMENTED, "key_padding_mask: got rank %zu, expected 1, and the batch that the query has",
         mask.rank());
  }
  if (layout_ == Layout::kHeadsFirst) {
    fail(ORT_NOT_IMPLEMENTED, "key_padding_mask: expected none with keys and values whose heads come first");
  }
  expect_none(node.input(kAttentionBias), "attention_bias with a key_padding_mask");
  expect_none(node.input(kPastKey), "past_key with a key_padding_mask");
  expect_none(node.output(kPresentKey), "present_key with a key_padding_mask");
  dense_.slots.key_lengths = kKeyPaddingMask;
}

MultiHead::MultiHead(const Node& node) {
  expect_none(node.input(kProjectionBias), "bias");
  expect_none(node.input(kPastLength), "past_sequence_length");
  expect_none(node.input(kCacheIndirection), "cache_indirection");
  expect_none(node.output(kScores), "output qk");
  dense_.dtype = dtype_of(node.input(kQuery), "query");
  dense_.nhead_q = dense_.nhead_k = node.integer("num_heads", 0);
  if (dense_.nhead_q < 1) fail(ORT_INVALID_ARGUMENT, "num_heads: got none, expected at least 1");
  dense_.causal = node.integer("unidirectional", 0) != 0;
  dense_.slots = {kAttentionBias, kPastKey, kPastValue, kPresentKey, kPresentValue};
  read_layout(node);
  read_mask(node);
  dense_.scale = scale_of(node, dense_.hdim_q, true);
  const Value& query = node.input(kQuery);
  const Value& key = layout_ == Layout::kPackedQkv ? query : node.input(kKey);
  const Value& past = node.input(kPastKey);
  dense_.check_supported(
      node, {.batch = size_or(query, 0, 1),
             .seqlen_q = size_or(query, 1, kStandIn),
             .seqlen_new = size_or(key, layout_ == Layout::kHeadsFirst ? 2 : 1, size_or(query, 1, kStandIn)),
             .past = past.given() ? size_or(past, 2, kStandIn) : 0});
}

fmha::tensor MultiHead::query(const Tensor& query, int64_t seqlen) const {
  const int64_t heads = dense_.nhead_q;
  const int64_t hdim = dense_.hdim_q;
  if (layout_ != Layout::kPackedQkv) return fmha::tensor::bshd(query.data, seqlen, heads, hdim);
  return {query.data, seqlen * heads * 3 * hdim, heads * 3 * hdim, 3 * hdim};
}

std::array<fmha::tensor, 2> MultiHead::keys_values(const Call& call, const Tensor& query,
                                                   int64_t* seqlen) const {
  const int64_t heads = dense_.nhead_q;
  const int64_t hdim = dense_.hdim_q;
  // The parts of a packed tensor lie side by side in each head.
  const auto part = [&](const Tensor& packed, int64_t parts, int64_t index) {
    char* data = packed.data + static_cast<size_t>(index * hdim) * bytes_of(dense_.dtype);
    return fmha::tensor(data, *seqlen * heads * parts * hdim, heads * parts * hdim, parts * hdim);
  };
  if (layout_ == Layout::kPackedQkv) {
    *seqlen = query.dim(1);
    return {part(query, 3, 1), part(query, 3, 2)};
  }
  const Tensor key = call.input(kKey);
  *seqlen = key.dim(layout_ == Layout::kHeadsFirst ? 2 : 1);
  if (layout_ == Layout::kPackedKv) return {part(key, 2, 0), part(key, 2, 1)};
  const Tensor value = call.input(kValue);
  if (layout_ == Layout::kHeadsFirst) {
    return {heads_first(key.data, heads, *seqlen, hdim),
            heads_first(value.data, heads, *seqlen, dense_.hdim_v)};
  }
  return {fmha::tensor::bshd(key.data, *seqlen, heads, hdim),
          fmha::tensor::bshd(value.data, *seqlen, heads, dense_.hdim_v)};
}

void MultiHead::run(const Call& call) const {
  const Tensor query_tensor = call.input(kQuery);
  Sizes sizes{.batch = query_tensor.dim(0), .seqlen_q = query_tensor.dim(1), .seqlen_new = 0, .past = 0};
  const auto [k, v] = keys_values(call, query_tensor, &sizes.seqlen_new);
  sizes.past = past_length(call, kPastKey);
  const int64_t dims[3] = {sizes.batch, sizes.seqlen_q, dense_.nhead_q * dense_.hdim_v};
  const Tensor output = call.output(kOutput, dims);
  dense_.run(call, sizes, query(query_tensor, sizes.seqlen_q), k, v,
             fmha::tensor::bshd(output.data, sizes.seqlen_q, dense_.nhead_q, dense_.hdim_v));
}

}  // namespace

std::unique_ptr<Operator> make_multi_head(const Node& node) { return std::make_unique<MultiHead>(node); }

}  // namespace fmha::onnxruntime

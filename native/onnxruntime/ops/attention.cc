// SPDX-License-Identifier: MIT OR Apache-2.0
// ai.onnx Attention, of opsets 23 to 25.
#include "ops/dense.h"
#include "ops/operator.h"

namespace fmha::onnxruntime {
namespace {

enum Input : size_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kNonpadLength };
enum Output : size_t { kOutput, kPresentKey, kPresentValue, kScores };
constexpr int kLastVersion = 25;

class Attention : public Operator {
 public:
  explicit Attention(const Node& node);
  void run(const Call& call) const override;

 private:
  fmha::tensor tensor(const Tensor& tensor, int64_t seqlen, int64_t heads, int64_t hdim) const;

  bool heads_first_;  // (B, N, S, H), and not (B, S, N H)
  Dense dense_;
};

Attention::Attention(const Node& node) : heads_first_(node.input(kQuery).rank() == 4) {
  if (node.version() > kLastVersion) {
    fail(ORT_NOT_IMPLEMENTED, "opset of Attention: got %d, expected 23 to %d", node.version(), kLastVersion);
  }
  expect_none(node.input(kNonpadLength), "nonpad_kv_seqlen");
  expect_none(node.output(kScores), "qk_matmul_output");
  for (const char* window : {"left_window_size", "right_window_size"}) {
    if (node.integer(window, -1) >= 0) fail(ORT_NOT_IMPLEMENTED, "%s: expected none", window);
  }
  if (node.integer("softmax_precision", 0) == ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE) {
    fail(ORT_NOT_IMPLEMENTED, "softmax_precision: got double, expected float or less");
  }
  const Value& query = node.input(kQuery);
  const Value& key = node.input(kKey);
  const Value& value = node.input(kValue);
  const size_t rank = heads_first_ ? 4 : 3;
  if (query.rank() != rank || key.rank() != rank || value.rank() != rank) {
    fail(ORT_NOT_IMPLEMENTED, "ranks of Q, K and V: got %zu, %zu and %zu, expected 3 or 4 of all",
         query.rank(), key.rank(), value.rank());
  }
  dense_.dtype = dtype_of(query, "Q");
  if (dtype_of(value, "V") != dense_.dtype) fail(ORT_NOT_IMPLEMENTED, "type of V: expected that of Q");
  dense_.nhead_q = heads_first_ ? size_of(query, 1, "Q") : node.integer("q_num_heads", 0);
  dense_.nhead_k = heads_first_ ? size_of(key, 1, "K") : node.integer("kv_num_heads", 0);
  if (dense_.nhead_q < 1 || dense_.nhead_k < 1) {
    fail(ORT_INVALID_ARGUMENT, "q_num_heads and kv_num_heads: expected both with three dimensions");
  }
  dense_.hdim_q = size_of(query, rank - 1, "Q") / (heads_first_ ? 1 : dense_.nhead_q);
  dense_.hdim_v = size_of(value, rank - 1, "V") / (heads_first_ ? 1 : dense_.nhead_k);
  dense_.scale = scale_of(node, dense_.hdim_q, false);
  dense_.softcap = node.number("softcap", 0);
  dense_.causal = node.integer("is_causal", 0) != 0;
  dense_.slots = {kMask, kPastKey, kPastValue, kPresentKey, kPresentValue};
  const Value& past = node.input(kPastKey);
  dense_.check_supported(node, {.batch = size_or(query, 0, 1),
                                .seqlen_q = size_or(query, rank - 2, kStandIn),
                                .seqlen_new = size_or(key, rank - 2, kStandIn),
                                .past = past.given() ? size_or(past, 2, kStandIn) : 0});
}

fmha::tensor Attention::tensor(const Tensor& tensor, int64_t seqlen, int64_t heads, int64_t hdim) const {
  return heads_first_ ? heads_first(tensor.data, heads, seqlen, hdim)
                      : fmha::tensor::bshd(tensor.data, seqlen, heads, hdim);
}

void Attention::run(const Call& call) const {
  const Tensor query = call.input(kQuery);
  const Tensor key = call.input(kKey);
  const Tensor value = call.input(kValue);
  const size_t rows = heads_first_ ? 2 : 1;
  const Sizes sizes{.batch = query.dim(0),
                    .seqlen_q = query.dim(rows),
                    .seqlen_new = key.dim(rows),
                    .past = past_length(call, kPastKey)};
  const Dense& d = dense_;
  const std::vector<int64_t> dims = heads_first_
                                        ? std::vector{sizes.batch, d.nhead_q, sizes.seqlen_q, d.hdim_v}
                                        : std::vector{sizes.batch, sizes.seqlen_q, d.nhead_q * d.hdim_v};
  const Tensor output = call.output(kOutput, dims);
  d.run(call, sizes, tensor(query, sizes.seqlen_q, d.nhead_q, d.hdim_q),
        tensor(key, sizes.seqlen_new, d.nhead_k, d.hdim_q),
        tensor(value, sizes.seqlen_new, d.nhead_k, d.hdim_v),
        tensor(output, sizes.seqlen_q, d.nhead_q, d.hdim_v));
}

}  // namespace

std::unique_ptr<Operator> make_attention(const Node& node) { return std::make_unique<Attention>(node); }

}  // namespace fmha::onnxruntime

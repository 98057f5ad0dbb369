// SPDX-License-Identifier: MIT OR Apache-2.0
// com.microsoft GroupQueryAttention: new keys and values, rotated, go to the present cache, and queries
// attend to it.
//
// | the run                        | what is read back to the host    | attention    |
// | ---                            | ---                              | ---          |
// | a prompt: all tokens are new   | total_sequence_length            | fmha_fwd     |
// | one new token, a fixed cache   | nothing                          | fmha_decode  |
// | one new token, a growing cache | total_sequence_length            | fmha_decode  |
// | several tokens after others    | total_sequence_length, seqlens_k | fmha_decode  |
//
// Prompts of a batch are padded at their ends: a query before the padding sees no key of it. A prompt is
// fmha_decode too where fmha_fwd has no kernel.
#include <algorithm>
#include <optional>

#include "ops/dense.h"
#include "ops/operator.h"
#include "ops/rotary.h"
#include "ops/sinks.h"
#include "ops/sized.h"

namespace fmha::onnxruntime {
namespace {

enum Input : size_t {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kSeqlensK,
  kTotalLength,
  kCos,
  kSin,
  kPositions,
  kAttentionBias,
  kHeadSink,
  kInputs
};
enum Output : size_t { kOutput, kPresentKey, kPresentValue, kScores };

// The lengths of a run. A prompt's tokens are all new.
struct Lengths {
  int64_t batch, seqlen, total, capacity;  // capacity: tokens of a sequence's present
  bool prompt;
};

// Tensors of a run that both calls read.
struct Tensors {
  fmha::tensor q, k, v;
  const int32_t* seqlens_k;
};

class GroupQuery : public Operator {
 public:
  explicit GroupQuery(const Node& node);
  void run(const Call& call) const override;

 private:
  void read_heads(const Node& node);
  void refuse(const Node& node) const;
  void find_kernels(const Node& node);
  Lengths lengths(const Call& call, const Tensor& query) const;
  Tensors tensors(const Call& call, const Tensor& query, const Lengths& lengths) const;
  fmha::fwd_params params(const Lengths& lengths) const;
  fmha::kv_append_params append(const Lengths& lengths, const fmha::cache& cache) const;
  fmha::cache cache(const Call& call, const Lengths& lengths) const;
  fmha::cache cache_of(void* k, void* v, const Lengths& lengths) const;
  Scratch lengths_before(const Call& call, const Lengths& lengths, const int32_t* seqlens_k) const;
  void store(const Call& call, const Lengths& lengths, const Tensors& tensors, const fmha::cache& cache,
             const fmha::tensor& rotated) const;
  void attend(const Call& call, const Lengths& lengths, const Tensors& tensors, const fmha::cache& cache,
              const fmha::tensor& o) const;

  fmha_dtype dtype_;
  int64_t nhead_q_, nhead_k_, hdim_ = 0, window_;
  bool packed_, fixed_, prompt_decodes_ = false;
  float scale_ = 0, softcap_;
  Rotary rotary_;
  Sinks sinks_;
};

// The present is as long as the past, which is then the whole cache, if the model calls both lengths the
// same.
bool is_fixed(const Node& node) {
  const Value& past = node.input(kPastKey);
  const Value& present = node.output(kPresentKey);
  return past.rank() == 4 && present.rank() == 4 && past.dims[2] == present.dims[2];
}

void GroupQuery::refuse(const Node& node) const {
  expect_none(node.input(kAttentionBias), "attention_bias");
  for (size_t slot = kInputs; slot < node.input_count(); slot++) {
    expect_none(node.input(slot), "an input behind head_sink");
  }
  expect_none(node.output(kScores), "output_qk");
  for (const char* name : {"k_quant_type", "v_quant_type"}) {
    const std::string type = node.text(name, "NONE");
    if (type != "NONE") fail(ORT_NOT_IMPLEMENTED, "%s: got %s, expected NONE", name, type.c_str());
  }
  if (node.integer("sliding_window_cache", 0) != 0) {
    fail(ORT_NOT_IMPLEMENTED, "sliding_window_cache: got 1, expected 0");
  }
  if (node.integer("causal", 1) != 1) fail(ORT_NOT_IMPLEMENTED, "causal: got 0, expected 1");
  if (!node.output(kPresentKey).given() || !node.output(kPresentValue).given()) {
    fail(ORT_NOT_IMPLEMENTED, "present_key and present_value: got none, expected both");
  }
}

void GroupQuery::read_heads(const Node& node) {
  if (nhead_q_ < 1 || nhead_k_ < 1) {
    fail(ORT_INVALID_ARGUMENT, "num_heads and kv_num_heads: got %lld and %lld, expected at least 1",
         static_cast<long long>(nhead_q_), static_cast<long long>(nhead_k_));
  }
  const Value& query = node.input(kQuery);
  if (query.rank() != 3) fail(ORT_NOT_IMPLEMENTED, "rank of query: got %zu, expected 3", query.rank());
  hdim_ = size_of(query, 2, "query") / (packed_ ? nhead_q_ + 2 * nhead_k_ : nhead_q_);
}

GroupQuery::GroupQuery(const Node& node)
    : dtype_(dtype_of(node.input(kQuery), "query")),
      nhead_q_(node.integer("num_heads", 0)),
      nhead_k_(node.integer("kv_num_heads", 0)),
      window_(node.integer("local_window_size", -1)),
      packed_(!node.input(kKey).given()),
      fixed_(is_fixed(node)),
      softcap_(node.number("softcap", 0)) {
  refuse(node);
  read_heads(node);
  scale_ = scale_of(node, hdim_, true);
  if (node.integer("do_rotary", 0) != 0) {
    rotary_ = Rotary(node, {.cos = kCos, .sin = kSin, .positions = kPositions}, dtype_);
  }
  sinks_ = Sinks(node, kHeadSink, nhead_q_, node.integer("smooth_softmax", 0) > 0);
  find_kernels(node);
}

fmha::fwd_params GroupQuery::params(const Lengths& lengths) const {
  auto params = sized<fmha::fwd_params>(dtype_, lengths.batch, nhead_q_, nhead_k_, hdim_);
  params.seqlen_q = lengths.seqlen;
  params.seqlen_k = lengths.total;
  params.softmax_scale = scale_;
  params.softcap = softcap_;
  params.mask = window_ > 0 ? FMHA_MASK_WINDOW : FMHA_MASK_CAUSAL;
  params.window_left = window_ > 0 ? window_left(window_) : 0;
  return params;
}

fmha::kv_append_params GroupQuery::append(const Lengths& lengths, const fmha::cache& cache) const {
  auto params = sized<fmha::kv_append_params>(dtype_, lengths.batch, nhead_q_, nhead_k_, hdim_);
  params.seqlen = lengths.seqlen;
  params.cache = &cache;
  return params;
}

fmha::cache GroupQuery::cache_of(void* k, void* v, const Lengths& lengths) const {
  fmha::cache cache;
  cache.dtype = dtype_;
  const int64_t head = lengths.capacity * hdim_;
  cache.k.data = k;
  cache.v.data = v;
  for (fmha_cache_tensor* tensor : {&cache.k, &cache.v}) {
    tensor->stride_page = nhead_k_ * head;
    tensor->stride_token = hdim_;
    tensor->stride_head = head;
  }
  cache.pages = lengths.batch;
  cache.page_size = lengths.capacity;
  return cache;
}

// Throws if a prompt, or tokens that follow others, has none.
void GroupQuery::find_kernels(const Node& node) {
  const int64_t batch = size_or(node.input(kQuery), 0, 1);
  const int64_t seqlen = size_or(node.input(kQuery), 1, kStandIn);
  const int64_t total = std::max(size_or(node.output(kPresentKey), 2, kStandIn), seqlen);
  const Lengths lengths{.batch = batch, .seqlen = seqlen, .total = total, .capacity = total, .prompt = false};
  fmha::fwd_params attention = params(lengths);
  attention.flags = FMHA_NO_MEMORY_CHECK;
  attention.q = attention.o = fmha::tensor::bshd(nullptr, seqlen, nhead_q_, hdim_);
  attention.k = attention.v = heads_first(nullptr, nhead_k_, total, hdim_);
  const fmha::cache kept = cache_of(nullptr, nullptr, lengths);
  fmha::decode_params decoding;
  decoding.fwd = &attention;
  decoding.cache = &kept;
  decoding.flags = FMHA_NO_MEMORY_CHECK;
  const auto* const sinks = sinks_.given() ? static_cast<const float*>(no_memory(0)) : nullptr;
  decoding.sinks = sinks;
  fmha::decode_supported(std::nothrow, decoding).value();
  attention.sinks = sinks;
  prompt_decodes_ = !fmha::fwd_supported(attention);
  fmha::kv_append_params storing = append(lengths, kept);
  storing.flags = FMHA_NO_MEMORY_CHECK;
  storing.k = storing.v = fmha::tensor::bshd(no_memory(0), seqlen, nhead_k_, hdim_);
  if (rotary_.given()) {
    storing.q = storing.q_out = fmha::tensor::bshd(no_memory(1), seqlen, nhead_q_, hdim_);
    storing.rotary = rotary_.table(no_memory(2), no_memory(3));
  }
  fmha::kv_append_supported(std::nothrow, storing).value();
}

Lengths GroupQuery::lengths(const Call& call, const Tensor& query) const {
  const int64_t past = past_length(call, kPastKey);
  Lengths lengths{
      .batch = query.dim(0), .seqlen = query.dim(1), .total = past, .capacity = past, .prompt = false};
  if (lengths.seqlen == 1 && fixed_ && past > 0) return lengths;
  int32_t total = 0;
  call.read(call.input(kTotalLength).data, &total, sizeof total);
  if (total < lengths.seqlen) {
    fail(ORT_INVALID_ARGUMENT, "total_sequence_length: got %d, expected at least the %lld new tokens", total,
         static_cast<long long>(lengths.seqlen));
  }
  lengths.total = total;
  lengths.capacity = std::max<int64_t>(total, past);
  lengths.prompt = total == lengths.seqlen && total > 1;
  return lengths;
}

Tensors GroupQuery::tensors(const Call& call, const Tensor& query, const Lengths& lengths) const {
  Tensors tensors{};
  const Tensor seqlens_k = call.input(kSeqlensK);
  if (seqlens_k.count() != lengths.batch) {
    fail(ORT_INVALID_ARGUMENT, "seqlens_k: got %lld numbers, expected %lld, one for each sequence",
         static_cast<long long>(seqlens_k.count()), static_cast<long long>(lengths.batch));
  }
  tensors.seqlens_k = reinterpret_cast<const int32_t*>(seqlens_k.data);
  if (packed_) {
    const int64_t row = (nhead_q_ + 2 * nhead_k_) * hdim_;
    const auto part = [&](int64_t head) {
      char* data = query.data + static_cast<size_t>(head * hdim_) * bytes_of(dtype_);
      return fmha::tensor(data, lengths.seqlen * row, row, hdim_);
    };
    tensors.q = part(0);
    tensors.k = part(nhead_q_);
    tensors.v = part(nhead_q_ + nhead_k_);
    return tensors;
  }
  tensors.q = fmha::tensor::bshd(query.data, lengths.seqlen, nhead_q_, hdim_);
  const auto new_tokens = [&](size_t slot, const char* name) {
    const Tensor tensor = call.input(slot);
    const int64_t expected = lengths.batch * lengths.seqlen * nhead_k_ * hdim_;
    if (tensor.count() != expected) {
      fail(ORT_INVALID_ARGUMENT, "%s: got %lld elements, expected %lld", name,
           static_cast<long long>(tensor.count()), static_cast<long long>(expected));
    }
    return fmha::tensor::bshd(tensor.data, lengths.seqlen, nhead_k_, hdim_);
  };
  tensors.k = new_tokens(kKey, "key");
  tensors.v = new_tokens(kValue, "value");
  return tensors;
}

// The present, which has the past's tokens: in the same memory, or by a copy.
fmha::cache GroupQuery::cache(const Call& call, const Lengths& lengths) const {
  const int64_t dims[4] = {lengths.batch, nhead_k_, lengths.capacity, hdim_};
  void* data[2] = {};
  for (size_t i = 0; i < 2; i++) {
    const Tensor present = call.output(kPresentKey + i, dims);
    data[i] = present.data;
    if (!call.has_input(kPastKey + i)) continue;
    const Tensor past = call.input(kPastKey + i);
    if (past.rank() != 4 || past.dim(0) != dims[0] || past.dim(1) != dims[1] || past.dim(2) > dims[2] ||
        past.dim(3) != dims[3]) {
      fail(ORT_INVALID_ARGUMENT, "%s: expected (%lld, %lld, at most %lld, %lld)",
           i == 0 ? "past_key" : "past_value", static_cast<long long>(dims[0]),
           static_cast<long long>(dims[1]), static_cast<long long>(dims[2]), static_cast<long long>(dims[3]));
    }
    if (!lengths.prompt) {
      copy_past(call, past, present, bytes_of(dtype_));
    } else if (past.data != present.data && lengths.capacity > lengths.total) {  // nobody writes the rest
      const size_t bytes = static_cast<size_t>(present.count()) * bytes_of(dtype_);
      check_hip(hip().memset_async(present.data, 0, bytes, call.stream()), "hipMemsetAsync");
    }
  }
  return cache_of(data[0], data[1], lengths);
}

// seqlens_k counts the new tokens, but for one.
Scratch GroupQuery::lengths_before(const Call& call, const Lengths& lengths, const int32_t* seqlens_k) const {
  const size_t bytes = static_cast<size_t>(lengths.batch) * sizeof(int32_t);
  std::vector<int32_t> before(static_cast<size_t>(lengths.batch));
  call.read(seqlens_k, before.data(), bytes);
  for (int32_t& length : before) length += 1 - static_cast<int32_t>(lengths.seqlen);
  Scratch scratch = call.scratch(bytes);
  call.write(before.data(), scratch.data(), bytes);
  return scratch;
}

void GroupQuery::store(const Call& call, const Lengths& lengths, const Tensors& tensors,
                       const fmha::cache& cache, const fmha::tensor& rotated) const {
  fmha::kv_append_params storing = append(lengths, cache);
  storing.k = tensors.k;
  storing.v = tensors.v;
  if (rotary_.given()) {
    storing.q = tensors.q;
    storing.q_out = rotated;
    rotary_.fill(call, lengths.batch * lengths.seqlen, storing);
  }
  std::optional<Scratch> before;
  if (!lengths.prompt && lengths.seqlen > 1) {
    before.emplace(lengths_before(call, lengths, tensors.seqlens_k));
    storing.seqused_k = static_cast<const int32_t*>(before->data());
  } else if (!lengths.prompt) {
    storing.seqused_k = tensors.seqlens_k;
  }
  fmha::kv_append(storing, call.stream());
}

void GroupQuery::attend(const Call& call, const Lengths& lengths, const Tensors& tensors,
                        const fmha::cache& cache, const fmha::tensor& o) const {
  fmha::fwd_params attention = params(lengths);
  attention.q = tensors.q;
  attention.o = o;
  const Scratch sinks = sinks_.on_device(call);
  if (lengths.prompt && !prompt_decodes_) {
    attention.sinks = static_cast<const float*>(sinks.data());
    attention.k = heads_first(cache.k.data, nhead_k_, lengths.capacity, hdim_);
    attention.v = heads_first(cache.v.data, nhead_k_, lengths.capacity, hdim_);
    return forward(call, attention);
  }
  fmha::decode_params decoding;
  decoding.fwd = &attention;
  decoding.cache = &cache;
  if (!lengths.prompt) {
    attention.seqused_k = tensors.seqlens_k;
    decoding.seqlen_new = 1;  // seqlens_k is one less
  }
  decoding.sinks = static_cast<const float*>(sinks.data());
  decode(call, decoding);
}

void GroupQuery::run(const Call& call) const {
  const Tensor query = call.input(kQuery);
  const Lengths sizes = lengths(call, query);
  Tensors all = tensors(call, query, sizes);
  const int64_t dims[3] = {sizes.batch, sizes.seqlen, nhead_q_ * hdim_};
  const Tensor output = call.output(kOutput, dims);
  const fmha::cache kept = cache(call, sizes);
  const Scratch rotated =
      call.scratch(rotary_.given() ? static_cast<size_t>(output.count()) * bytes_of(dtype_) : 0);
  const fmha::tensor o = fmha::tensor::bshd(output.data, sizes.seqlen, nhead_q_, hdim_);
  fmha::tensor q = o;
  q.data = rotated.data();
  store(call, sizes, all, kept, q);
  if (rotary_.given()) all.q = q;
  attend(call, sizes, all, kept, o);
}

}  // namespace

std::unique_ptr<Operator> make_group_query(const Node& node) { return std::make_unique<GroupQuery>(node); }

}  // namespace fmha::onnxruntime

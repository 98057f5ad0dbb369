// SPDX-License-Identifier: MIT OR Apache-2.0
// com.microsoft PagedAttention: new tokens of packed sequences, rotated, go to pages of a cache, and attend
// to theirs.
//
// The operator has the lengths before the call; the library wants those after it. A run reads both arrays of
// lengths back, adds them up, and so knows the longest ones too.
#include <algorithm>

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
  kKeyCache,
  kValueCache,
  kStarts,
  kPastLengths,
  kBlockTable,
  kCos,
  kSin,
  kSlots,
  kHeadSink,
  kQueryNorm,
  kKeyNorm,
  kKeyScale,
  kValueScale
};
enum Output : size_t { kOutput, kKeyCacheOut, kValueCacheOut };
constexpr size_t kNoInput = 99;

// The lengths of a run.
struct Lengths {
  int64_t batch, total, longest_new, longest;
  std::vector<int32_t> all;  // of each sequence, its new tokens included
};

class Paged : public Operator {
 public:
  explicit Paged(const Node& node);
  void run(const Call& call) const override;

 private:
  void refuse(const Node& node) const;
  void find_kernels(const Node& node) const;
  fmha::cache cache_of(int64_t pages, int64_t page_size, int64_t max_pages) const;
  fmha::cache cache(const Call& call) const;
  fmha::fwd_params params(const Lengths& lengths) const;
  fmha::kv_append_params append(const Lengths& lengths, const fmha::cache& cache) const;
  Lengths lengths(const Call& call, int64_t tokens, const fmha::cache& cache) const;
  void place_tokens(const Call& call, const Tensor& query, fmha::kv_append_params& storing,
                    fmha::fwd_params& attention) const;

  fmha_dtype dtype_;
  int64_t nhead_q_, nhead_k_, hdim_, window_;
  bool packed_, causal_;
  float scale_, softcap_;
  Rotary rotary_;
  Sinks sinks_;
};

void Paged::refuse(const Node& node) const {
  expect_none(node.input(kQueryNorm), "q_norm_weight");
  expect_none(node.input(kKeyNorm), "k_norm_weight");
  expect_none(node.input(kKeyScale), "k_scale");
  expect_none(node.input(kValueScale), "v_scale");
  if (node.text("kv_cache_layout", "SEPARATE") != "SEPARATE" || !node.input(kValueCache).given()) {
    fail(ORT_NOT_IMPLEMENTED, "kv_cache_layout: got another, expected SEPARATE");
  }
  if (node.integer("rotary_offset", 0) != 0) {
    fail(ORT_NOT_IMPLEMENTED, "rotary_offset: got %lld, expected 0",
         static_cast<long long>(node.integer("rotary_offset", 0)));
  }
  if (window_ > 0 && !causal_) {
    fail(ORT_NOT_IMPLEMENTED, "local_window_size: got %lld, expected none with is_causal=0",
         static_cast<long long>(window_));
  }
  if (dtype_of(node.input(kKeyCache), "key_cache") != dtype_) {
    fail(ORT_NOT_IMPLEMENTED, "type of key_cache: got another, expected that of the query");
  }
  if (!node.output(kKeyCacheOut).given() || !node.output(kValueCacheOut).given()) {
    fail(ORT_NOT_IMPLEMENTED, "key_cache_out and value_cache_out: got none, expected both");
  }
}

Paged::Paged(const Node& node)
    : dtype_(dtype_of(node.input(kQuery), "query")),
      nhead_q_(node.integer("num_heads", 0)),
      nhead_k_(node.integer("kv_num_heads", 0)),
      hdim_(size_of(node.input(kKeyCache), 3, "key_cache")),
      window_(node.integer("local_window_size", -1)),
      packed_(!node.input(kKey).given()),
      causal_(node.integer("is_causal", 1) != 0),
      scale_(scale_of(node, hdim_, true)),
      softcap_(node.number("softcap", 0)) {
  refuse(node);
  if (node.integer("do_rotary", 0) != 0) {
    rotary_ = Rotary(node, {.cos = kCos, .sin = kSin, .positions = kNoInput}, dtype_);
  }
  sinks_ = Sinks(node, kHeadSink, nhead_q_, false);
  find_kernels(node);
}

fmha::fwd_params Paged::params(const Lengths& lengths) const {
  auto params = sized<fmha::fwd_params>(dtype_, lengths.batch, nhead_q_, nhead_k_, hdim_);
  params.seqlen_q = lengths.longest_new;
  params.seqlen_k = lengths.longest;
  params.softmax_scale = scale_;
  params.softcap = softcap_;
  params.total_q = lengths.total;
  if (window_ > 0) {
    params.mask = FMHA_MASK_WINDOW;
    params.window_left = window_left(window_);
  } else if (causal_) {
    params.mask = FMHA_MASK_CAUSAL;
  }
  return params;
}

fmha::kv_append_params Paged::append(const Lengths& lengths, const fmha::cache& cache) const {
  auto params = sized<fmha::kv_append_params>(dtype_, lengths.batch, nhead_q_, nhead_k_, hdim_);
  params.seqlen = lengths.longest_new;
  params.total = lengths.total;
  params.cache = &cache;
  return params;
}

fmha::cache Paged::cache_of(int64_t pages, int64_t page_size, int64_t max_pages) const {
  fmha::cache cache;
  cache.dtype = dtype_;
  for (fmha_cache_tensor* tensor : {&cache.k, &cache.v}) {
    tensor->stride_head = hdim_;
    tensor->stride_token = nhead_k_ * hdim_;
    tensor->stride_page = page_size * nhead_k_ * hdim_;
  }
  cache.pages = pages;
  cache.page_size = page_size;
  cache.stride_block_table = cache.max_pages = max_pages;
  return cache;
}

// Throws if there are none.
void Paged::find_kernels(const Node& node) const {
  const int64_t page_size = size_of(node.input(kKeyCache), 1, "key_cache");
  const Lengths lengths{
      .batch = 1, .total = kStandIn, .longest_new = kStandIn, .longest = kStandIn, .all = {}};
  fmha::cache kept = cache_of(size_or(node.input(kKeyCache), 0, kStandIn), page_size,
                              size_or(node.input(kBlockTable), 1, kStandIn));
  const auto* integers = static_cast<const int32_t*>(no_memory(4));
  kept.block_table = integers;
  fmha::fwd_params attention = params(lengths);
  attention.flags = FMHA_NO_MEMORY_CHECK;
  attention.q = attention.o = fmha::tensor::packed(nullptr, nhead_q_, hdim_);
  attention.cu_seqlens_q = attention.seqused_k = integers;
  fmha::decode_params decoding;
  decoding.fwd = &attention;
  decoding.cache = &kept;
  decoding.flags = FMHA_NO_MEMORY_CHECK;
  decoding.sinks = sinks_.given() ? static_cast<const float*>(no_memory(0)) : nullptr;
  fmha::decode_supported(std::nothrow, decoding).value();
  fmha::kv_append_params storing = append(lengths, kept);
  storing.flags = FMHA_NO_MEMORY_CHECK;
  storing.k = storing.v = fmha::tensor::packed(no_memory(0), nhead_k_, hdim_);
  storing.cu_seqlens = storing.seqused_k = integers;
  if (rotary_.given()) {
    storing.q = storing.q_out = fmha::tensor::packed(no_memory(1), nhead_q_, hdim_);
    storing.rotary = rotary_.table(no_memory(2), no_memory(3));
  }
  fmha::kv_append_supported(std::nothrow, storing).value();
}

// The caches that the run writes have what those that it is given have: in the same memory, or by a copy.
fmha::cache Paged::cache(const Call& call) const {
  const Tensor table = call.input(kBlockTable);
  const Tensor keys = call.input(kKeyCache);
  if (table.rank() != 2 || keys.rank() != 4 || keys.dim(2) != nhead_k_ || keys.dim(3) != hdim_ ||
      call.input(kValueCache).dims != keys.dims) {
    fail(ORT_INVALID_ARGUMENT,
         "caches and block_table: expected (blocks, block size, %lld, %lld) of both and two dimensions",
         static_cast<long long>(nhead_k_), static_cast<long long>(hdim_));
  }
  fmha::cache cache = cache_of(keys.dim(0), keys.dim(1), table.dim(1));
  cache.block_table = reinterpret_cast<const int32_t*>(table.data);
  for (size_t i = 0; i < 2; i++) {
    const Tensor given = call.input(kKeyCache + i);
    const Tensor written = call.output(kKeyCacheOut + i, given.dims);
    const size_t bytes = static_cast<size_t>(given.count()) * bytes_of(dtype_);
    if (given.data != written.data && bytes > 0) {
      check_hip(hip().memcpy_async(written.data, given.data, bytes, CopyKind::kDeviceToDevice, call.stream()),
                "hipMemcpyAsync");
    }
    (i == 0 ? cache.k : cache.v).data = written.data;
  }
  return cache;
}

Lengths Paged::lengths(const Call& call, int64_t tokens, const fmha::cache& cache) const {
  const Tensor past = call.input(kPastLengths);
  Lengths lengths{.batch = past.count(), .total = tokens, .longest_new = 0, .longest = 0, .all = {}};
  const auto batch = static_cast<size_t>(lengths.batch);
  std::vector<int32_t> starts(batch + 1);
  lengths.all.resize(batch);
  if (call.input(kStarts).count() != lengths.batch + 1 || call.input(kBlockTable).dim(0) != lengths.batch) {
    fail(ORT_INVALID_ARGUMENT,
         "cumulative_sequence_length and block_table: expected %zu numbers and %zu rows, as past_seqlens has",
         batch + 1, batch);
  }
  call.read(call.input(kStarts).data, starts.data(), starts.size() * sizeof(int32_t));
  call.read(past.data, lengths.all.data(), batch * sizeof(int32_t));
  const int64_t most = cache.max_pages * cache.page_size;
  for (size_t b = 0; b < batch; b++) {
    const int64_t added = int64_t{starts[b + 1]} - starts[b];
    const int64_t all = lengths.all[b] + added;
    if (added < 0 || lengths.all[b] < 0 || all > most) {
      fail(ORT_INVALID_ARGUMENT,
           "sequence %zu: got %d past tokens and %lld new ones, expected at most %lld in all", b,
           lengths.all[b], static_cast<long long>(added), static_cast<long long>(most));
    }
    lengths.all[b] = static_cast<int32_t>(all);
    lengths.longest_new = std::max(lengths.longest_new, added);
    lengths.longest = std::max(lengths.longest, all);
  }
  if (starts.front() != 0 || starts.back() > tokens) {
    fail(ORT_INVALID_ARGUMENT, "cumulative_sequence_length: got %d to %d, expected 0 to at most %lld",
         starts.front(), starts.back(), static_cast<long long>(tokens));
  }
  return lengths;
}

// Queries, keys and values: apart, or side by side in each token.
void Paged::place_tokens(const Call& call, const Tensor& query, fmha::kv_append_params& storing,
                         fmha::fwd_params& attention) const {
  if (!packed_) {
    attention.q = fmha::tensor::packed(query.data, nhead_q_, hdim_);
    storing.k = fmha::tensor::packed(call.input(kKey).data, nhead_k_, hdim_);
    storing.v = fmha::tensor::packed(call.input(kValue).data, nhead_k_, hdim_);
    return;
  }
  const int64_t row = (nhead_q_ + 2 * nhead_k_) * hdim_;
  const auto part = [&](int64_t head) {
    char* data = query.data + static_cast<size_t>(head * hdim_) * bytes_of(dtype_);
    return fmha::tensor(data, 0, row, hdim_);
  };
  attention.q = part(0);
  storing.k = part(nhead_q_);
  storing.v = part(nhead_q_ + nhead_k_);
}

void Paged::run(const Call& call) const {
  const Tensor query = call.input(kQuery);
  const int64_t dims[2] = {query.dim(0), nhead_q_ * hdim_};
  const Tensor output = call.output(kOutput, dims);
  const fmha::cache kept = cache(call);
  const Lengths sizes = lengths(call, query.dim(0), kept);
  fmha::fwd_params attention = params(sizes);
  fmha::kv_append_params storing = append(sizes, kept);
  place_tokens(call, query, storing, attention);
  const auto* starts = reinterpret_cast<const int32_t*>(call.input(kStarts).data);
  storing.cu_seqlens = attention.cu_seqlens_q = starts;
  storing.seqused_k = reinterpret_cast<const int32_t*>(call.input(kPastLengths).data);
  if (call.has_input(kSlots)) storing.slots = call.input(kSlots).data;
  attention.o = fmha::tensor::packed(output.data, nhead_q_, hdim_);
  const size_t query_bytes = static_cast<size_t>(output.count()) * bytes_of(dtype_);
  const Scratch rotated = call.scratch(rotary_.given() ? query_bytes : 0);
  if (rotary_.given()) {
    storing.q = attention.q;
    storing.q_out = attention.q = fmha::tensor::packed(rotated.data(), nhead_q_, hdim_);
    rotary_.fill(call, sizes.total, storing);
  }
  fmha::kv_append(storing, call.stream());
  const size_t lengths_bytes = sizes.all.size() * sizeof(int32_t);
  const Scratch all = call.scratch(lengths_bytes);
  call.write(sizes.all.data(), all.data(), lengths_bytes);
  attention.seqused_k = static_cast<const int32_t*>(all.data());
  fmha::decode_params decoding;
  decoding.fwd = &attention;
  decoding.cache = &kept;
  const Scratch sinks = sinks_.on_device(call);
  decoding.sinks = static_cast<const float*>(sinks.data());
  decode(call, decoding);
}

}  // namespace

std::unique_ptr<Operator> make_paged(const Node& node) { return std::make_unique<Paged>(node); }

}  // namespace fmha::onnxruntime

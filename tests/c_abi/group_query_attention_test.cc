// SPDX-License-Identifier: MIT OR Apache-2.0
// ONNX Runtime's GroupQueryAttention by fmha_kv_append and fmha_decode: what its inputs and attributes
// become.
//
//   past_key, past_value, (batch, kv_num_heads, max_seqlen, head_size), in one buffer with present_key and
//   present_value     a cache without pages: "page" is a batch element, strides say that heads come first
//   seqlens_k         the keys of each sequence, less 1. In generation these are the tokens before, so it is
//                     seqused_k of both calls as it is, with a seqlen_new of 1
//   query (packed QKV: key and value are empty)       strides of a token that has all three
//   cos_cache, sin_cache, rotary_interleaved          rotary; queries are rotated into memory of the call
//   local_window_size, the keys that a query sees     a window of one less to the left, none to the right
//   softcap, scale                                    softcap, softmax_scale
//   head_sink; smooth_softmax                         sinks; sinks of 0
//
// A prompt's sequences are padded at the right. All of their tokens are stored, as there, and the causal mask
// hides what is padding from the rows that are not; later tokens are stored over it.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fmha_rocm.h"
#include "on_device.h"
#include "reference.h"
#include "status.h"

namespace {

constexpr int kBatch = 2, kMaxSeqlen = 48, kPositions = 64;

// The attributes of the node, and which optional inputs it has.
struct Node {
  fmha_dtype dtype = FMHA_FP16;
  int num_heads = 4, kv_num_heads = 2, head_size = 64;
  int rotary_dim = 0;  // above 0: do_rotary
  bool rotary_interleaved = false;
  int local_window_size = -1;
  float scale = 0;  // 0: 1 / sqrt(head_size)
  float softcap = 0;
  bool smooth_softmax = false, head_sink = false, packed_qkv = false;

  float softmax_scale() const { return scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(head_size)); }
};

// Memory on both sides, which ends with its scope.
template <typename T>
class Mirrored {
 public:
  explicit Mirrored(size_t count) : host(count) { CHECK(hip().malloc_(&device_, count * sizeof(T)) == 0); }
  ~Mirrored() { CHECK(hip().free_(device_) == 0); }
  Mirrored(const Mirrored&) = delete;
  Mirrored& operator=(const Mirrored&) = delete;

  T* device() const { return static_cast<T*>(device_); }
  void upload() { CHECK(hip().copy(device_, host.data(), host.size() * sizeof(T), HIP_TO_DEVICE) == 0); }
  void download() { CHECK(hip().copy(host.data(), device_, host.size() * sizeof(T), HIP_TO_HOST) == 0); }

  std::vector<T> host;

 private:
  void* device_ = nullptr;
};

using Halves = Mirrored<uint16_t>;

// A node in a session: its cache and constant inputs, and runs of it.
class Session {
 public:
  explicit Session(const Node& node)
      : n_(node),
        k_cache_(cache_size()),
        v_cache_(cache_size()),
        cos_(static_cast<size_t>(kPositions * node.rotary_dim / 2 + 1)),
        sin_(cos_.host.size()),
        sinks_(static_cast<size_t>(node.num_heads)) {
    k_cache_.host.assign(cache_size(), 0x7fff);  // NaN, of either type
    v_cache_.host.assign(cache_size(), 0x7fff);
    for (int i = 0; i < kPositions * half(); ++i) {
      const double angle = i / half() * std::pow(1e4, -1.0 * (i % half()) / half());
      cos_.host[static_cast<size_t>(i)] = reference_from_double(node.dtype, std::cos(angle));
      sin_.host[static_cast<size_t>(i)] = reference_from_double(node.dtype, std::sin(angle));
    }
    for (int h = 0; h < node.num_heads; ++h)
      sinks_.host[static_cast<size_t>(h)] = node.head_sink ? 1.5f - static_cast<float>(h) : 0;
    for (Halves* x : {&k_cache_, &v_cache_, &cos_, &sin_}) x->upload();
    sinks_.upload();
    wanted_k_ = k_cache_.host;
    wanted_v_ = v_cache_.host;
  }

  // Runs the node on random inputs of `seqlen` tokens and judges its outputs. `seqlens_k` as the node has it;
  // is_prompt: nothing is in the cache.
  void run(int seqlen, bool is_prompt, const std::vector<int32_t>& seqlens_k, uint32_t seed) {
    CAPTURE(seqlen);
    CAPTURE(is_prompt);
    Inputs in(n_, seqlen, seed);
    for (size_t b = 0; b < kBatch; ++b) in.before.host[b] = is_prompt ? 0 : seqlens_k[b] + 1 - seqlen;
    in.before.upload();
    append(in);
    attend(in);
    for (Halves* x : {&k_cache_, &v_cache_, &in.rotated, &in.output}) x->download();
    for (int b = 0; b < kBatch; ++b) {
      judge_cache(in, b);
      const int rows = is_prompt ? seqlens_k[static_cast<size_t>(b)] + 1 : seqlen;  // without the padding
      for (int t = 0; t < rows; ++t) {
        for (int h = 0; h < n_.num_heads; ++h) judge_row(in, b, t, h);
      }
    }
  }

 private:
  struct Inputs {
    Inputs(const Node& n, int seqlen_, uint32_t seed)
        : seqlen(seqlen_),
          q_size(n.num_heads * n.head_size),
          kv_size(n.kv_num_heads * n.head_size),
          row(n.packed_qkv ? q_size + 2 * kv_size : q_size),
          kv_row(n.packed_qkv ? row : kv_size),
          query(static_cast<size_t>(kBatch * seqlen * row)),
          key(static_cast<size_t>(n.packed_qkv ? 1 : kBatch * seqlen * kv_size)),
          value(key.host.size()),
          rotated(static_cast<size_t>(kBatch * seqlen * q_size)),
          output(rotated.host.size()),
          before(kBatch) {
      for (Halves* x : {&query, &key, &value}) {
        reference_fill(n.dtype, seed++, x->host.data(), x->host.size());
        x->upload();
      }
    }
    Halves& keys() { return row == q_size ? key : query; }
    Halves& values() { return row == q_size ? value : query; }
    int keys_begin() const { return row == q_size ? 0 : q_size; }
    int values_begin() const { return row == q_size ? 0 : q_size + kv_size; }

    int seqlen, q_size, kv_size, row, kv_row;  // row: elements from a token's query to the next's
    Halves query, key, value, rotated, output;
    Mirrored<int32_t> before;  // tokens in the cache
  };

  int half() const { return n_.rotary_dim / 2; }
  size_t cache_size() const {
    return static_cast<size_t>(kBatch * n_.kv_num_heads * kMaxSeqlen * n_.head_size);
  }

  // (batch, kv_num_heads, max_seqlen, head_size)
  fmha_cache cache() const {
    fmha_cache c{};
    c.struct_size = sizeof c;
    c.dtype = n_.dtype;
    const int64_t head = int64_t{kMaxSeqlen} * n_.head_size;
    c.k = {k_cache_.device(), n_.kv_num_heads * head, n_.head_size, head};
    c.v = {v_cache_.device(), n_.kv_num_heads * head, n_.head_size, head};
    c.pages = kBatch;
    c.page_size = kMaxSeqlen;
    return c;
  }

  static fmha_tensor tensor(uint16_t* data, int seqlen, int row, int head_size) {
    return {data, int64_t{seqlen} * row, row, head_size};
  }

  void append(Inputs& in) const {
    const fmha_cache c = cache();
    fmha_kv_append_params p{};
    p.struct_size = sizeof p;
    p.dtype = n_.dtype;
    p.batch = kBatch;
    p.seqlen = in.seqlen;
    p.nhead_k = n_.kv_num_heads;
    p.hdim_q = p.hdim_v = n_.head_size;
    p.k = tensor(in.keys().device() + in.keys_begin(), in.seqlen, in.kv_row, n_.head_size);
    p.v = tensor(in.values().device() + in.values_begin(), in.seqlen, in.kv_row, n_.head_size);
    p.seqused_k = in.before.device();
    p.cache = &c;
    if (n_.rotary_dim > 0) {
      p.nhead_q = n_.num_heads;
      p.q = tensor(in.query.device(), in.seqlen, in.row, n_.head_size);
      p.q_out = tensor(in.rotated.device(), in.seqlen, in.q_size, n_.head_size);
      p.rotary.cos = cos_.device();
      p.rotary.sin = sin_.device();
      p.rotary.positions = kPositions;
      p.rotary.stride_position = half();
      p.rotary.dim = n_.rotary_dim;
      p.rotary.interleaved = n_.rotary_interleaved;
    }
    CHECK_OK(fmha_kv_append(&p, nullptr));
  }

  void attend(Inputs& in) const {
    fmha_fwd_params f{};
    f.struct_size = sizeof f;
    f.dtype = n_.dtype;
    f.batch = kBatch;
    f.seqlen_q = in.seqlen;
    f.seqlen_k = kMaxSeqlen;
    f.nhead_q = n_.num_heads;
    f.nhead_k = n_.kv_num_heads;
    f.hdim_q = f.hdim_v = n_.head_size;
    f.softmax_scale = n_.softmax_scale();
    f.softcap = n_.softcap;
    f.mask = n_.local_window_size > 0 ? FMHA_MASK_WINDOW : FMHA_MASK_CAUSAL;
    if (n_.local_window_size > 0) f.window_left = n_.local_window_size - 1;
    f.q = n_.rotary_dim > 0 ? tensor(in.rotated.device(), in.seqlen, in.q_size, n_.head_size)
                            : tensor(in.query.device(), in.seqlen, in.row, n_.head_size);
    f.o = tensor(in.output.device(), in.seqlen, in.q_size, n_.head_size);
    f.seqused_k = in.before.device();
    const fmha_cache c = cache();
    fmha_decode_params p{};
    p.struct_size = sizeof p;
    p.fwd = &f;
    p.cache = &c;
    p.seqlen_new = in.seqlen;
    if (n_.smooth_softmax || n_.head_sink) p.sinks = sinks_.device();
    CHECK_OK(fmha_decode_workspace_bytes(&p, &p.workspace_bytes));
    const Mirrored<char> workspace(static_cast<size_t>(p.workspace_bytes) + 1);
    p.workspace = workspace.device();
    CHECK_OK(fmha_decode(&p, nullptr));
    CHECK(hip().synchronize() == 0);
  }

  double number(uint16_t bits) const { return reference_to_double(n_.dtype, bits); }
  double unit() const { return n_.dtype == FMHA_FP16 ? std::ldexp(1, -11) : std::ldexp(1, -8); }

  // Returns whether a head of a token at a position was rotated right: to the nearest, after float's
  // roundings.
  bool is_rotated(const uint16_t* x, const uint16_t* got, int position) const {
    for (int d = 0; d < n_.head_size; ++d) {
      if (d >= n_.rotary_dim) {
        if (got[d] != x[d]) return false;
        continue;
      }
      const bool pairs = n_.rotary_interleaved;
      const int i = pairs ? d / 2 : d % half();
      const bool second = pairs ? d % 2 != 0 : d >= half();
      const double a = number(x[pairs ? 2 * i : i]), b = number(x[pairs ? 2 * i + 1 : i + half()]);
      const auto at = static_cast<size_t>(position * half() + i);
      const double c = number(cos_.host[at]), s = number(sin_.host[at]);
      const double want = second ? b * c + a * s : a * c - b * s;
      const double products = std::fabs(second ? b * c : a * c) + std::fabs(second ? a * s : b * s);
      // Halves of ulps: of the type, and at least of its smallest number; and of float.
      const double allowed = unit() * std::fabs(want) + std::ldexp(1, -25) + std::ldexp(products, -22);
      if (!(std::fabs(number(got[d]) - want) <= allowed)) return false;
    }
    return true;
  }

  // New tokens are where they belong, rotated; all else is as it was.
  void judge_cache(Inputs& in, int b) {
    CAPTURE(b);
    const int before = in.before.host[static_cast<size_t>(b)];
    bool right = true;
    for (int h = 0; h < n_.kv_num_heads; ++h) {
      for (int t = 0; t < in.seqlen; ++t) {
        const size_t from = static_cast<size_t>((b * in.seqlen + t) * in.kv_row + h * n_.head_size);
        const size_t to = cache_at(b, h, before + t);
        const uint16_t* k = &in.keys().host[from + static_cast<size_t>(in.keys_begin())];
        const uint16_t* v = &in.values().host[from + static_cast<size_t>(in.values_begin())];
        right = right && is_rotated(k, &k_cache_.host[to], before + t);
        std::memcpy(&wanted_k_[to], &k_cache_.host[to], 2 * static_cast<size_t>(n_.head_size));
        std::memcpy(&wanted_v_[to], v, 2 * static_cast<size_t>(n_.head_size));
      }
    }
    const size_t begin = cache_at(b, 0, 0), bytes = 2 * (cache_at(1, 0, 0) - cache_at(0, 0, 0));
    CHECK(right);
    CHECK(std::memcmp(&wanted_k_[begin], &k_cache_.host[begin], bytes) == 0);
    CHECK(std::memcmp(&wanted_v_[begin], &v_cache_.host[begin], bytes) == 0);
  }

  size_t cache_at(int b, int h, int t) const {
    return static_cast<size_t>(((b * n_.kv_num_heads + h) * kMaxSeqlen + t) * n_.head_size);
  }

  // One head of a query against a plain loop, over what the cache holds. The tolerance is that of
  // reference.h.
  void judge_row(Inputs& in, int b, int t, int h) const {
    CAPTURE(b);
    CAPTURE(t);
    CAPTURE(h);
    const int row = b * in.seqlen + t, kv_head = h / (n_.num_heads / n_.kv_num_heads);
    const int position = in.before.host[static_cast<size_t>(b)] + t;
    const uint16_t* q = &in.query.host[static_cast<size_t>(row * in.row + h * n_.head_size)];
    const size_t out = static_cast<size_t>(row * in.q_size + h * n_.head_size);
    if (n_.rotary_dim > 0) {
      CHECK(is_rotated(q, &in.rotated.host[out], position));
      q = &in.rotated.host[out];
    }
    const int window = n_.local_window_size > 0 ? n_.local_window_size : kMaxSeqlen;
    const int first = position + 1 > window ? position + 1 - window : 0;
    std::vector<double> weights;
    double sum = 0;
    if (n_.smooth_softmax || n_.head_sink) sum = std::exp(sinks_.host[static_cast<size_t>(h)]);
    for (int j = first; j <= position; ++j) {
      double score = 0;
      for (int d = 0; d < n_.head_size; ++d)
        score += number(q[d]) * number(k_cache_.host[cache_at(b, kv_head, j) + static_cast<size_t>(d)]);
      score *= n_.softmax_scale();
      if (n_.softcap > 0) score = n_.softcap * std::tanh(score / n_.softcap);
      weights.push_back(std::exp(score));  // of numbers that are small here
      sum += weights.back();
    }
    bool right = true;
    for (int d = 0; d < n_.head_size; ++d) {
      double exact = 0, magnitude = 0;
      for (int j = first; j <= position; ++j) {
        const double v = number(v_cache_.host[cache_at(b, kv_head, j) + static_cast<size_t>(d)]);
        exact += weights[static_cast<size_t>(j - first)] / sum * v;
        magnitude += weights[static_cast<size_t>(j - first)] / sum * std::fabs(v);
      }
      const double allowed = 1.5 * unit() * (2 * std::fabs(exact) + magnitude) + std::ldexp(1, -24);
      right = right && std::fabs(number(in.output.host[out + static_cast<size_t>(d)]) - exact) <= allowed;
    }
    CHECK(right);
  }

  const Node n_;
  Halves k_cache_, v_cache_, cos_, sin_;
  Mirrored<float> sinks_;
  std::vector<uint16_t> wanted_k_, wanted_v_;
};

// A prompt whose second sequence is padded, tokens one by one, and a further part of a prompt.
void generate(const Node& node) {
  Session session(node);
  session.run(20, true, {19, 12}, 1);
  for (int32_t i = 0; i < 3; ++i) session.run(1, false, {20 + i, 13 + i}, 10 + static_cast<uint32_t>(i));
  session.run(9, false, {31, 24}, 20);
}

TEST_CASE("a plain node") { generate({}); }

TEST_CASE("rotary embeddings") {
  Node node;
  node.rotary_dim = 64;
  node.packed_qkv = true;
  generate(node);
  node.rotary_dim = 32;  // the first half of a head
  node.rotary_interleaved = true;
  node.packed_qkv = false;
  node.local_window_size = 7;
  generate(node);
  node.local_window_size = 1;
  node.head_sink = true;
  generate(node);
}

TEST_CASE("softcap and sinks") {
  Node node;
  node.dtype = FMHA_BF16;
  node.num_heads = 6, node.kv_num_heads = 1, node.head_size = 128;
  node.softcap = 5;
  node.scale = 0.5f;
  node.smooth_softmax = true;
  generate(node);
  node.head_sink = true;
  node.rotary_dim = 128;
  node.packed_qkv = true;
  node.local_window_size = 16;
  generate(node);
}

}  // namespace

// SPDX-License-Identifier: MIT OR Apache-2.0
// Layers of a decoder: prompts of different lengths in one call each, then token by token over a key cache.
// Two batches on a stream of their own each, so that one's attention runs while the CPU projects for the
// other.
//
//   decoder [--one-by-one]    a call for each sequence, which otherwise is done where packed ones are not
//   supported
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fmha_rocm.hpp>
#include <memory>
#include <numeric>

#include "hip.h"
#include "model.h"

namespace {

constexpr int kLayers = 2, kSteps = 4, kCapacity = 160;  // of a sequence's cache, in tokens
const float kScale = 1.0f / std::sqrt(static_cast<float>(kDim));

struct Cache {
  Mirrored<Bf16> k, v;  // (sequences * kCapacity, kKeyHeads, kDim)
  explicit Cache(std::size_t rows) : k(rows * kKeySize), v(rows * kKeySize) {}
};

class Batch {
 public:
  Batch(std::vector<int> prompts, bool one_by_one, unsigned seed)
      : count_(static_cast<int>(prompts.size())),
        packed_(!one_by_one),
        fresh_(std::move(prompts)),
        used_(count_, 0),
        random_(seed),
        q_(tokens() * kQuerySize),
        o_(tokens() * kQuerySize),
        cu_q_(count_ + 1),
        cu_k_(count_ + 1),
        used_k_(count_) {
    for (int i = 0; i < kLayers; ++i) caches_.push_back(std::make_unique<Cache>(count_ * kCapacity));
    for (int i = 0; i <= count_; ++i) cu_k_.host()[i] = i * kCapacity;
    cu_k_.upload(stream_, 0, cu_k_.count());
  }

  // New tokens come in: the prompts at first, then one of each sequence. Their embeddings are made up.
  void begin_step() {
    if (used_[0] != 0) std::fill(fresh_.begin(), fresh_.end(), 1);
    x_.resize(tokens() * kHidden);
    std::normal_distribution<float> normal;
    for (float& x : x_) x = normal(random_);
    cu_q_.host()[0] = 0;
    for (int i = 0; i < count_; ++i) {
      used_[i] += fresh_[i];
      cu_q_.host()[i + 1] = cu_q_.host()[i] + fresh_[i];
      used_k_.host()[i] = used_[i];
    }
    cu_q_.upload(stream_, 0, cu_q_.count());
    used_k_.upload(stream_, 0, used_k_.count());
  }

  // Norm and projections here, the rest enqueued: returns while the device works.
  void begin_layer(const Layer& layer, int index) {
    Cache& cache = *caches_[index];
    for (int i = 0; i < count_; ++i) {
      const std::size_t first = static_cast<std::size_t>(i) * kCapacity + used_[i] - fresh_[i];
      for (int t = 0; t < fresh_[i]; ++t) {
        const std::size_t token = cu_q_.host()[i] + t;
        const std::vector<float> h = rms_norm(&x_[token * kHidden], layer.gain);
        project(layer.q, h, q_.host() + token * kQuerySize, kQuerySize);
        project(layer.k, h, cache.k.host() + (first + t) * kKeySize, kKeySize);
        project(layer.v, h, cache.v.host() + (first + t) * kKeySize, kKeySize);
      }
      cache.k.upload(stream_, first * kKeySize, static_cast<std::size_t>(fresh_[i]) * kKeySize);
      cache.v.upload(stream_, first * kKeySize, static_cast<std::size_t>(fresh_[i]) * kKeySize);
    }
    q_.upload(stream_, 0, tokens() * kQuerySize);
    attend(cache);
    o_.download(stream_, 0, tokens() * kQuerySize);
  }

  // Returns the largest error of attention, in units of what roundings allow.
  double end_layer(const Layer& layer, int index) {
    stream_.wait();
    const double worst = compare(*caches_[index]);
    for (std::size_t t = 0; t < tokens(); ++t) {
      project_back(layer.o, o_.host() + t * kQuerySize, &x_[t * kHidden]);
    }
    return worst;
  }

  std::size_t tokens() const { return std::accumulate(fresh_.begin(), fresh_.end(), std::size_t{0}); }

 private:
  static fmha::fwd_params common() {
    fmha::fwd_params p;  // zeroed, which is every field's default
    p.dtype = FMHA_BF16;
    p.nhead_q = kHeads;
    p.nhead_k = kKeyHeads;
    p.hdim_q = p.hdim_v = kDim;
    p.softmax_scale = kScale;
    p.mask = FMHA_MASK_CAUSAL;  // bottom-right: a sequence's last query sees its last key
    return p;
  }

  // All sequences in one call: queries packed, keys where the cache has them, as many of its rows as are in
  // use.
  fmha::fwd_params all(const Cache& cache) const {
    fmha::fwd_params p = common();
    p.batch = count_;
    p.seqlen_q = *std::max_element(fresh_.begin(), fresh_.end());
    p.seqlen_k = kCapacity;
    p.q = fmha::tensor::packed(q_.device(), kHeads, kDim);
    p.k = fmha::tensor::packed(cache.k.device(), kKeyHeads, kDim);
    p.v = fmha::tensor::packed(cache.v.device(), kKeyHeads, kDim);
    p.o = fmha::tensor::packed(o_.device(), kHeads, kDim);
    p.cu_seqlens_q = cu_q_.device();
    p.cu_seqlens_k = cu_k_.device();
    p.seqused_k = used_k_.device();
    p.total_q = static_cast<std::int64_t>(tokens());
    p.total_k = static_cast<std::int64_t>(count_) * kCapacity;
    return p;
  }

  fmha::fwd_params one(const Cache& cache, int i) const {
    const std::size_t row = cu_q_.host()[i], key = static_cast<std::size_t>(i) * kCapacity;
    fmha::fwd_params p = common();
    p.batch = 1;
    p.seqlen_q = fresh_[i];
    p.seqlen_k = used_[i];
    p.q = fmha::tensor::bshd(q_.device() + row * kQuerySize, fresh_[i], kHeads, kDim);
    p.k = fmha::tensor::bshd(cache.k.device() + key * kKeySize, used_[i], kKeyHeads, kDim);
    p.v = fmha::tensor::bshd(cache.v.device() + key * kKeySize, used_[i], kKeyHeads, kDim);
    p.o = fmha::tensor::bshd(o_.device() + row * kQuerySize, fresh_[i], kHeads, kDim);
    return p;
  }

  // The result where there is something else to try, exceptions where there is not.
  void attend(const Cache& cache) {
    if (packed_) {
      const fmha::result<void> done = fmha::fwd(std::nothrow, all(cache), stream_);
      if (done) return;
      if (done.status() != FMHA_UNSUPPORTED) done.value();  // throws
      std::printf("sequence by sequence, because: %s\n", done.error().message.c_str());
      packed_ = false;
    }
    for (int i = 0; i < count_; ++i) fmha::fwd(one(cache, i), stream_);
  }

  double compare(const Cache& cache) const {
    double worst = 0;
    for (int i = 0; i < count_; ++i) {
      for (int t = 0; t < fresh_[i]; ++t) {
        for (int h = 0; h < kHeads; ++h) {
          const std::size_t row = ((cu_q_.host()[i] + t) * kHeads + h) * kDim;
          const std::size_t key = i * kCapacity * kKeySize + h / (kHeads / kKeyHeads) * kDim;
          const double error = worst_error(q_.host() + row, cache.k.host() + key, cache.v.host() + key,
                                           o_.host() + row, used_[i] - fresh_[i] + t + 1, kScale);
          if (!(error <= worst)) worst = error;
        }
      }
    }
    return worst;
  }

  int count_;
  bool packed_;
  std::vector<int> fresh_, used_;  // tokens of each sequence: of this step, and in the cache after it
  std::mt19937 random_;
  std::vector<float> x_;  // (tokens, kHidden)
  Mirrored<Bf16> q_, o_;  // (tokens, kHeads, kDim)
  Mirrored<std::int32_t> cu_q_, cu_k_, used_k_;
  std::vector<std::unique_ptr<Cache>> caches_;
  Stream stream_;  // ends first
};

// A call that is refused throws an exception of its kind, with the reason, and runs nothing.
bool refusals() {
  fmha::fwd_params p;
  int seen = 0;
  try {
    fmha::fwd(p, nullptr);
  } catch (const fmha::invalid_argument& e) {
    std::printf("refused: %s\n", e.what());
    ++seen;
  }
  p.dtype = FMHA_BF16;
  p.batch = p.seqlen_q = p.seqlen_k = p.nhead_q = p.nhead_k = 1;
  p.hdim_q = p.hdim_v = 4096;
  p.softmax_scale = 1;
  p.q = p.k = p.v = p.o = fmha::tensor::bshd(nullptr, 1, 1, 4096);
  try {
    fmha::fwd_prepare(p);
  } catch (const fmha::unsupported& e) {
    std::printf("refused: %s\n", e.what());
    ++seen;
  }
  return seen == 2;
}

bool run(bool one_by_one) {
  const std::string_view version = fmha::version(), runtime = fmha::hip_runtime_path();
  std::printf("fmha_rocm %.*s on %.*s\n", static_cast<int>(version.size()), version.data(),
              static_cast<int>(runtime.size()), runtime.data());
  std::mt19937 random(1);
  std::vector<Layer> layers;
  for (int i = 0; i < kLayers; ++i) layers.emplace_back(random);
  Batch a({70, 5, 33}, one_by_one, 2), b({128, 17}, one_by_one, 3);
  bool right = refusals();
  for (int step = 0; step <= kSteps; ++step) {
    double worst = 0;
    a.begin_step();
    b.begin_step();
    for (int i = 0; i < kLayers; ++i) {
      a.begin_layer(layers[i], i);
      b.begin_layer(layers[i], i);
      for (const double error : {a.end_layer(layers[i], i), b.end_layer(layers[i], i)}) {
        if (!(error <= worst)) worst = error;
      }
    }
    std::printf("%s: %zu tokens, largest error %.2f of what roundings allow\n",
                step == 0 ? "prompts" : "decode", a.tokens() + b.tokens(), worst);
    right = right && worst <= 1;
  }
  std::puts(right ? "right" : "WRONG");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 && std::strcmp(argv[1], "--one-by-one") == 0) ? 0 : 1;
  } catch (const fmha::error& e) {
    std::fprintf(stderr, "fmha_rocm, status %d: %s\n", static_cast<int>(e.status()), e.what());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  return 1;
}

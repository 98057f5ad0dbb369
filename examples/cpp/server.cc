// SPDX-License-Identifier: MIT OR Apache-2.0
// A server's decode loop: eight sequences share a KV cache of pages, join when there is room, and leave when
// they are done. In each step all that run share a call to store their new tokens and a call to attend, those
// that begin with their whole prompt and the others with one token.
//
// Pages come from a free list and go back to it: the cache is smaller than all sequences together. Queries,
// keys and values are random numbers; a model would project them.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <fmha_rocm.hpp>
#include <memory>
#include <set>

#include "hip.h"
#include "model.h"

namespace {

constexpr int kPageSize = 16, kPages = 14, kMaxPages = 6;  // tokens; of the cache; of a sequence
constexpr int kMostRunning = 4, kMostTokens = 256;         // in a step
constexpr int kHalf = kDim / 2;
const float kScale = 1.0f / std::sqrt(static_cast<float>(kDim));

int pages_for(int tokens) { return (tokens + kPageSize - 1) / kPageSize; }

struct Sequence {
  int number, arrives, prompt, wanted;  // the step it arrives in, tokens of the prompt, tokens to decode
  int used = 0, fresh = 0;              // tokens in the cache, and those that this step adds
  std::vector<int> pages = {};          // of the cache, in order
  std::vector<Bf16> k = {}, v = {};     // as they were projected, (used, kKeyHeads, kDim): for the check

  int most_pages() const { return pages_for(prompt + wanted); }
  bool done() const { return used == prompt + wanted; }
};

class FreeList {
 public:
  FreeList() {
    for (int page = kPages; page-- > 0;) free_.push_back(page);
  }
  int count() const { return static_cast<int>(free_.size()); }
  int reused() const { return reused_; }

  int take() {
    const int page = free_.back();
    free_.pop_back();
    reused_ += !seen_.insert(page).second;
    return page;
  }
  void give_back(std::vector<int>& pages) {
    free_.insert(free_.end(), pages.begin(), pages.end());
    pages.clear();
  }

 private:
  std::vector<int> free_;
  std::set<int> seen_;
  int reused_ = 0;
};

class Server {
 public:
  explicit Server(std::deque<Sequence> sequences)
      : waiting_(std::move(sequences)),
        k_cache_(kPages * kPageSize * kKeySize),
        v_cache_(kPages * kPageSize * kKeySize),
        q_(kMostTokens * kQuerySize),
        rotated_(kMostTokens * kQuerySize),
        k_(kMostTokens * kKeySize),
        v_(kMostTokens * kKeySize),
        o_(kMostTokens * kQuerySize),
        cos_(kMaxPages * kPageSize * kHalf),
        sin_(kMaxPages * kPageSize * kHalf),
        table_(kMostRunning * kMaxPages),
        starts_(kMostRunning + 1),
        before_(kMostRunning),
        after_(kMostRunning) {
    // NaN, so that it shows if a token is read that no sequence has stored.
    for (Mirrored<Bf16>* cache : {&k_cache_, &v_cache_}) {
      std::fill_n(cache->host(), cache->count(), Bf16{0x7fff});
      cache->upload(stream_, 0, cache->count());
    }
    for (std::size_t i = 0; i < cos_.count(); ++i) {
      const double angle =
          static_cast<double>(i / kHalf) * std::pow(1e4, -static_cast<double>(i % kHalf) / kHalf);
      cos_.host()[i] = static_cast<float>(std::cos(angle));
      sin_.host()[i] = static_cast<float>(std::sin(angle));
    }
    cos_.upload(stream_, 0, cos_.count());
    sin_.upload(stream_, 0, sin_.count());
  }

  bool done() const { return waiting_.empty() && running_.empty(); }
  int reused_pages() const { return free_.reused(); }

  // Returns the largest error, in units of what roundings allow.
  double step(int number) {
    join(number);
    if (running_.empty()) return 0;
    prepare();
    append();
    attend();
    for (const Mirrored<Bf16>* x : {&rotated_, &o_}) x->download(stream_, 0, tokens() * kQuerySize);
    for (const Mirrored<Bf16>* x : {&k_cache_, &v_cache_}) x->download(stream_, 0, x->count());
    stream_.wait();
    double worst = 0;
    for (std::size_t i = 0; i < running_.size(); ++i) worst = larger(worst, check(static_cast<int>(i)));
    std::printf(
        "step %d: %zu sequences, %zu new tokens, %d of %d pages, largest error %.2f of what roundings "
        "allow\n",
        number, running_.size(), tokens(), kPages - free_.count(), kPages, worst);
    leave();
    return worst;
  }

 private:
  static double larger(double a, double b) { return b <= a ? a : b; }  // NaN is the largest

  std::size_t tokens() const { return static_cast<std::size_t>(starts_.host()[running_.size()]); }

  // Who has arrived joins, in order, if the pages that all may come to need are there: then none waits for a
  // page later. They are taken when they are needed.
  void join(int step) {
    while (!waiting_.empty() && waiting_.front().arrives <= step && running_.size() < kMostRunning) {
      int promised = waiting_.front().most_pages();
      for (const Sequence& s : running_) promised += s.most_pages() - static_cast<int>(s.pages.size());
      if (promised > free_.count()) return;
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      std::printf("sequence %d joins\n", running_.back().number);
    }
  }

  void leave() {
    for (std::size_t i = running_.size(); i-- > 0;) {
      if (!running_[i].done()) continue;
      std::printf("sequence %d leaves\n", running_[i].number);
      free_.give_back(running_[i].pages);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // New tokens of all that run, packed, the pages for them, and what the kernels are told of both.
  void prepare() {
    std::normal_distribution<float> normal;
    starts_.host()[0] = 0;
    std::fill_n(table_.host(), table_.count(), -1);
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Sequence& s = running_[i];
      s.fresh = s.used == 0 ? s.prompt : 1;
      const std::int32_t first = starts_.host()[i];
      starts_.host()[i + 1] = first + s.fresh;
      before_.host()[i] = s.used;
      after_.host()[i] = s.used += s.fresh;
      while (static_cast<int>(s.pages.size()) < pages_for(s.used)) s.pages.push_back(free_.take());
      std::copy(s.pages.begin(), s.pages.end(), table_.host() + i * kMaxPages);
      for (int t = first * kQuerySize; t < (first + s.fresh) * kQuerySize; ++t)
        q_.host()[t] = narrow(normal(random_));
      for (int t = first * kKeySize; t < (first + s.fresh) * kKeySize; ++t) {
        s.k.push_back(k_.host()[t] = narrow(normal(random_)));
        s.v.push_back(v_.host()[t] = narrow(normal(random_)));
      }
    }
    q_.upload(stream_, 0, tokens() * kQuerySize);
    for (const Mirrored<Bf16>* x : {&k_, &v_}) x->upload(stream_, 0, tokens() * kKeySize);
    for (const Mirrored<std::int32_t>* x : {&table_, &starts_, &before_, &after_})
      x->upload(stream_, 0, x->count());
  }

  fmha::cache cache() const {
    fmha::cache c;
    c.dtype = FMHA_BF16;
    c.k = fmha::cache_tensor::bshd(k_cache_.device(), kPageSize, kKeyHeads, kDim);
    c.v = fmha::cache_tensor::bshd(v_cache_.device(), kPageSize, kKeyHeads, kDim);
    c.pages = kPages;
    c.page_size = kPageSize;
    c.block_table = table_.device();
    c.stride_block_table = c.max_pages = kMaxPages;
    return c;
  }

  int longest() const {
    int most = 0;
    for (const Sequence& s : running_) most = std::max(most, s.fresh);
    return most;
  }

  // Keys go to the cache rotated, values as they are, and queries are rotated to another place.
  void append() const {
    const fmha::cache c = cache();
    fmha::kv_append_params p;
    p.dtype = FMHA_BF16;
    p.batch = static_cast<std::int64_t>(running_.size());
    p.seqlen = longest();
    p.total = static_cast<std::int64_t>(tokens());
    p.nhead_q = kHeads;
    p.nhead_k = kKeyHeads;
    p.hdim_q = p.hdim_v = kDim;
    p.q = fmha::tensor::packed(q_.device(), kHeads, kDim);
    p.q_out = fmha::tensor::packed(rotated_.device(), kHeads, kDim);
    p.k = fmha::tensor::packed(k_.device(), kKeyHeads, kDim);
    p.v = fmha::tensor::packed(v_.device(), kKeyHeads, kDim);
    p.cu_seqlens = starts_.device();
    p.seqused_k = before_.device();
    p.rotary.cos = cos_.device();
    p.rotary.sin = sin_.device();
    p.rotary.positions = kMaxPages * kPageSize;
    p.rotary.stride_position = kHalf;
    p.rotary.dim = kDim;
    p.rotary.dtype = FMHA_FP32;
    p.cache = &c;
    fmha::kv_append(p, stream_);
  }

  void attend() {
    fmha::fwd_params f;
    f.dtype = FMHA_BF16;
    f.batch = static_cast<std::int64_t>(running_.size());
    f.seqlen_q = longest();
    f.seqlen_k = kMaxPages * kPageSize;  // the longest that there may be: lengths are on the device
    f.total_q = static_cast<std::int64_t>(tokens());
    f.nhead_q = kHeads;
    f.nhead_k = kKeyHeads;
    f.hdim_q = f.hdim_v = kDim;
    f.softmax_scale = kScale;
    f.mask = FMHA_MASK_CAUSAL;
    f.q = fmha::tensor::packed(rotated_.device(), kHeads, kDim);
    f.o = fmha::tensor::packed(o_.device(), kHeads, kDim);
    f.cu_seqlens_q = starts_.device();
    f.seqused_k = after_.device();
    const fmha::cache c = cache();
    fmha::decode_params p;
    p.fwd = &f;
    p.cache = &c;
    p.workspace_bytes = fmha::decode_workspace_bytes(p);
    // The stream is past the last step, so its workspace may go.
    if (p.workspace_bytes > 0 &&
        (!workspace_ || static_cast<std::int64_t>(workspace_->count()) < p.workspace_bytes)) {
      workspace_ = std::make_unique<Mirrored<char>>(static_cast<std::size_t>(p.workspace_bytes));
    }
    p.workspace = workspace_ ? workspace_->device() : nullptr;
    fmha::decode(p, stream_);
  }

  // One sequence: what its pages hold is what it was given, and attention over that is right.
  double check(int i) const {
    const Sequence& s = running_[static_cast<std::size_t>(i)];
    std::vector<Bf16> k, v;
    double worst = 0;
    for (int t = 0; t < s.used; ++t) {
      const int row = s.pages[static_cast<std::size_t>(t / kPageSize)] * kPageSize + t % kPageSize;
      for (int e = 0; e < kKeySize; ++e) {
        k.push_back(k_cache_.host()[row * kKeySize + e]);
        v.push_back(v_cache_.host()[row * kKeySize + e]);
      }
      for (int h = 0; h < kKeyHeads; ++h) {
        const int at = t * kKeySize + h * kDim;
        worst = larger(
            worst, rotation_error(&s.k[static_cast<std::size_t>(at)], &k[static_cast<std::size_t>(at)], t));
      }
    }
    if (v != s.v) worst = INFINITY;
    for (int t = 0; t < s.fresh; ++t) {
      for (int h = 0; h < kHeads; ++h) {
        const int at = (starts_.host()[i] + t) * kQuerySize + h * kDim, keys = s.used - s.fresh + t + 1;
        const int head = h / (kHeads / kKeyHeads) * kDim;
        worst = larger(worst, rotation_error(q_.host() + at, rotated_.host() + at, keys - 1));
        worst = larger(worst, worst_error(rotated_.host() + at, &k[static_cast<std::size_t>(head)],
                                          &v[static_cast<std::size_t>(head)], o_.host() + at, keys, kScale));
      }
    }
    return worst;
  }

  // The bound for one head of a token: half an ulp of the result (2^-8 of it), and 2^-22 for float's
  // products.
  double rotation_error(const Bf16* x, const Bf16* rotated, int position) const {
    double worst = 0;
    for (int d = 0; d < kDim; ++d) {
      const int i = position * kHalf + d % kHalf;
      const double a = widen(x[d % kHalf]), b = widen(x[d % kHalf + kHalf]), c = cos_.host()[i],
                   s = sin_.host()[i];
      const double exact = d < kHalf ? a * c - b * s : b * c + a * s;
      const double products = std::fabs(d < kHalf ? a * c : b * c) + std::fabs(d < kHalf ? b * s : a * s);
      const double allowed = std::ldexp(std::fabs(exact), -8) + std::ldexp(products, -22);
      worst = larger(worst, std::fabs(widen(rotated[d]) - exact) / allowed);
    }
    return worst;
  }

  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;
  FreeList free_;
  std::mt19937 random_{1};
  Mirrored<Bf16> k_cache_, v_cache_;        // (kPages, kPageSize, kKeyHeads, kDim)
  Mirrored<Bf16> q_, rotated_, k_, v_, o_;  // (tokens, heads, kDim)
  Mirrored<float> cos_, sin_;               // (kMaxPages * kPageSize, kHalf)
  Mirrored<std::int32_t> table_;            // (kMostRunning, kMaxPages)
  Mirrored<std::int32_t> starts_;           // (kMostRunning + 1): the first of each sequence's new tokens
  Mirrored<std::int32_t> before_, after_;   // (kMostRunning): tokens in the cache
  std::unique_ptr<Mirrored<char>> workspace_;
  Stream stream_;  // ends first
};

bool run() {
  const std::string_view version = fmha::version(), runtime = fmha::hip_runtime_path();
  std::printf("fmha_rocm %.*s on %.*s\n", static_cast<int>(version.size()), version.data(),
              static_cast<int>(runtime.size()), runtime.data());
  // number, arrives, prompt, wanted
  Server server({{0, 0, 70, 6},
                 {1, 0, 5, 12},
                 {2, 1, 33, 3},
                 {3, 2, 1, 9},
                 {4, 3, 90, 4},
                 {5, 3, 16, 8},
                 {6, 5, 47, 5},
                 {7, 8, 20, 7}});
  double worst = 0;
  for (int step = 0; !server.done(); ++step) {
    const double error = server.step(step);
    if (!(error <= worst)) worst = error;
  }
  std::printf("%d times a page was used again\n", server.reused_pages());
  const bool right = worst <= 1 && server.reused_pages() > 0;
  std::puts(right ? "right" : "WRONG");
  return right;
}

}  // namespace

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const fmha::error& e) {
    std::fprintf(stderr, "fmha_rocm, status %d: %s\n", static_cast<int>(e.status()), e.what());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  return 1;
}

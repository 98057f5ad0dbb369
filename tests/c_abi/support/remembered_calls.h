// SPDX-License-Identifier: MIT OR Apache-2.0
// Random calls of every family, for remembered_test.cc.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "bwd_params.h"
#include "fake_runtime.h"
#include "fmha_rocm.h"
#include "params.h"

enum class Family { kFwd, kVarlen, kBwd, kDecode, kAppend, kMerge, kQuantize };

// A call of one of the families: the others' structs are not looked at.
struct AnyCall {
  Family family;
  fmha_fwd_params fwd;
  fmha_bwd_params bwd;
  fmha_cache cache;
  fmha_decode_params decode;
  fmha_kv_append_params append;
  fmha_merge_params merge;
  fmha_quantize_params quantize;

  fmha_status run() {
    bwd.fwd = decode.fwd = &fwd;
    decode.cache = append.cache = &cache;
    switch (family) {
      case Family::kFwd:
      case Family::kVarlen:
        return fmha_fwd(&fwd, nullptr);
      case Family::kBwd:
        return fmha_bwd(&bwd, nullptr);
      case Family::kDecode:
        return fmha_decode(&decode, nullptr);
      case Family::kAppend:
        return fmha_kv_append(&append, nullptr);
      case Family::kMerge:
        return fmha_merge(&merge, nullptr);
      case Family::kQuantize:
        return fmha_quantize(&quantize, nullptr);
    }
    return FMHA_INTERNAL;
  }

  void skip_memory_check() {
    fwd.flags = bwd.flags = decode.flags = append.flags = merge.flags = quantize.flags = FMHA_NO_MEMORY_CHECK;
  }
};

class Series {
 public:
  // All calls have their addresses in these, each address in its own.
  static constexpr size_t kRegions = 24, kBytes = size_t{1} << 25;

  Series() {
    for (char*& region : regions_) region = static_cast<char*>(device_memory(kBytes));
  }

  // A call of a random shape.
  AnyCall next(Family family) {
    constexpr int64_t kLengths[] = {1, 64, 512, 2048}, kHdims[] = {64, 128};
    constexpr fmha_dtype kTypes[] = {FMHA_FP16, FMHA_BF16};
    const bool latent = family == Family::kDecode && below(4) == 0;
    AnyCall c = of(family, one_of(kTypes), 1 + below(2), one_of(kLengths), one_of(kLengths), 1 + below(2),
                   latent ? kLatent : one_of(kHdims));
    if (latent) c.fwd.hdim_v = 512;
    if (below(3) == 0) c.fwd.mask = FMHA_MASK_CAUSAL;
    if (below(6) == 0) c.fwd.mask = FMHA_MASK_WINDOW, c.fwd.window_left = 16 << below(4);
    if (below(8) == 0) c.fwd.kernel = c.bwd.kernel = c.decode.kernel = below(4);
    if (below(4) == 0) c.fwd.p_drop = 0.25F;
    if (below(5) == 0) c.fwd.lse.data = nullptr, c.merge.lse.data = nullptr;
    if (below(4) == 0) c.fwd.softcap = 30.0F;
    has_alibi_ = below(6) == 0, has_bias_ = !has_alibi_ && c.fwd.softcap == 0.0F && below(4) == 0;
    has_used_ = below(3) == 0, has_rotary_ = below(2) == 0, has_slots_ = below(3) == 0;
    has_list_ = below(3) == 0, has_seed_ = below(2) == 0, has_sinks_ = below(3) == 0;
    one_array_ = below(2) == 0, in_place_ = below(2) == 0;
    c.decode.num_splits = below(3), c.bwd.deterministic = below(2);
    c.merge.accumulate = c.bwd.accumulate = below(4) == 0 ? 1 : 0;
    c.quantize.given = below(4) == 0 ? 1 : 0, c.quantize.hadamard = below(2);
    if (below(3) == 0) c.quantize.scale_unit = FMHA_SCALE_BLOCK, c.quantize.block_tokens = 16 << below(4);
    set_rotary(c);
    return c;
  }

  // Most programs call it like this.
  AnyCall plain(Family family) {
    AnyCall c = of(family, FMHA_BF16, 1, 512, 512, 2, 128);
    has_alibi_ = has_bias_ = has_used_ = has_rotary_ = has_slots_ = has_list_ = has_seed_ = has_sinks_ =
        false;
    one_array_ = in_place_ = true;
    c.decode.num_splits = 1;
    is_random_ = false;
    move(c);
    is_random_ = true;
    return c;
  }

  // Other addresses, seeds and workspace.
  void move(AnyCall& c) {
    region_ = 0;
    c.fwd.philox_seed = static_cast<uint64_t>(below(100)),
    c.fwd.philox_offset = static_cast<uint64_t>(below(9));
    place_fwd(c);
    place_bwd(c.bwd);
    place_cache(c);
    place_append(c);
    place(c.merge.o_parts.data), place(c.merge.lse_parts.data), place(c.merge.o.data);
    place_if(has_used_ || c.merge.accumulate != 0 || !is_random_, c.merge.lse.data);
    place_quantize(c.quantize);
  }

 private:
  static constexpr int64_t kLatent = 576;  // the head dim of keys in which values may lie

  int below(int n) { return is_random_ ? static_cast<int>(random_() % static_cast<uint64_t>(n)) : n - 1; }
  template <typename T, size_t N>
  T one_of(const T (&values)[N]) {
    return values[below(N)];
  }

  AnyCall of(Family family, fmha_dtype dtype, int64_t batch, int64_t seqlen_q, int64_t seqlen_k,
             int64_t nhead_k, int64_t hdim) {
    AnyCall c{};
    c.family = family;
    if (family == Family::kDecode && seqlen_q > 64) seqlen_q = 1;
    c.fwd = test_params(dtype, TEST_BSHD, batch, seqlen_q, seqlen_k, 2, nhead_k, hdim);
    c.bwd = test_bwd_params(&c.fwd);
    c.decode.struct_size = sizeof c.decode;
    const int64_t row = nhead_k * hdim;
    c.cache.struct_size = sizeof c.cache;
    c.cache.dtype = dtype;
    c.cache.pages = 256, c.cache.page_size = 16;
    c.cache.k.stride_page = c.cache.v.stride_page = 16 * row;
    c.cache.k.stride_token = c.cache.v.stride_token = row;
    c.cache.k.stride_head = c.cache.v.stride_head = hdim;
    c.cache.max_pages = c.cache.stride_block_table = c.cache.indices = 256;
    c.append.struct_size = sizeof c.append;
    c.append.dtype = dtype;
    c.append.batch = batch, c.append.seqlen = seqlen_q;
    c.append.nhead_q = 2, c.append.nhead_k = nhead_k, c.append.hdim_q = c.append.hdim_v = hdim;
    c.append.q = c.append.q_out = c.fwd.q;
    c.append.k = c.append.v = test_tensor(nullptr, TEST_BSHD, seqlen_q, nhead_k, hdim);
    c.merge.struct_size = sizeof c.merge;
    c.merge.dtype = dtype;
    c.merge.parts = 2, c.merge.batch = batch, c.merge.seqlen = seqlen_q, c.merge.nhead = 2;
    c.merge.hdim = hdim;
    c.merge.o = c.fwd.o, c.merge.lse = c.fwd.lse;
    c.merge.o_parts = {nullptr, batch * seqlen_q * 2 * hdim, c.fwd.o.stride_batch, c.fwd.o.stride_seqlen,
                       c.fwd.o.stride_head};
    c.merge.lse_parts = {nullptr, batch * seqlen_q * 2, c.fwd.lse.stride_batch, c.fwd.lse.stride_head};
    c.quantize.struct_size = sizeof c.quantize;
    c.quantize.dtype = dtype, c.quantize.out_dtype = FMHA_FP8_E4M3_FNUZ;
    c.quantize.scale_unit = FMHA_SCALE_HEAD;
    c.quantize.batch = batch, c.quantize.seqlen = seqlen_q, c.quantize.nhead = 2, c.quantize.hdim = hdim;
    c.quantize.x = c.quantize.out = c.fwd.q;
    c.quantize.descale = {nullptr, 2 * 2048, 2048, 1};
    if (family == Family::kVarlen) c.fwd.total_q = batch * seqlen_q, c.fwd.total_k = batch * seqlen_k;
    if (family == Family::kVarlen) c.fwd.lse.stride_head = c.fwd.total_q;
    return c;
  }

  void set_rotary(AnyCall& c) const {
    if (!has_rotary_) return;
    fmha_rotary& r = c.append.rotary;
    r.positions = 4096, r.dim = c.append.hdim_q, r.stride_position = r.dim / 2;
  }

  // Mostly aligned and apart, now and then not, not there, or the host's.
  template <typename T>
  void place(T*& address) {
    static constexpr int kOff[] = {2, 4, 8, 16, 128};
    alignas(256) static char host[4096];
    char* start = regions_[region_++ % kRegions] + 256 * below(50);
    if (is_random_) {
      if (below(60) == 0) start = regions_[static_cast<size_t>(below(kRegions))];
      if (below(60) == 0) start = host;
      if (below(12) == 0) start += one_of(kOff);
      if (below(60) == 0) start = nullptr;
    }
    address = reinterpret_cast<T*>(start);
  }
  template <typename T>
  void place_if(bool wanted, T*& address) {
    if (wanted) place(address);
    if (!wanted) address = nullptr;
  }

  void place_fwd(AnyCall& c) {
    fmha_fwd_params& p = c.fwd;
    const bool decode = c.family == Family::kDecode, varlen = c.family == Family::kVarlen;
    place(p.q.data), place(p.k.data), place(p.v.data), place(p.o.data);
    place_if(!is_random_ || c.family == Family::kBwd || below(3) != 0, p.lse.data);
    place_if(has_bias_, p.bias.data);
    place_if(has_alibi_, p.alibi_slopes);
    place_if(varlen, p.cu_seqlens_q), p.cu_seqlens_k = p.cu_seqlens_q;
    if (varlen && !one_array_) place(p.cu_seqlens_k);
    place_if(decode || (varlen && has_used_), p.seqused_k);
    place_if(varlen && has_used_, p.seqused_q);
    place_if(has_seed_, p.philox_seed_offset);
    place_if(has_used_, p.workspace);
    place_if(has_sinks_ && !decode, p.sinks);
    p.workspace_bytes = int64_t{1} << (12 + 2 * below(6));
  }

  void place_bwd(fmha_bwd_params& p) {
    place(p.dout.data), place(p.dq.data), place(p.dk.data), place(p.dv.data), place(p.workspace);
    p.workspace_bytes = kBytes;
    place_if(has_bias_ && one_array_, p.dbias.data);
  }

  void place_cache(AnyCall& c) {
    region_ = 8;  // calls with a cache have no gradients
    fmha_cache& cache = c.cache;
    place(cache.k.data), place(cache.v.data);
    if (c.fwd.hdim_q == kLatent && below(2) == 0) cache.v.data = cache.k.data;
    cache.kv_indptr = cache.kv_indices = nullptr;
    place_if(!has_list_, cache.block_table);
    if (has_list_) place(cache.kv_indptr), place(cache.kv_indices);
    place_if(has_sinks_, c.decode.sinks), place_if(has_used_, c.decode.leftpad_k);
    place(c.decode.workspace);
    c.decode.workspace_bytes = kBytes;
  }

  void place_quantize(fmha_quantize_params& p) {
    place(p.x.data), place(p.out.data), place(p.descale.data), place(p.workspace);
    p.workspace_bytes = kBytes;
  }

  void place_append(AnyCall& c) {
    fmha_kv_append_params& p = c.append;
    p.q_out.data = nullptr;
    place_if(has_rotary_, p.q.data);
    if (has_rotary_ && !in_place_) place(p.q_out.data);
    if (in_place_ && one_array_) p.q_out.data = p.q.data;
    place(p.k.data), place(p.v.data);
    place_if(!has_slots_, p.seqused_k), place_if(has_slots_, p.slots);
    place_if(has_rotary_, p.rotary.cos), place_if(has_rotary_, p.rotary.sin);
    place_if(has_rotary_ && has_used_, p.positions);
  }

  std::mt19937_64 random_{7};
  char* regions_[kRegions] = {};
  size_t region_ = 0;
  bool is_random_ = true;
  bool has_alibi_ = false, has_bias_ = false, has_used_ = false, has_rotary_ = false, has_slots_ = false;
  bool has_list_ = false, has_seed_ = false, has_sinks_ = false, one_array_ = true, in_place_ = true;
};

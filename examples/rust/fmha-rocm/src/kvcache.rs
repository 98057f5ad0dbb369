// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention over a KV cache, and appending to one, in the manner of candle-flash-attn's functions.
use crate::append::KvAppend;
use crate::attention::Options;
use crate::cache::{CacheLens, KvCache};
use crate::cached::CachedAttention;
use crate::error::Result;
use crate::flash::causal_window;
use crate::tensor::{SeqLens, Tensor};

/// Like [`flash_attn`](crate::flash_attn), but over keys and values in a cache: q is (batch, seq_len_q,
/// num_heads, head_size), the last tokens of the sequences.
///
/// `cache_seqlens`: the tokens of each sequence in the cache, those of q included, unless
/// [`after_append`](CachedAttention::after_append) says otherwise. New ones are stored there by
/// [`flash_attn_kv_append`] before, on the same stream. `causal`: as there, the last query sees the last key.
pub fn flash_attn_with_kvcache<'a>(
    q: &Tensor<'a, 4>,
    cache: &KvCache<'a>,
    cache_seqlens: &CacheLens<'a>,
    softmax_scale: f32,
    causal: bool,
) -> Result<CachedAttention<'a, 4>> {
    let options = Options { alibi_slopes: None, softmax_scale, window: causal_window(causal), softcap: 0.0 };
    CachedAttention::batch(q, cache, cache_seqlens, options)
}

/// Like [`flash_attn_with_kvcache`], but of packed queries, (total, num_heads, head_size): sequences that begin,
/// and such that go on with one token, share a call.
///
/// `seqlens_q` is cumulative, and `max_seqlen_q` no less than the longest, as in
/// [`flash_attn_varlen`](crate::flash_attn_varlen). The cache may be one without pages, too.
pub fn flash_attn_varlen_paged<'a>(
    q: &Tensor<'a, 3>,
    cache: &KvCache<'a>,
    seqlens_q: &SeqLens<'a>,
    max_seqlen_q: usize,
    cache_seqlens: &CacheLens<'a>,
    softmax_scale: f32,
    causal: bool,
) -> Result<CachedAttention<'a, 3>> {
    let options = Options { alibi_slopes: None, softmax_scale, window: causal_window(causal), softcap: 0.0 };
    CachedAttention::packed(q, cache, (seqlens_q, max_seqlen_q), cache_seqlens, options)
}

/// Stores new keys and values, (batch, seq_len_new, num_heads_kv, head_size), in a cache.
///
/// `cache_seqlens`: the tokens of each sequence before, which the new ones follow. They are not written.
pub fn flash_attn_kv_append<'a>(
    cache: &mut KvCache<'a>,
    k: &Tensor<'a, 4>,
    v: &Tensor<'a, 4>,
    cache_seqlens: &CacheLens<'a>,
) -> Result<KvAppend<'a, 4>> {
    KvAppend::batch(cache, [k, v], cache_seqlens)
}

/// Like [`flash_attn_kv_append`], but of packed sequences, (total, num_heads_kv, head_size). `seqlens_new` is
/// cumulative, and `max_seqlen_new` no less than the longest.
pub fn flash_attn_kv_append_varlen<'a>(
    cache: &mut KvCache<'a>,
    k: &Tensor<'a, 3>,
    v: &Tensor<'a, 3>,
    seqlens_new: &SeqLens<'a>,
    max_seqlen_new: usize,
    cache_seqlens: &CacheLens<'a>,
) -> Result<KvAppend<'a, 3>> {
    KvAppend::packed(cache, [k, v], (seqlens_new, max_seqlen_new), cache_seqlens)
}

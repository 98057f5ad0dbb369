// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention over a KV cache, and appending to one, in the manner of candle-flash-attn's functions.
use crate::append::KvAppend;
use crate::attention::Options;
use crate::cache::{CacheLens, KvCache};
use crate::cached::CachedAttention;
use crate::error::{Error, Result};
use crate::flash::causal_window;
use crate::tensor::{SeqLens, Tensor, TensorMut};

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

/// candle's function of this name, with its arguments: like
/// [`flash_attn_varlen_windowed`](crate::flash_attn_varlen_windowed), but over pages, k and v being (pages,
/// page_block_size, num_heads_kv, head_size).
///
/// `seqlens_k` is cumulative, too, and `block_table` has the pages of each sequence, I32 or U32 (batch,
/// max_pages). page_block_size is any power of two. Scores become `softcap * tanh(score / softcap)` before the
/// mask with a `softcap` above 0. `mm_prefix_ranges` is None: no kernel here exempts ranges of keys from the mask.
///
/// # Safety
/// The entries of `block_table` that the lengths reach, which only the kernels see, are numbers of pages. Other
/// entries do not matter.
#[allow(clippy::too_many_arguments)]
pub unsafe fn flash_attn_varlen_paged_windowed<'a>(
    q: &Tensor<'a, 3>,
    k: &Tensor<'a, 4>,
    v: &Tensor<'a, 4>,
    seqlens_q: &SeqLens<'a>,
    seqlens_k: &SeqLens<'a>,
    block_table: &Tensor<'a, 2>,
    mm_prefix_ranges: Option<&Tensor<'a, 3>>,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
    page_block_size: usize,
    softcap: Option<f32>,
) -> Result<CachedAttention<'a, 3>> {
    if mm_prefix_ranges.is_some() {
        return Err(Error::unsupported(
            "mm_prefix_ranges: got a tensor, expected None: no kernel exempts ranges of keys from the mask"
                .into(),
        ));
    }
    let page_size = k.layout.shape[1];
    if page_size != page_block_size {
        return Err(Error::invalid(format!(
            "page_block_size: got {page_block_size}, expected {page_size}, which k has"
        )));
    }
    // Attention only reads a cache.
    let [k, v] = [k, v].map(|x| TensorMut::from_raw_parts(x.data as *mut _, x.layout));
    let window = (window_size_left, window_size_right);
    let options = Options { alibi_slopes: None, softmax_scale, window, softcap: softcap.unwrap_or(0.0) };
    let cache = KvCache::paged(k, v, *block_table);
    let (seqlens, longest) = ([seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k]);
    CachedAttention::packed_cumulative(q, &cache, seqlens, longest, options)
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

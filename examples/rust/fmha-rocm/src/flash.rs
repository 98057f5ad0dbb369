// SPDX-License-Identifier: MIT OR Apache-2.0
//! candle-flash-attn's functions: its names, its arguments, its order.
use crate::attention::{Attention, Options};
use crate::error::Result;
use crate::tensor::{SeqLens, Tensor};

/// candle's way to say causal: any key to the left, none to the right.
pub(crate) fn causal_window(causal: bool) -> (Option<usize>, Option<usize>) {
    (None, if causal { Some(0) } else { None })
}

/// `softmax(q k^T * softmax_scale) v`, over (batch, seq_len, num_heads, head_size).
///
/// k and v may have fewer heads than q, by a whole factor (grouped queries): query head h reads key head
/// `h / (num_heads_q / num_heads_kv)`. `causal`: see [`flash_attn_windowed`].
pub fn flash_attn<'a>(
    q: &Tensor<'a, 4>,
    k: &Tensor<'a, 4>,
    v: &Tensor<'a, 4>,
    softmax_scale: f32,
    causal: bool,
) -> Result<Attention<'a, 4>> {
    let window = causal_window(causal);
    Attention::batch([q, k, v], Options { alibi_slopes: None, softmax_scale, window, softcap: 0.0 })
}

/// Like [`flash_attn`], but a query sees at most `window_size_left` keys to the left and `window_size_right` to
/// the right of its own column, which for row i is `i + seq_len_k - seq_len_q` (the last query's is the last
/// key). None, or seq_len_k and more: no limit. (None, Some(0)) is causal. A query that sees no key gives 0.
pub fn flash_attn_windowed<'a>(
    q: &Tensor<'a, 4>,
    k: &Tensor<'a, 4>,
    v: &Tensor<'a, 4>,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Attention<'a, 4>> {
    let window = (window_size_left, window_size_right);
    Attention::batch([q, k, v], Options { alibi_slopes: None, softmax_scale, window, softcap: 0.0 })
}

/// Like [`flash_attn`], but `-slope * |j - own column of the query|` is added to the scaled score of key j.
///
/// `alibi_slopes`: F32 (num_heads_q).
pub fn flash_attn_alibi<'a>(
    q: &Tensor<'a, 4>,
    k: &Tensor<'a, 4>,
    v: &Tensor<'a, 4>,
    alibi_slopes: &Tensor<'a, 1>,
    softmax_scale: f32,
    causal: bool,
) -> Result<Attention<'a, 4>> {
    let (alibi_slopes, window) = (Some(alibi_slopes), causal_window(causal));
    Attention::batch([q, k, v], Options { alibi_slopes, softmax_scale, window, softcap: 0.0 })
}

/// Like [`flash_attn_alibi`], with the window of [`flash_attn_windowed`].
pub fn flash_attn_alibi_windowed<'a>(
    q: &Tensor<'a, 4>,
    k: &Tensor<'a, 4>,
    v: &Tensor<'a, 4>,
    alibi_slopes: &Tensor<'a, 1>,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Attention<'a, 4>> {
    let (alibi_slopes, window) = (Some(alibi_slopes), (window_size_left, window_size_right));
    Attention::batch([q, k, v], Options { alibi_slopes, softmax_scale, window, softcap: 0.0 })
}

/// Like [`flash_attn_alibi_windowed`], but scores become `softcap * tanh(score / softcap)` before the mask if
/// `softcap` is above 0. Not together with slopes, which no kernel does.
#[allow(clippy::too_many_arguments)]
pub fn flash_attn_alibi_windowed_softcap<'a>(
    q: &Tensor<'a, 4>,
    k: &Tensor<'a, 4>,
    v: &Tensor<'a, 4>,
    alibi_slopes: Option<&Tensor<'a, 1>>,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
    softcap: f32,
) -> Result<Attention<'a, 4>> {
    let window = (window_size_left, window_size_right);
    Attention::batch([q, k, v], Options { alibi_slopes, softmax_scale, window, softcap })
}

/// Like [`flash_attn`], but over sequences of different lengths, packed: (total, num_heads, head_size).
///
/// `seqlens_q` and `seqlens_k` are cumulative: sequence b has the rows from number b up to number b + 1.
/// `max_seqlen_q` and `max_seqlen_k` are no less than the longest: what of a sequence is beyond is not computed.
#[allow(clippy::too_many_arguments)]
pub fn flash_attn_varlen<'a>(
    q: &Tensor<'a, 3>,
    k: &Tensor<'a, 3>,
    v: &Tensor<'a, 3>,
    seqlens_q: &SeqLens<'a>,
    seqlens_k: &SeqLens<'a>,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    causal: bool,
) -> Result<Attention<'a, 3>> {
    let options = Options { alibi_slopes: None, softmax_scale, window: causal_window(causal), softcap: 0.0 };
    Attention::packed([q, k, v], [seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k], options)
}

/// Like [`flash_attn_varlen`], with the window of [`flash_attn_windowed`] in each sequence. A side is without
/// limit from `max_seqlen_k` on.
#[allow(clippy::too_many_arguments)]
pub fn flash_attn_varlen_windowed<'a>(
    q: &Tensor<'a, 3>,
    k: &Tensor<'a, 3>,
    v: &Tensor<'a, 3>,
    seqlens_q: &SeqLens<'a>,
    seqlens_k: &SeqLens<'a>,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Attention<'a, 3>> {
    let window = (window_size_left, window_size_right);
    let options = Options { alibi_slopes: None, softmax_scale, window, softcap: 0.0 };
    Attention::packed([q, k, v], [seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k], options)
}

/// Like [`flash_attn_varlen`], with the slopes of [`flash_attn_alibi`].
#[allow(clippy::too_many_arguments)]
pub fn flash_attn_varlen_alibi<'a>(
    q: &Tensor<'a, 3>,
    k: &Tensor<'a, 3>,
    v: &Tensor<'a, 3>,
    alibi_slopes: &Tensor<'a, 1>,
    seqlens_q: &SeqLens<'a>,
    seqlens_k: &SeqLens<'a>,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    causal: bool,
) -> Result<Attention<'a, 3>> {
    let (alibi_slopes, window) = (Some(alibi_slopes), causal_window(causal));
    let options = Options { alibi_slopes, softmax_scale, window, softcap: 0.0 };
    Attention::packed([q, k, v], [seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k], options)
}

/// Like [`flash_attn_varlen_windowed`], with the slopes of [`flash_attn_alibi`].
#[allow(clippy::too_many_arguments)]
pub fn flash_attn_varlen_alibi_windowed<'a>(
    q: &Tensor<'a, 3>,
    k: &Tensor<'a, 3>,
    v: &Tensor<'a, 3>,
    alibi_slopes: &Tensor<'a, 1>,
    seqlens_q: &SeqLens<'a>,
    seqlens_k: &SeqLens<'a>,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Attention<'a, 3>> {
    let (alibi_slopes, window) = (Some(alibi_slopes), (window_size_left, window_size_right));
    let options = Options { alibi_slopes, softmax_scale, window, softcap: 0.0 };
    Attention::packed([q, k, v], [seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k], options)
}

/// Like [`flash_attn_varlen_alibi_windowed`], with the softcap of [`flash_attn_alibi_windowed_softcap`].
#[allow(clippy::too_many_arguments)]
pub fn flash_attn_varlen_alibi_windowed_softcap<'a>(
    q: &Tensor<'a, 3>,
    k: &Tensor<'a, 3>,
    v: &Tensor<'a, 3>,
    alibi_slopes: Option<&Tensor<'a, 1>>,
    seqlens_q: &SeqLens<'a>,
    seqlens_k: &SeqLens<'a>,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
    softcap: f32,
) -> Result<Attention<'a, 3>> {
    let options =
        Options { alibi_slopes, softmax_scale, window: (window_size_left, window_size_right), softcap };
    Attention::packed([q, k, v], [seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k], options)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention over a KV cache that is ready but for its output.
use crate::attention::{integer, Attention, Kernel, Options};
use crate::cache::{require_room, CacheLens, KvCache, Workspace};
use crate::error::{check, Error, Result};
use crate::tensor::{DType, SeqLens, Stream, Tensor, TensorMut};
use fmha_rocm_sys as sys;

/// Attention over a KV cache: what [`flash_attn_with_kvcache`](crate::flash_attn_with_kvcache) and
/// [`flash_attn_varlen_paged`](crate::flash_attn_varlen_paged) return. [`run`](Self::run) enqueues it.
///
/// RANK is that of q: 4 for batches, 3 for packed sequences.
#[must_use = "nothing is computed before run()"]
#[derive(Debug)]
pub struct CachedAttention<'a, const RANK: usize> {
    attention: Attention<'a, RANK>,
    cache: sys::fmha_cache,
    sinks: *const f32,
    num_splits: i32,
    seqlen_new: i32,
}

// SAFETY: as of Attention.
unsafe impl<const RANK: usize> Send for CachedAttention<'_, RANK> {}
// SAFETY: the same.
unsafe impl<const RANK: usize> Sync for CachedAttention<'_, RANK> {}

impl<'a> CachedAttention<'a, 4> {
    pub(crate) fn batch(
        q: &Tensor<'a, 4>,
        cache: &KvCache<'a>,
        lengths: &CacheLens<'a>,
        options: Options<'_, 'a>,
    ) -> Result<Self> {
        let [batch, seqlen_q, ..] = q.layout.shape;
        let (mut call, capacity) = CachedAttention::new(q, batch, cache, options)?;
        call.set_lengths(batch, lengths, capacity)?;
        call.attention.params.batch = integer("q", batch)?;
        call.attention.params.seqlen_q = integer("q", seqlen_q)?;
        Ok(call)
    }

    /// Also stores the log-sum-exp of each row of scores: F32 (batch, num_heads_q, seq_len_q).
    pub fn lse(mut self, lse: &'a mut TensorMut<'_, 3>) -> Result<Self> {
        self.attention = self.attention.lse(lse)?;
        Ok(self)
    }
}

impl<'a> CachedAttention<'a, 3> {
    pub(crate) fn packed(
        q: &Tensor<'a, 3>,
        cache: &KvCache<'a>,
        (seqlens_q, max_seqlen_q): (&SeqLens<'a>, usize),
        lengths: &CacheLens<'a>,
        options: Options<'_, 'a>,
    ) -> Result<Self> {
        let batch = seqlens_q.tensor.layout.shape[0].saturating_sub(1);
        let (mut call, capacity) = CachedAttention::new(q, batch, cache, options)?;
        call.set_lengths(batch, lengths, capacity)?;
        call.attention.set_packed_queries(q, seqlens_q, max_seqlen_q)?;
        Ok(call)
    }

    /// The lengths in the cache are cumulative, as those of the queries are.
    pub(crate) fn packed_cumulative(
        q: &Tensor<'a, 3>,
        cache: &KvCache<'a>,
        [seqlens_q, seqlens_k]: [&SeqLens<'a>; 2],
        [max_seqlen_q, max_seqlen_k]: [usize; 2],
        options: Options<'_, 'a>,
    ) -> Result<Self> {
        let numbers = seqlens_q.tensor.layout.shape;
        let (mut call, capacity) = CachedAttention::new(q, numbers[0].saturating_sub(1), cache, options)?;
        // The rows of the cache are pages: no number of them bounds the last of the cumulative lengths.
        seqlens_k.check("seqlens_k", numbers, usize::MAX, call.attention.device)?;
        require_room("max_seqlen_k", max_seqlen_k, capacity)?;
        call.attention.params.seqlen_k = integer("max_seqlen_k", max_seqlen_k)?;
        call.attention.params.cu_seqlens_k = seqlens_k.tensor.data.cast();
        call.attention.set_packed_queries(q, seqlens_q, max_seqlen_q)?;
        Ok(call)
    }

    /// Also stores the log-sum-exp of each row of scores: F32 (num_heads_q, total_q).
    pub fn lse(mut self, lse: &'a mut TensorMut<'_, 2>) -> Result<Self> {
        self.attention = self.attention.lse(lse)?;
        Ok(self)
    }
}

impl<'a, const RANK: usize> CachedAttention<'a, RANK> {
    /// All but lengths and batch. Also returns how many tokens of a sequence the cache can have.
    fn new(
        q: &Tensor<'a, RANK>,
        batch: usize,
        cache: &KvCache<'a>,
        options: Options<'_, 'a>,
    ) -> Result<(Self, usize)> {
        let (k, v) = (cache.k(), cache.v());
        let mut like_q = k.shape;
        like_q[3] = q.layout.shape[RANK - 1];
        k.require_shape("k_cache", like_q, "with the head size of q")?;
        let attention = Attention::of_query(q, k.shape[2], v.shape[3], options)?;
        let (cache, capacity) = cache.in_c(batch, attention.device)?;
        let call =
            CachedAttention { attention, cache, sinks: std::ptr::null(), num_splits: 0, seqlen_new: 0 };
        Ok((call, capacity))
    }

    fn set_lengths(&mut self, batch: usize, lengths: &CacheLens<'a>, capacity: usize) -> Result<()> {
        lengths.check(batch, self.attention.device, capacity)?;
        self.attention.params.seqlen_k = integer("cache_seqlens", lengths.longest)?;
        self.attention.params.seqused_k = lengths.tensor.data.cast();
        Ok(())
    }

    /// With the window of [`flash_attn_windowed`](crate::flash_attn_windowed).
    pub fn windowed(mut self, left: Option<usize>, right: Option<usize>) -> Result<Self> {
        self.attention.set_window((left, right))?;
        Ok(self)
    }

    /// With the slopes of [`flash_attn_alibi`](crate::flash_attn_alibi).
    pub fn alibi(mut self, slopes: &Tensor<'a, 1>) -> Result<Self> {
        let heads = self.attention.params.nhead_q as usize; // was one
        self.attention.set_slopes(slopes, heads)?;
        Ok(self)
    }

    /// Scores become `softcap * tanh(score / softcap)` before the mask if `softcap` is above 0.
    pub fn softcap(mut self, softcap: f32) -> Self {
        self.attention.params.softcap = softcap;
        self
    }

    /// A logit of each query head, F32 (num_heads_q), takes part in the softmax and has no value.
    pub fn sinks(mut self, sinks: &Tensor<'a, 1>) -> Result<Self> {
        sinks.layout.require_shape("sinks", [self.attention.params.nhead_q as usize], "(num_heads_q)")?;
        sinks.layout.require_dtype("sinks", DType::F32, "whatever q is")?;
        sinks.layout.require_device("sinks", self.attention.device)?;
        sinks.layout.require_contiguous_last("sinks")?;
        self.sinks = sinks.data.cast();
        Ok(self)
    }

    /// The lengths are those before an append of so many tokens to each sequence: the same tensor may serve both
    /// calls.
    pub fn after_append(mut self, tokens: usize) -> Result<Self> {
        let too_many = |_| Error::invalid(format!("tokens: got {tokens}, expected less than 2^31"));
        self.attention.params.seqlen_k += integer("tokens", tokens)? - i64::from(self.seqlen_new);
        self.seqlen_new = i32::try_from(tokens).map_err(too_many)?;
        Ok(self)
    }

    /// Deals the keys of a sequence to so many parts, at most 128; 0, as without this: the library's choice.
    pub fn num_splits(mut self, parts: u8) -> Self {
        self.num_splits = i32::from(parts);
        self
    }

    /// The kernel that [`run`](Self::run) would run.
    pub fn kernel(&self, out: &TensorMut<'_, RANK>) -> Result<Kernel> {
        let mut info = sys::fmha_kernel_info::default();
        // SAFETY: all structs live through the call, and say their size.
        self.with(out, &Workspace::none(), |params| unsafe { sys::fmha_decode_kernel(params, &mut info) })?;
        Ok(Kernel::of(&info))
    }

    /// How much memory [`run`](Self::run) needs on the current device. It depends on sizes, not on data.
    pub fn workspace_bytes(&self, out: &TensorMut<'_, RANK>) -> Result<usize> {
        let mut bytes = 0;
        self.with(out, &Workspace::none(), |params| {
            // SAFETY: all structs live through the call, and say their size.
            unsafe { sys::fmha_decode_workspace_bytes(params, &mut bytes) }
        })?;
        Ok(bytes as usize) // not negative
    }

    /// Loads that kernel onto the current device, as [`Attention::prepare`].
    pub fn prepare(&self, out: &TensorMut<'_, RANK>) -> Result<()> {
        // SAFETY: all structs live through the call, and say their size.
        self.with(out, &Workspace::none(), |params| unsafe { sys::fmha_decode_prepare(params) })
    }

    /// Enqueues it, as [`Attention::run`]. `workspace`: of [`workspace_bytes`](Self::workspace_bytes) or more.
    pub fn run(
        &mut self,
        out: &mut TensorMut<'_, RANK>,
        workspace: &mut Workspace<'_>,
        stream: &Stream<'_>,
    ) -> Result<()> {
        // SAFETY: all structs live through the call, and say their size; what they point to is as the views
        // were promised, in the shapes that were checked here and in the library.
        self.with(out, workspace, |params| unsafe { sys::fmha_decode(params, stream.handle) })
    }

    /// Calls a function of the library with the parameters for an output.
    fn with(
        &self,
        out: &TensorMut<'_, RANK>,
        workspace: &Workspace<'_>,
        call: impl FnOnce(&sys::fmha_decode_params) -> sys::fmha_status,
    ) -> Result<()> {
        let fwd = self.attention.with_out(out)?;
        check(call(&sys::fmha_decode_params {
            fwd: &fwd,
            cache: &self.cache,
            sinks: self.sinks,
            num_splits: self.num_splits,
            seqlen_new: self.seqlen_new,
            workspace: workspace.data,
            workspace_bytes: integer("workspace", workspace.bytes)?,
            ..Default::default()
        }))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! New keys and values for a KV cache.
use crate::attention::{in_c, integer};
use crate::cache::{CacheLens, KvCache};
use crate::error::{check, Error, Result};
use crate::tensor::{SeqLens, Stream, Tensor, TensorMut};
use fmha_rocm_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;

/// An append to a KV cache: what [`flash_attn_kv_append`](crate::flash_attn_kv_append) and
/// [`flash_attn_kv_append_varlen`](crate::flash_attn_kv_append_varlen) return. [`run`](Self::run) enqueues it.
///
/// RANK is that of k and v: 4 for batches, 3 for packed sequences.
#[must_use = "nothing is stored before run()"]
#[derive(Debug)]
pub struct KvAppend<'a, const RANK: usize> {
    params: sys::fmha_kv_append_params,
    cache: sys::fmha_cache,
    tokens: [usize; RANK], // shape of k
    like: Tensor<'a, RANK>,
    operands: PhantomData<&'a mut c_void>,
}

// SAFETY: as of Attention.
unsafe impl<const RANK: usize> Send for KvAppend<'_, RANK> {}
// SAFETY: the same.
unsafe impl<const RANK: usize> Sync for KvAppend<'_, RANK> {}

impl<'a> KvAppend<'a, 4> {
    pub(crate) fn batch(
        cache: &mut KvCache<'a>,
        [k, v]: [&Tensor<'a, 4>; 2],
        lengths: &CacheLens<'a>,
    ) -> Result<Self> {
        let [batch, seqlen, ..] = k.layout.shape;
        let mut call = KvAppend::new(batch, cache, [k, v], lengths)?;
        call.params.batch = integer("k", batch)?;
        call.params.seqlen = integer("k", seqlen)?;
        Ok(call)
    }
}

impl<'a> KvAppend<'a, 3> {
    pub(crate) fn packed(
        cache: &mut KvCache<'a>,
        [k, v]: [&Tensor<'a, 3>; 2],
        (seqlens, max_seqlen): (&SeqLens<'a>, usize),
        lengths: &CacheLens<'a>,
    ) -> Result<Self> {
        let (numbers, total) = (seqlens.tensor.layout.shape, k.layout.shape[0]);
        seqlens.check("seqlens_new", numbers, total, k.layout.device)?;
        let mut call = KvAppend::new(numbers[0] - 1, cache, [k, v], lengths)?;
        call.params.batch = integer("seqlens_new", numbers[0] - 1)?;
        call.params.seqlen = integer("max_seqlen_new", max_seqlen)?;
        call.params.total = integer("k", total)?;
        call.params.cu_seqlens = seqlens.tensor.data.cast();
        Ok(call)
    }
}

impl<'a, const RANK: usize> KvAppend<'a, RANK> {
    fn new(
        batch: usize,
        cache: &mut KvCache<'a>,
        [k, v]: [&Tensor<'a, RANK>; 2],
        lengths: &CacheLens<'a>,
    ) -> Result<Self> {
        let (of_k, of_v) = (k.layout.shape, v.layout.shape);
        let mut like_k = of_k;
        like_k[RANK - 1] = of_v[RANK - 1];
        v.layout.require_shape("v", like_k, "as k")?;
        v.layout.require_dtype("v", k.layout.dtype, "as k")?;
        for (name, x) in [("k", k), ("v", v)] {
            x.layout.require_device(name, k.layout.device)?;
            x.layout.require_contiguous_last(name)?;
        }
        for (name, layout, shape) in [("k_cache", cache.k(), of_k), ("v_cache", cache.v(), of_v)] {
            let [pages, page_size, ..] = layout.shape;
            let expected = [pages, page_size, shape[RANK - 2], shape[RANK - 1]];
            layout.require_shape(name, expected, "with the heads and head size of what is new")?;
        }
        let params = sys::fmha_kv_append_params {
            dtype: k.layout.dtype.code(),
            nhead_k: integer("k", of_k[RANK - 2])?,
            hdim_q: integer("k", of_k[RANK - 1])?,
            hdim_v: integer("v", of_v[RANK - 1])?,
            k: in_c("k", k.data, &k.layout)?,
            v: in_c("v", v.data, &v.layout)?,
            seqused_k: lengths.tensor.data.cast(),
            ..Default::default()
        };
        let (cache, capacity) = cache.in_c(batch, k.layout.device)?;
        lengths.check(batch, k.layout.device, capacity)?;
        Ok(KvAppend { params, cache, tokens: of_k, like: *k, operands: PhantomData })
    }

    /// Rotates the keys, each by its place in the sequence. `cos` and `sin`: (positions, rotary_dim / 2), of
    /// k's type or F32. Elements 2 i and 2 i + 1 are a pair if `interleaved`, else i and i + rotary_dim / 2.
    ///
    /// # Safety
    /// The places of the tokens, which only the kernels see, are below the number of positions.
    pub unsafe fn rotary(
        mut self,
        cos: &Tensor<'a, 2>,
        sin: &Tensor<'a, 2>,
        interleaved: bool,
    ) -> Result<Self> {
        let [positions, half] = cos.layout.shape;
        sin.layout.require_shape("sin", [positions, half], "as cos")?;
        sin.layout.require_dtype("sin", cos.layout.dtype, "as cos")?;
        for (name, table) in [("cos", cos), ("sin", sin)] {
            table.layout.require_device(name, self.like.layout.device)?;
            table.layout.require_contiguous_last(name)?;
        }
        if cos.layout.strides != sin.layout.strides {
            let (got, expected) = (sin.layout.strides, cos.layout.strides);
            return Err(Error::invalid(format!("sin: got strides {got:?}, expected {expected:?} as cos")));
        }
        self.params.rotary = sys::fmha_rotary {
            cos: cos.data,
            sin: sin.data,
            positions: integer("cos", positions)?,
            stride_position: integer("cos", cos.layout.strides[0])?,
            dim: integer("cos", half.saturating_mul(2))?,
            dtype: cos.layout.dtype.code(),
            interleaved: i32::from(interleaved),
        };
        Ok(self)
    }

    /// Rotates the queries of these tokens too, and writes them to `out`. Only with [`rotary`](Self::rotary).
    pub fn query(mut self, q: &Tensor<'a, RANK>, out: &'a mut TensorMut<'_, RANK>) -> Result<Self> {
        let mut expected = self.tokens;
        expected[RANK - 2] = q.layout.shape[RANK - 2];
        q.layout.require_shape("q", expected, "as k, with heads of its own")?;
        out.layout.require_shape("out", expected, "as q")?;
        for (name, layout) in [("q", &q.layout), ("out", &out.layout)] {
            layout.require_dtype(name, self.like.layout.dtype, "as k")?;
            layout.require_device(name, self.like.layout.device)?;
            layout.require_contiguous_last(name)?;
        }
        self.params.nhead_q = integer("q", q.layout.shape[RANK - 2])?;
        self.params.q = in_c("q", q.data, &q.layout)?;
        self.params.q_out = in_c("out", out.data, &out.layout)?;
        Ok(self)
    }

    /// Enqueues it on a stream of the calling thread's current device, which has to be that of the tensors.
    pub fn run(&mut self, stream: &Stream<'_>) -> Result<()> {
        let params = sys::fmha_kv_append_params { cache: &self.cache, ..self.params };
        // SAFETY: both structs live through the call, and say their size; what they point to is as the views
        // were promised, in the shapes that were checked here and in the library.
        check(unsafe { sys::fmha_kv_append(&params, stream.handle) })
    }
}

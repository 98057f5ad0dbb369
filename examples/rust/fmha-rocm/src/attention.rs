// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call that is ready but for its output.
use crate::error::{check, Error, Result};
use crate::tensor::{DType, Layout, SeqLens, Stream, Tensor, TensorMut};
use fmha_rocm_sys as sys;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::os::raw::{c_char, c_void};

/// Attention over given tensors: what the `flash_attn*` functions return. [`run`](Self::run) enqueues it. candle
/// does so at once, since it allocates the output as well; here nothing allocates device memory.
///
/// RANK is that of q: 4 for batches, 3 for packed sequences.
#[must_use = "nothing is computed before run()"]
#[derive(Debug)]
pub struct Attention<'a, const RANK: usize> {
    pub(crate) params: sys::fmha_fwd_params,
    out_shape: [usize; RANK],
    pub(crate) device: i32,
    operands: PhantomData<&'a c_void>,
}

// SAFETY: the addresses inside are not followed on the host, and to write through them takes `&mut`.
unsafe impl<const RANK: usize> Send for Attention<'_, RANK> {}
// SAFETY: the same.
unsafe impl<const RANK: usize> Sync for Attention<'_, RANK> {}

/// The kernel that a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its symbol.
    pub name: String,
    /// The GPU it is for: "gfx942", say.
    pub arch: String,
    /// Hash of its code object, 64 hex digits.
    pub sha256: String,
    /// Workgroups in x, y, z; zeros if there is nothing to do.
    pub grid: [u32; 3],
}

impl Kernel {
    /// `info`: as the library has filled it.
    pub(crate) fn of(info: &sys::fmha_kernel_info) -> Self {
        // SAFETY: C strings that live as long as the library.
        let text = |string: *const c_char| unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned();
        Kernel { name: text(info.name), arch: text(info.arch), sha256: text(info.sha256), grid: info.grid }
    }
}

/// The options that all functions have besides q, k and v.
pub(crate) struct Options<'t, 'a> {
    pub alibi_slopes: Option<&'t Tensor<'a, 1>>,
    pub softmax_scale: f32,
    pub window: (Option<usize>, Option<usize>),
    pub softcap: f32,
}

impl<'a> Attention<'a, 4> {
    pub(crate) fn batch(
        [q, k, v]: [&Tensor<'a, 4>; 3],
        options: Options<'_, 'a>,
    ) -> Result<Attention<'a, 4>> {
        let [batch, seqlen_q, ..] = q.layout.shape;
        k.layout.require_shape(
            "k",
            [batch, k.layout.shape[1], k.layout.shape[2], q.layout.shape[3]],
            "as q",
        )?;
        let mut call = Attention::new([q, k, v], options)?;
        call.params.batch = integer("batch", batch)?;
        call.params.seqlen_q = integer("seqlen_q", seqlen_q)?;
        call.params.seqlen_k = integer("seqlen_k", k.layout.shape[1])?;
        Ok(call)
    }

    /// Also stores the log-sum-exp of each row of scores: F32 (batch, num_heads_q, seq_len_q).
    pub fn lse(mut self, lse: &'a mut TensorMut<'_, 3>) -> Result<Self> {
        let [batch, seqlen_q, heads, _] = self.out_shape;
        self.set_lse(lse.data, &lse.layout, [batch, heads, seqlen_q])?;
        self.params.lse.stride_batch = integer("lse", lse.layout.strides[0])?;
        Ok(self)
    }
}

impl<'a> Attention<'a, 3> {
    pub(crate) fn packed(
        [q, k, v]: [&Tensor<'a, 3>; 3],
        seqlens: [&SeqLens<'a>; 2],
        max_seqlen: [usize; 2],
        options: Options<'_, 'a>,
    ) -> Result<Attention<'a, 3>> {
        let [total_k, heads_k, _] = k.layout.shape;
        k.layout.require_shape("k", [total_k, heads_k, q.layout.shape[2]], "as q")?;
        let mut call = Attention::new([q, k, v], options)?;
        call.set_packed_queries(q, seqlens[0], max_seqlen[0])?;
        seqlens[1].check("seqlens_k", seqlens[0].tensor.layout.shape, total_k, call.device)?;
        call.params.seqlen_k = integer("max_seqlen_k", max_seqlen[1])?;
        call.params.cu_seqlens_k = seqlens[1].tensor.data.cast();
        call.params.total_k = integer("k", total_k)?;
        Ok(call)
    }

    pub(crate) fn set_packed_queries(
        &mut self,
        q: &Tensor<'a, 3>,
        seqlens: &SeqLens<'a>,
        max_seqlen: usize,
    ) -> Result<()> {
        let numbers = seqlens.tensor.layout.shape;
        seqlens.check("seqlens_q", numbers, q.layout.shape[0], self.device)?;
        self.params.batch = integer("seqlens_q", numbers[0] - 1)?;
        self.params.seqlen_q = integer("max_seqlen_q", max_seqlen)?;
        self.params.cu_seqlens_q = seqlens.tensor.data.cast();
        self.params.total_q = integer("q", q.layout.shape[0])?;
        Ok(())
    }

    /// Also stores the log-sum-exp of each row of scores: F32 (num_heads_q, total_q).
    pub fn lse(mut self, lse: &'a mut TensorMut<'_, 2>) -> Result<Self> {
        let [total_q, heads, _] = self.out_shape;
        self.set_lse(lse.data, &lse.layout, [heads, total_q])?;
        Ok(self)
    }
}

impl<'a, const RANK: usize> Attention<'a, RANK> {
    /// All but lengths, batch, and the shape of k, which depend on RANK.
    fn new([q, k, v]: [&Tensor<'a, RANK>; 3], options: Options<'_, 'a>) -> Result<Self> {
        let hdim_v = v.layout.shape[RANK - 1];
        let mut call = Attention::of_query(q, k.layout.shape[RANK - 2], hdim_v, options)?;
        let mut like_k = k.layout.shape;
        like_k[RANK - 1] = hdim_v;
        v.layout.require_shape("v", like_k, "as k")?;
        for (name, x) in [("k", k), ("v", v)] {
            x.layout.require_dtype(name, q.layout.dtype, "as q")?;
            x.layout.require_device(name, q.layout.device)?;
            x.layout.require_contiguous_last(name)?;
        }
        call.params.k = in_c("k", k.data, &k.layout)?;
        call.params.v = in_c("v", v.data, &v.layout)?;
        Ok(call)
    }

    /// The sizes of q, for keys of so many heads and values of this head size.
    pub(crate) fn of_query(
        q: &Tensor<'a, RANK>,
        key_heads: usize,
        hdim_v: usize,
        options: Options<'_, 'a>,
    ) -> Result<Self> {
        if q.layout.dtype.code() == 0 {
            let types = "F16, BF16, F32, F8E4M3Fnuz or F8E4M3Fn";
            let message = format!("q: got {:?}, expected {types}", q.layout.dtype);
            return Err(Error::invalid(message));
        }
        q.layout.require_contiguous_last("q")?;
        let mut out_shape = q.layout.shape;
        out_shape[RANK - 1] = hdim_v;
        let params = sys::fmha_fwd_params {
            dtype: q.layout.dtype.code(),
            nhead_q: integer("q", q.layout.shape[RANK - 2])?,
            nhead_k: integer("k", key_heads)?,
            hdim_q: integer("q", q.layout.shape[RANK - 1])?,
            hdim_v: integer("v", hdim_v)?,
            q: in_c("q", q.data, &q.layout)?,
            softmax_scale: options.softmax_scale,
            softcap: options.softcap,
            ..Default::default()
        };
        let mut call = Attention { params, out_shape, device: q.layout.device, operands: PhantomData };
        call.set_window(options.window)?;
        if let Some(slopes) = options.alibi_slopes {
            call.set_slopes(slopes, q.layout.shape[RANK - 2])?;
        }
        Ok(call)
    }

    pub(crate) fn set_window(&mut self, (left, right): (Option<usize>, Option<usize>)) -> Result<()> {
        let side = |name, keys: Option<usize>| keys.map_or(Ok(i64::MAX), |keys| integer(name, keys));
        self.params.mask = match (left, right) {
            (None, None) => sys::FMHA_MASK_NONE,
            (None, Some(0)) => sys::FMHA_MASK_CAUSAL,
            _ => sys::FMHA_MASK_WINDOW,
        };
        self.params.window_left = side("window_size_left", left)?;
        self.params.window_right = side("window_size_right", right)?;
        Ok(())
    }

    pub(crate) fn set_slopes(&mut self, slopes: &Tensor<'a, 1>, heads: usize) -> Result<()> {
        let name = "alibi_slopes";
        slopes.layout.require_shape(name, [heads], "(num_heads_q)")?;
        slopes.layout.require_dtype(name, DType::F32, "whatever q is")?;
        slopes.layout.require_device(name, self.device)?;
        slopes.layout.require_contiguous_last(name)?;
        self.params.alibi_slopes = slopes.data.cast();
        Ok(())
    }

    fn set_lse<const N: usize>(
        &mut self,
        data: *mut c_void,
        layout: &Layout<N>,
        shape: [usize; N],
    ) -> Result<()> {
        layout.require_shape("lse", shape, "as q")?;
        layout.require_dtype("lse", DType::F32, "whatever q is")?;
        layout.require_device("lse", self.device)?;
        layout.require_contiguous_last("lse")?;
        self.params.lse.data = data.cast();
        self.params.lse.stride_head = integer("lse", layout.strides[N - 2])?;
        Ok(())
    }

    /// The kernel that [`run`](Self::run) would run.
    pub fn kernel(&self, out: &TensorMut<'_, RANK>) -> Result<Kernel> {
        let params = self.with_out(out)?;
        let mut info = sys::fmha_kernel_info::default();
        // SAFETY: both structs live through the call, and say their size.
        check(unsafe { sys::fmha_fwd_kernel(&params, &mut info) })?;
        Ok(Kernel::of(&info))
    }

    /// Loads that kernel onto the current device, so that a later [`run`](Self::run) of the kind only launches:
    /// legal while its stream is being captured into a graph, as this is not.
    pub fn prepare(&self, out: &TensorMut<'_, RANK>) -> Result<()> {
        let params = self.with_out(out)?;
        // SAFETY: the struct lives through the call, and says its size.
        check(unsafe { sys::fmha_fwd_prepare(&params) })
    }

    /// Enqueues it on a stream of the calling thread's current device, which has to be that of the tensors.
    /// Returns at once: `out` holds the result when the stream is past it.
    ///
    /// `out`: the shape of q with the head size of v; of q's type, or for 8-bit floats of BF16, F16 or F32.
    pub fn run(&mut self, out: &mut TensorMut<'_, RANK>, stream: &Stream<'_>) -> Result<()> {
        let params = self.with_out(out)?;
        // SAFETY: the struct lives through the call; what it points to is as Tensor, TensorMut, SeqLens and
        // Stream were promised, in the shapes that were checked here and in the library.
        check(unsafe { sys::fmha_fwd(&params, stream.handle) })
    }

    pub(crate) fn with_out(&self, out: &TensorMut<'_, RANK>) -> Result<sys::fmha_fwd_params> {
        out.layout.require_shape("out", self.out_shape, "as q, with the head size of v")?;
        out.layout.require_device("out", self.device)?;
        out.layout.require_contiguous_last("out")?;
        if out.layout.dtype.code() == 0 {
            return Err(Error::invalid(format!("out: got {:?}, expected the type of q", out.layout.dtype)));
        }
        let o = in_c("out", out.data, &out.layout)?;
        Ok(sys::fmha_fwd_params { o, o_dtype: out.layout.dtype.code(), ..self.params })
    }
}

pub(crate) fn integer(name: &str, value: usize) -> Result<i64> {
    i64::try_from(value).map_err(|_| Error::invalid(format!("{name}: got {value}, expected less than 2^63")))
}

/// (batch, seqlen, nhead, hdim), or packed without the batch.
pub(crate) fn in_c<const N: usize>(
    name: &str,
    data: *const c_void,
    layout: &Layout<N>,
) -> Result<sys::fmha_tensor> {
    Ok(sys::fmha_tensor {
        data: data as *mut c_void, // C has one type for what is read and what is written
        stride_batch: if N == 4 { integer(name, layout.strides[0])? } else { 0 },
        stride_seqlen: integer(name, layout.strides[N - 3])?,
        stride_head: integer(name, layout.strides[N - 2])?,
    })
}

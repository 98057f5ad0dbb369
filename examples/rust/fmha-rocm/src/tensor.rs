// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of device memory: what a framework's tensors are turned into for a call.
use crate::error::{Error, Result};
use fmha_rocm_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    F16,
    BF16,
    F32,
    /// gfx942's 8-bit float, of bias 8.
    F8E4M3Fnuz,
    /// OCP's, of bias 7: the 8-bit float of gfx950 and gfx12.
    F8E4M3Fn,
    /// The type of lengths.
    I32,
    /// The same bits as I32 for lengths, which are below 2^31: candle has them as u32.
    U32,
}

impl DType {
    /// Its number in C; 0, which is no type, for those that attention does not compute with.
    pub(crate) fn code(self) -> sys::fmha_dtype {
        match self {
            DType::F16 => sys::FMHA_FP16,
            DType::BF16 => sys::FMHA_BF16,
            DType::F32 => sys::FMHA_FP32,
            DType::F8E4M3Fnuz => sys::FMHA_FP8_E4M3_FNUZ,
            DType::F8E4M3Fn => sys::FMHA_FP8_E4M3_FN,
            DType::I32 | DType::U32 => 0,
        }
    }
}

/// A tensor without its address. Strides are in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout<const N: usize> {
    pub shape: [usize; N],
    pub strides: [usize; N],
    pub dtype: DType,
    /// HIP's number of the device whose memory it is.
    pub device: i32,
}

impl<const N: usize> Layout<N> {
    /// Row-major, nothing between the elements, on device 0.
    pub fn contiguous(shape: [usize; N], dtype: DType) -> Self {
        let mut strides = [1; N];
        for i in (1..N).rev() {
            strides[i - 1] = strides[i] * shape[i];
        }
        Layout { shape, strides, dtype, device: 0 }
    }

    /// The same memory, two dimensions swapped: (b, h, s, d) as (b, s, h, d), say.
    ///
    /// # Panics
    /// If there is no such dimension.
    pub fn transpose(mut self, a: usize, b: usize) -> Self {
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        self
    }

    /// The kernels read the last dimension as it comes.
    pub(crate) fn require_contiguous_last(&self, name: &str) -> Result<()> {
        if self.shape[N - 1] > 1 && self.strides[N - 1] != 1 {
            return Err(Error::invalid(format!(
                "{name}: got strides {:?}, expected the last dimension contiguous (1)",
                self.strides
            )));
        }
        Ok(())
    }

    pub(crate) fn require_shape(&self, name: &str, shape: [usize; N], why: &str) -> Result<()> {
        if self.shape != shape {
            return Err(Error::invalid(format!(
                "{name}: got shape {:?}, expected {shape:?} {why}",
                self.shape
            )));
        }
        Ok(())
    }

    pub(crate) fn require_dtype(&self, name: &str, dtype: DType, why: &str) -> Result<()> {
        if self.dtype != dtype {
            return Err(Error::invalid(format!("{name}: got {:?}, expected {dtype:?} {why}", self.dtype)));
        }
        Ok(())
    }

    pub(crate) fn require_integers(&self, name: &str) -> Result<()> {
        if self.dtype == DType::U32 {
            return Ok(());
        }
        self.require_dtype(name, DType::I32, "or U32")
    }

    pub(crate) fn require_device(&self, name: &str, device: i32) -> Result<()> {
        if self.device != device {
            return Err(Error::invalid(format!(
                "{name}: got memory of device {}, expected that of device {device}, as q",
                self.device
            )));
        }
        Ok(())
    }
}

/// A tensor of N dimensions in device memory that is read. It borrows the memory and owns nothing.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a, const N: usize> {
    pub(crate) data: *const c_void,
    pub(crate) layout: Layout<N>,
    memory: PhantomData<&'a c_void>,
}

/// A tensor of N dimensions in device memory that is written. It borrows the memory and owns nothing.
#[derive(Debug)]
pub struct TensorMut<'a, const N: usize> {
    pub(crate) data: *mut c_void,
    pub(crate) layout: Layout<N>,
    memory: PhantomData<&'a mut c_void>,
}

// SAFETY: the address is never followed on the host, and the library's functions may be called from any thread.
unsafe impl<const N: usize> Send for Tensor<'_, N> {}
// SAFETY: the same.
unsafe impl<const N: usize> Sync for Tensor<'_, N> {}
// SAFETY: the same; to write takes `&mut`.
unsafe impl<const N: usize> Send for TensorMut<'_, N> {}
// SAFETY: the same.
unsafe impl<const N: usize> Sync for TensorMut<'_, N> {}

impl<const N: usize> Tensor<'_, N> {
    /// A view of device memory.
    ///
    /// # Safety
    /// Work is enqueued: a call returns before the device has done it, which the lifetime cannot know. So, for
    /// as long as the lifetime *and* until the device is past every call that was given the view:
    /// all elements of `layout` from `data` on are allocated, on device `layout.device`, initialised, and
    /// written by nothing that is not ordered before or after those calls (by their stream, or by events).
    pub unsafe fn from_raw_parts(data: *const c_void, layout: Layout<N>) -> Self {
        Tensor { data, layout, memory: PhantomData }
    }

    pub fn layout(&self) -> &Layout<N> {
        &self.layout
    }
}

impl<const N: usize> TensorMut<'_, N> {
    /// A view of device memory to be written.
    ///
    /// # Safety
    /// As for [`Tensor::from_raw_parts`], but that nothing needs to be initialised; and besides that nothing
    /// reads or writes those elements that is not ordered before or after the calls.
    pub unsafe fn from_raw_parts(data: *mut c_void, layout: Layout<N>) -> Self {
        TensorMut { data, layout, memory: PhantomData }
    }

    pub fn layout(&self) -> &Layout<N> {
        &self.layout
    }
}

/// Where each of the packed sequences starts, and the end: (batch + 1) numbers in device memory.
#[derive(Clone, Copy, Debug)]
pub struct SeqLens<'a> {
    pub(crate) tensor: Tensor<'a, 1>,
    pub(crate) total: usize,
}

impl<'a> SeqLens<'a> {
    /// Cumulative lengths that are on the device already; `total` is the last of them.
    ///
    /// # Safety
    /// The numbers, which only the kernels see, begin with 0, never decrease, and end with `total` or less.
    /// Others would have kernels write outside of the output.
    pub unsafe fn new(tensor: Tensor<'a, 1>, total: usize) -> Self {
        SeqLens { tensor, total }
    }

    /// Raises unless there are as many numbers as those of seqlens_q, for a tensor of so many rows.
    pub(crate) fn check(&self, name: &str, shape: [usize; 1], rows: usize, device: i32) -> Result<()> {
        let layout = &self.tensor.layout;
        layout.require_integers(name)?;
        if shape[0] == 0 {
            return Err(Error::invalid(format!("{name}: got no numbers, expected batch + 1")));
        }
        layout.require_shape(name, shape, "as seqlens_q")?;
        layout.require_contiguous_last(name)?;
        layout.require_device(name, device)?;
        if self.total > rows {
            let total = self.total;
            return Err(Error::invalid(format!(
                "{name}: got {total} rows, expected at most the tensor's {rows}"
            )));
        }
        Ok(())
    }
}

/// A stream to enqueue on: a borrowed hipStream_t.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    pub(crate) handle: *mut c_void,
    owner: PhantomData<&'a c_void>,
}

// SAFETY: a handle that only HIP looks into, whose functions may be called from any thread. Its device must be
// the current one of the thread that uses it: the library says so if not.
unsafe impl Send for Stream<'_> {}
// SAFETY: the same.
unsafe impl Sync for Stream<'_> {}

impl Stream<'_> {
    /// The null stream of the current device.
    pub const NULL: Stream<'static> = Stream { handle: std::ptr::null_mut(), owner: PhantomData };

    /// A stream of the framework's.
    ///
    /// # Safety
    /// `handle` is a hipStream_t of the HIP runtime that the library uses ([`crate::hip_runtime_path`]), and
    /// is not destroyed within the lifetime.
    pub unsafe fn from_raw(handle: *mut c_void) -> Self {
        Stream { handle, owner: PhantomData }
    }
}

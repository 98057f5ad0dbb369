// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of a KV cache, of lengths in it, and of memory for intermediate results.
use crate::attention::integer;
use crate::error::{Error, Result};
use crate::tensor::{DType, Layout, Tensor, TensorMut};
use fmha_rocm_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;

/// Keys and values of sequences: (batch, capacity, num_heads_kv, head_size), or pages (pages, page_size,
/// num_heads_kv, head_size) and a table of those of each sequence. It borrows the memory and owns nothing.
///
/// Any strides will do: a cache (batch, num_heads_kv, capacity, head_size) is one whose layout is
/// [transposed](Layout::transpose).
#[derive(Debug)]
pub struct KvCache<'a> {
    k: TensorMut<'a, 4>,
    v: TensorMut<'a, 4>,
    block_table: Option<Tensor<'a, 2>>,
    batch_idx: Option<Tensor<'a, 1>>,
    scales: Option<(ScaledBy, [Tensor<'a, 2>; 2])>,
}

/// The parts of a cache of 8 bits that have a scale of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaledBy {
    /// Each sequence of a call, and head.
    Sequence,
    /// Each page, and head.
    Page,
}

impl<'a> KvCache<'a> {
    /// A cache without pages: sequence b is element b.
    pub fn new(k: TensorMut<'a, 4>, v: TensorMut<'a, 4>) -> Self {
        KvCache { k, v, block_table: None, batch_idx: None, scales: None }
    }

    /// A cache of pages. `block_table`: I32 or U32 (batch, max_pages), the pages of each sequence in order.
    /// page_size is a power of two.
    ///
    /// # Safety
    /// The entries that the lengths of a call reach, which only the kernels see, are numbers of pages; and no
    /// page is of two sequences if one of them is appended to in that page. Other entries do not matter.
    pub unsafe fn paged(k: TensorMut<'a, 4>, v: TensorMut<'a, 4>, block_table: Tensor<'a, 2>) -> Self {
        KvCache { k, v, block_table: Some(block_table), batch_idx: None, scales: None }
    }

    /// Without pages: sequence b of a call is element `elements[b]`, I32 or U32 (batch).
    ///
    /// # Safety
    /// The numbers, which only the kernels see, are below the batch of the cache; and no two are the same in an
    /// append.
    pub unsafe fn cache_batch_idx(mut self, elements: Tensor<'a, 1>) -> Self {
        self.batch_idx = Some(elements);
        self
    }

    /// A cache of [`F8E4M3Fnuz`](DType::F8E4M3Fnuz) or [`F8E4M3Fn`](DType::F8E4M3Fn), whichever the device has,
    /// stands for its elements times these, F32 (batch of the call, num_heads_kv) or (pages, num_heads_kv), finite
    /// and above 0. An append divides by them.
    pub fn scaled(mut self, by: ScaledBy, k_scale: Tensor<'a, 2>, v_scale: Tensor<'a, 2>) -> Self {
        self.scales = Some((by, [k_scale, v_scale]));
        self
    }

    pub(crate) fn k(&self) -> &Layout<4> {
        &self.k.layout
    }

    pub(crate) fn v(&self) -> &Layout<4> {
        &self.v.layout
    }

    /// Checks the cache against a call's sequences. Also returns how many tokens of one it can have.
    pub(crate) fn in_c(&self, batch: usize, device: i32) -> Result<(sys::fmha_cache, usize)> {
        let (k, v) = (&self.k.layout, &self.v.layout);
        let [pages, page_size, heads, _] = k.shape;
        v.require_shape("v_cache", [pages, page_size, heads, v.shape[3]], "as k_cache")?;
        v.require_dtype("v_cache", k.dtype, "as k_cache")?;
        for (name, layout) in [("k_cache", k), ("v_cache", v)] {
            layout.require_device(name, device)?;
            layout.require_contiguous_last(name)?;
        }
        let mut cache = sys::fmha_cache {
            dtype: k.dtype.code(),
            k: cache_tensor("k_cache", self.k.data, k)?,
            v: cache_tensor("v_cache", self.v.data, v)?,
            pages: integer("k_cache", pages)?,
            page_size: integer("k_cache", page_size)?,
            ..Default::default()
        };
        let mut capacity = page_size;
        if let Some(table) = &self.block_table {
            let max_pages = table.layout.shape[1];
            table.layout.require_integers("block_table")?;
            table.layout.require_shape("block_table", [batch, max_pages], "(batch, max_pages)")?;
            table.layout.require_contiguous_last("block_table")?;
            table.layout.require_device("block_table", device)?;
            cache.block_table = table.data.cast();
            cache.stride_block_table = integer("block_table", table.layout.strides[0])?;
            cache.max_pages = integer("block_table", max_pages)?;
            capacity = page_size.saturating_mul(max_pages);
        }
        if let Some(elements) = &self.batch_idx {
            elements.layout.require_integers("cache_batch_idx")?;
            elements.layout.require_shape("cache_batch_idx", [batch], "(batch)")?;
            elements.layout.require_contiguous_last("cache_batch_idx")?;
            elements.layout.require_device("cache_batch_idx", device)?;
            cache.cache_batch_idx = elements.data.cast();
        }
        if let Some((by, [k_scale, v_scale])) = &self.scales {
            let shape = [if *by == ScaledBy::Page { pages } else { batch }, heads];
            cache.scale_per_page = i32::from(*by == ScaledBy::Page);
            cache.k_scale = cache_scale("k_scale", k_scale, shape, device)?;
            cache.v_scale = cache_scale("v_scale", v_scale, shape, device)?;
        }
        Ok((cache, capacity))
    }
}

fn cache_tensor(name: &str, data: *mut c_void, layout: &Layout<4>) -> Result<sys::fmha_cache_tensor> {
    Ok(sys::fmha_cache_tensor {
        data,
        stride_page: integer(name, layout.strides[0])?,
        stride_token: integer(name, layout.strides[1])?,
        stride_head: integer(name, layout.strides[2])?,
    })
}

fn cache_scale(
    name: &str,
    scale: &Tensor<'_, 2>,
    shape: [usize; 2],
    device: i32,
) -> Result<sys::fmha_cache_scale> {
    let layout = &scale.layout;
    layout.require_shape(name, shape, "a number for each of what is scaled, and head")?;
    layout.require_dtype(name, DType::F32, "whatever q is")?;
    layout.require_device(name, device)?;
    Ok(sys::fmha_cache_scale {
        data: scale.data.cast(),
        stride_page: integer(name, layout.strides[0])?,
        stride_head: integer(name, layout.strides[1])?,
    })
}

/// How many tokens of each sequence are in a cache: I32 or U32 (batch) in device memory, so that a captured
/// graph goes on as sequences grow.
#[derive(Clone, Copy, Debug)]
pub struct CacheLens<'a> {
    pub(crate) tensor: Tensor<'a, 1>,
    pub(crate) longest: usize,
}

impl<'a> CacheLens<'a> {
    /// Lengths that are on the device already.
    ///
    /// # Safety
    /// The numbers, which only the kernels see, are `longest` at most whenever a call runs; and where tokens
    /// are appended, there is room for these too.
    pub unsafe fn new(tensor: Tensor<'a, 1>, longest: usize) -> Self {
        CacheLens { tensor, longest }
    }

    pub(crate) fn check(&self, batch: usize, device: i32, capacity: usize) -> Result<()> {
        let layout = &self.tensor.layout;
        layout.require_integers("cache_seqlens")?;
        layout.require_shape("cache_seqlens", [batch], "(batch)")?;
        layout.require_contiguous_last("cache_seqlens")?;
        layout.require_device("cache_seqlens", device)?;
        require_room("cache_seqlens", self.longest, capacity)
    }
}

/// Raises unless a cache can have so many tokens of a sequence.
pub(crate) fn require_room(name: &str, longest: usize, capacity: usize) -> Result<()> {
    if longest > capacity {
        return Err(Error::invalid(format!(
            "{name}: got a longest of {longest} tokens, expected at most {capacity}, which the cache can have of a \
             sequence"
        )));
    }
    Ok(())
}

/// Device memory for intermediate results, of one call at a time.
#[derive(Debug)]
pub struct Workspace<'a> {
    pub(crate) data: *mut c_void,
    pub(crate) bytes: usize,
    memory: PhantomData<&'a c_void>,
}

// SAFETY: as of TensorMut.
unsafe impl Send for Workspace<'_> {}
// SAFETY: the same.
unsafe impl Sync for Workspace<'_> {}

impl Workspace<'_> {
    /// For calls that need none.
    pub fn none() -> Self {
        Workspace { data: std::ptr::null_mut(), bytes: 0, memory: PhantomData }
    }

    /// Memory of the device of a call, aligned to 256 bytes as hipMalloc aligns it.
    ///
    /// # Safety
    /// As for [`TensorMut::from_raw_parts`], of `bytes` bytes.
    pub unsafe fn from_raw_parts(data: *mut c_void, bytes: usize) -> Self {
        Workspace { data, bytes, memory: PhantomData }
    }
}

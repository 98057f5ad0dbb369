// SPDX-License-Identifier: MIT OR Apache-2.0
//! fmha_rocm.h in Rust, by hand: the same names, fields and values. That header is the manual; the test
//! `layout` compares this file with it. The safe layer is the crate `fmha-rocm`.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_void};

pub type fmha_status = i32;
pub const FMHA_OK: fmha_status = 0;
pub const FMHA_INVALID_ARGUMENT: fmha_status = 1;
pub const FMHA_UNSUPPORTED: fmha_status = 2;
pub const FMHA_HIP_ERROR: fmha_status = 3;
pub const FMHA_INTERNAL: fmha_status = 4;
pub const FMHA_ABI_MISMATCH: fmha_status = 5;

pub type fmha_dtype = i32;
pub const FMHA_FP16: fmha_dtype = 1;
pub const FMHA_BF16: fmha_dtype = 2;
pub const FMHA_FP32: fmha_dtype = 3;
pub const FMHA_FP8_E4M3_FNUZ: fmha_dtype = 4;
pub const FMHA_FP8_E4M3_FN: fmha_dtype = 5;

pub type fmha_mask = i32;
pub const FMHA_MASK_NONE: fmha_mask = 0;
pub const FMHA_MASK_CAUSAL: fmha_mask = 1;
pub const FMHA_MASK_CAUSAL_TOP_LEFT: fmha_mask = 2;
pub const FMHA_MASK_WINDOW: fmha_mask = 3;
pub const FMHA_MASK_WINDOW_TOP_LEFT: fmha_mask = 4;

/// Path of the software device that was installed with the library, a drop-in libamdhip64; None without it.
pub const EMULATOR: Option<&str> = option_env!("FMHA_ROCM_EMULATOR");

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_tensor {
    pub data: *mut c_void,
    pub stride_batch: i64,
    pub stride_seqlen: i64,
    pub stride_head: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_lse {
    pub data: *mut f32,
    pub stride_batch: i64,
    pub stride_head: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_bias {
    pub data: *const c_void,
    pub stride_batch: i64,
    pub stride_head: i64,
    pub stride_seqlen: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_randval {
    pub data: *mut u8,
    pub stride_batch: i64,
    pub stride_head: i64,
    pub stride_seqlen: i64,
}

pub const FMHA_NO_MEMORY_CHECK: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_bias_grad {
    pub data: *mut c_void,
    pub stride_batch: i64,
    pub stride_head: i64,
    pub stride_seqlen: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_fwd_params {
    pub struct_size: u32,
    pub dtype: fmha_dtype,
    pub batch: i64,
    pub seqlen_q: i64,
    pub seqlen_k: i64,
    pub nhead_q: i64,
    pub nhead_k: i64,
    pub hdim_q: i64,
    pub hdim_v: i64,
    pub softmax_scale: f32,
    pub mask: fmha_mask,
    pub window_left: i64,
    pub window_right: i64,
    pub q: fmha_tensor,
    pub k: fmha_tensor,
    pub v: fmha_tensor,
    pub o: fmha_tensor,
    pub lse: fmha_lse,
    pub o_dtype: fmha_dtype,
    pub softcap: f32,
    pub bias: fmha_bias,
    pub alibi_slopes: *const f32,
    pub alibi_stride_batch: i64,
    pub cu_seqlens_q: *const i32,
    pub cu_seqlens_k: *const i32,
    pub seqused_q: *const i32,
    pub seqused_k: *const i32,
    pub total_q: i64,
    pub total_k: i64,
    pub p_drop: f32,
    pub kernel: i32,
    pub philox_seed: u64,
    pub philox_offset: u64,
    pub philox_seed_offset: *const u64,
    pub randval: fmha_randval,
    pub q_descale: f32,
    pub k_descale: f32,
    pub v_descale: f32,
    pub reserved: u32,
    pub workspace: *mut c_void,
    pub workspace_bytes: i64,
    pub flags: u64,
    pub sinks: *const f32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_bwd_params {
    pub struct_size: u32,
    pub grad_dtype: fmha_dtype,
    pub fwd: *const fmha_fwd_params,
    pub dout: fmha_tensor,
    pub dq: fmha_tensor,
    pub dk: fmha_tensor,
    pub dv: fmha_tensor,
    pub accumulate: i32,
    pub deterministic: i32,
    pub kernel: i32,
    pub reserved: u32,
    pub workspace: *mut c_void,
    pub workspace_bytes: i64,
    pub flags: u64,
    pub dbias: fmha_bias_grad,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_cache_tensor {
    pub data: *mut c_void,
    pub stride_page: i64,
    pub stride_token: i64,
    pub stride_head: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_cache_scale {
    pub data: *const f32,
    pub stride_page: i64,
    pub stride_head: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_cache {
    pub struct_size: u32,
    pub dtype: fmha_dtype,
    pub k: fmha_cache_tensor,
    pub v: fmha_cache_tensor,
    pub pages: i64,
    pub page_size: i64,
    pub block_table: *const i32,
    pub stride_block_table: i64,
    pub max_pages: i64,
    pub kv_indptr: *const i32,
    pub kv_indices: *const i32,
    pub indices: i64,
    pub cache_batch_idx: *const i32,
    pub k_scale: fmha_cache_scale,
    pub v_scale: fmha_cache_scale,
    pub scale_per_page: i32,
    pub k_vector: i32,
    pub v_vector: i32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_decode_params {
    pub struct_size: u32,
    pub kernel: i32,
    pub fwd: *const fmha_fwd_params,
    pub cache: *const fmha_cache,
    pub leftpad_k: *const i32,
    pub sinks: *const f32,
    pub num_splits: i32,
    pub seqlen_new: i32,
    pub lse_base: fmha_lse_base,
    pub reserved: u32,
    pub workspace: *mut c_void,
    pub workspace_bytes: i64,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_rotary {
    pub cos: *const c_void,
    pub sin: *const c_void,
    pub positions: i64,
    pub stride_position: i64,
    pub dim: i64,
    pub dtype: fmha_dtype,
    pub interleaved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_kv_append_params {
    pub struct_size: u32,
    pub dtype: fmha_dtype,
    pub batch: i64,
    pub seqlen: i64,
    pub total: i64,
    pub nhead_q: i64,
    pub nhead_k: i64,
    pub hdim_q: i64,
    pub hdim_v: i64,
    pub q: fmha_tensor,
    pub q_out: fmha_tensor,
    pub k: fmha_tensor,
    pub v: fmha_tensor,
    pub cu_seqlens: *const i32,
    pub seqused_k: *const i32,
    pub slots: *const c_void,
    pub positions: *const c_void,
    pub slots_int64: i32,
    pub positions_int64: i32,
    pub rotary: fmha_rotary,
    pub cache: *const fmha_cache,
    pub kernel: i32,
    pub reserved: u32,
    pub flags: u64,
}

pub type fmha_lse_base = i32;
pub const FMHA_LSE_NATURAL: fmha_lse_base = 0;
pub const FMHA_LSE_BASE2: fmha_lse_base = 1;

pub type fmha_scale_unit = i32;
pub const FMHA_SCALE_TENSOR: fmha_scale_unit = 1;
pub const FMHA_SCALE_HEAD: fmha_scale_unit = 2;
pub const FMHA_SCALE_BLOCK: fmha_scale_unit = 3;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_parts {
    pub data: *const c_void,
    pub stride_part: i64,
    pub stride_batch: i64,
    pub stride_seqlen: i64,
    pub stride_head: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_lse_parts {
    pub data: *const f32,
    pub stride_part: i64,
    pub stride_batch: i64,
    pub stride_head: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_merge_params {
    pub struct_size: u32,
    pub dtype: fmha_dtype,
    pub o_dtype: fmha_dtype,
    pub lse_base: fmha_lse_base,
    pub parts: i64,
    pub batch: i64,
    pub seqlen: i64,
    pub nhead: i64,
    pub hdim: i64,
    pub o_parts: fmha_parts,
    pub lse_parts: fmha_lse_parts,
    pub o: fmha_tensor,
    pub lse: fmha_lse,
    pub accumulate: i32,
    pub kernel: i32,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_descale {
    pub data: *mut f32,
    pub stride_batch: i64,
    pub stride_head: i64,
    pub stride_block: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_quantize_params {
    pub struct_size: u32,
    pub dtype: fmha_dtype,
    pub out_dtype: fmha_dtype,
    pub scale_unit: fmha_scale_unit,
    pub batch: i64,
    pub seqlen: i64,
    pub nhead: i64,
    pub hdim: i64,
    pub heads_per_scale: i64,
    pub block_tokens: i64,
    pub x: fmha_tensor,
    pub out: fmha_tensor,
    pub descale: fmha_descale,
    pub given: i32,
    pub hadamard: i32,
    pub workspace: *mut c_void,
    pub workspace_bytes: i64,
    pub kernel: i32,
    pub reserved: u32,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_kernel_info {
    pub struct_size: u32,
    pub vgpr_count: i32,
    pub sgpr_count: i32,
    pub scratch_bytes: i32,
    pub lds_bytes: i64,
    pub block_size: i32,
    pub tile_m: i32,
    pub tile_n: i32,
    pub grid: [u32; 3],
    pub name: *const c_char,
    pub arch: *const c_char,
    pub sha256: *const c_char,
    pub candidate: i32,
    pub candidate_count: i32,
    pub pipeline: *const c_char,
    pub step_count: i32,
    pub reserved: u32,
    pub why: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fmha_extent {
    pub name: *const c_char,
    pub data: *const c_void,
    pub bytes: i64,
    pub written: i32,
    pub reserved: u32,
}

pub type fmha_hip_source = i32;
pub const FMHA_HIP_NONE: fmha_hip_source = 0;
pub const FMHA_HIP_ENVIRONMENT: fmha_hip_source = 1;
pub const FMHA_HIP_MAPPED: fmha_hip_source = 2;
pub const FMHA_HIP_LOADER: fmha_hip_source = 3;
pub const FMHA_HIP_INSTALLED: fmha_hip_source = 4;

/// Zeroed, which is every field's default, with struct_size set.
macro_rules! zeroed_with_size {
    ($name:ident) => {
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: only integers, floats and raw pointers, for all of which zeros are a value.
                let zeroed: Self = unsafe { std::mem::zeroed() };
                Self { struct_size: std::mem::size_of::<Self>() as u32, ..zeroed }
            }
        }
    };
}
zeroed_with_size!(fmha_fwd_params);
zeroed_with_size!(fmha_bwd_params);
zeroed_with_size!(fmha_cache);
zeroed_with_size!(fmha_decode_params);
zeroed_with_size!(fmha_kv_append_params);
zeroed_with_size!(fmha_merge_params);
zeroed_with_size!(fmha_quantize_params);
zeroed_with_size!(fmha_kernel_info);

extern "C" {
    pub fn fmha_version() -> *const c_char;
    pub fn fmha_build_info() -> *const c_char;
    pub fn fmha_last_error() -> *const c_char;
    pub fn fmha_set_hip_runtime(path: *const c_char) -> fmha_status;
    pub fn fmha_hip_runtime_path() -> *const c_char;
    pub fn fmha_hip_runtime_search(
        index: i32,
        source: *mut fmha_hip_source,
        path: *mut c_char,
        path_bytes: i64,
    ) -> fmha_status;
    pub fn fmha_fwd_supported(params: *const fmha_fwd_params) -> fmha_status;
    pub fn fmha_fwd_kernel(params: *const fmha_fwd_params, info: *mut fmha_kernel_info) -> fmha_status;
    pub fn fmha_fwd_workspace_bytes(params: *const fmha_fwd_params, bytes: *mut i64) -> fmha_status;
    pub fn fmha_fwd_extents(
        params: *const fmha_fwd_params,
        extents: *mut fmha_extent,
        capacity: i32,
        count: *mut i32,
    ) -> fmha_status;
    pub fn fmha_fwd_prepare(params: *const fmha_fwd_params) -> fmha_status;
    pub fn fmha_prepare(params: *const fmha_fwd_params) -> fmha_status;
    pub fn fmha_fwd(params: *const fmha_fwd_params, stream: *mut c_void) -> fmha_status;
    pub fn fmha_bwd_supported(params: *const fmha_bwd_params) -> fmha_status;
    pub fn fmha_bwd_kernel(params: *const fmha_bwd_params, info: *mut fmha_kernel_info) -> fmha_status;
    pub fn fmha_bwd_workspace_bytes(params: *const fmha_bwd_params, bytes: *mut i64) -> fmha_status;
    pub fn fmha_bwd_extents(
        params: *const fmha_bwd_params,
        extents: *mut fmha_extent,
        capacity: i32,
        count: *mut i32,
    ) -> fmha_status;
    pub fn fmha_bwd_prepare(params: *const fmha_bwd_params) -> fmha_status;
    pub fn fmha_bwd(params: *const fmha_bwd_params, stream: *mut c_void) -> fmha_status;
    pub fn fmha_decode_supported(params: *const fmha_decode_params) -> fmha_status;
    pub fn fmha_decode_kernel(params: *const fmha_decode_params, info: *mut fmha_kernel_info) -> fmha_status;
    pub fn fmha_decode_workspace_bytes(params: *const fmha_decode_params, bytes: *mut i64) -> fmha_status;
    pub fn fmha_decode_extents(
        params: *const fmha_decode_params,
        extents: *mut fmha_extent,
        capacity: i32,
        count: *mut i32,
    ) -> fmha_status;
    pub fn fmha_decode_prepare(params: *const fmha_decode_params) -> fmha_status;
    pub fn fmha_decode(params: *const fmha_decode_params, stream: *mut c_void) -> fmha_status;
    pub fn fmha_kv_append_supported(params: *const fmha_kv_append_params) -> fmha_status;
    pub fn fmha_kv_append_kernel(
        params: *const fmha_kv_append_params,
        info: *mut fmha_kernel_info,
    ) -> fmha_status;
    pub fn fmha_kv_append_extents(
        params: *const fmha_kv_append_params,
        extents: *mut fmha_extent,
        capacity: i32,
        count: *mut i32,
    ) -> fmha_status;
    pub fn fmha_kv_append_prepare(params: *const fmha_kv_append_params) -> fmha_status;
    pub fn fmha_kv_append(params: *const fmha_kv_append_params, stream: *mut c_void) -> fmha_status;
    pub fn fmha_merge_supported(params: *const fmha_merge_params) -> fmha_status;
    pub fn fmha_merge_kernel(params: *const fmha_merge_params, info: *mut fmha_kernel_info) -> fmha_status;
    pub fn fmha_merge_extents(
        params: *const fmha_merge_params,
        extents: *mut fmha_extent,
        capacity: i32,
        count: *mut i32,
    ) -> fmha_status;
    pub fn fmha_merge_prepare(params: *const fmha_merge_params) -> fmha_status;
    pub fn fmha_merge(params: *const fmha_merge_params, stream: *mut c_void) -> fmha_status;
    pub fn fmha_quantize_supported(params: *const fmha_quantize_params) -> fmha_status;
    pub fn fmha_quantize_kernel(
        params: *const fmha_quantize_params,
        info: *mut fmha_kernel_info,
    ) -> fmha_status;
    pub fn fmha_quantize_workspace_bytes(params: *const fmha_quantize_params, bytes: *mut i64)
        -> fmha_status;
    pub fn fmha_quantize_extents(
        params: *const fmha_quantize_params,
        extents: *mut fmha_extent,
        capacity: i32,
        count: *mut i32,
    ) -> fmha_status;
    pub fn fmha_quantize_prepare(params: *const fmha_quantize_params) -> fmha_status;
    pub fn fmha_quantize(params: *const fmha_quantize_params, stream: *mut c_void) -> fmha_status;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! FlashAttention on AMD GPUs through libfmha_rocm, with candle-flash-attn's functions and argument lists.
//!
//! The output and the stream, which candle's tensors know and bare device memory does not, come later: a
//! function returns [`Attention`], whose [`run`](Attention::run) takes them.
//!
//! ```no_run
//! # use fmha_rocm::{flash_attn, DType, Layout, Result, Stream, Tensor, TensorMut};
//! # use std::os::raw::c_void;
//! /// (batch, seq_len, num_heads, head_size), contiguous, all of one shape.
//! /// # Safety
//! /// Device memory in use by nothing else until the null stream is past the call.
//! unsafe fn attend(q: *const c_void, k: *const c_void, v: *const c_void, o: *mut c_void) -> Result<()> {
//!     let layout = Layout::contiguous([2, 512, 8, 128], DType::F16);
//!     let [q, k, v] = [q, k, v].map(|x| Tensor::from_raw_parts(x, layout));
//!     let mut out = TensorMut::from_raw_parts(o, layout);
//!     flash_attn(&q, &k, &v, 1.0 / 128f32.sqrt(), true)?.run(&mut out, &Stream::NULL)
//! }
//! ```
//!
//! - **Memory.** Views borrow device memory; nothing here allocates, frees or copies any. To make a view is
//!   `unsafe`: the compiler cannot know when the device has come past a call.
//! - **Streams.** Calls enqueue and return; nothing here waits.
//! - **Devices.** A call uses the calling thread's current HIP device: that of the tensors, or it is an error.
//! - **Threads.** Everything is `Send` and `Sync`, as every function of the library may be called from anywhere.
//! - **Errors** are the library's: status and text, copied. After one nothing was launched and nothing written.
mod append;
mod attention;
mod cache;
mod cached;
mod error;
mod flash;
mod kvcache;
mod tensor;

pub use append::KvAppend;
pub use attention::{Attention, Kernel};
pub use cache::{CacheLens, KvCache, ScaledBy, Workspace};
pub use cached::CachedAttention;
pub use error::{Error, Result, Status};
pub use flash::*;
pub use kvcache::*;
pub use tensor::{DType, Layout, SeqLens, Stream, Tensor, TensorMut};

use fmha_rocm_sys as sys;
use std::ffi::{CStr, CString};
use std::path::Path;

/// Version of the library loaded.
pub fn version() -> &'static str {
    // SAFETY: never NULL, and lives as long as the library.
    unsafe { CStr::from_ptr(sys::fmha_version()) }.to_str().unwrap_or_default()
}

/// Describes the build: archs, kernels, compiler; a JSON object, see fmha_rocm.h.
pub fn build_info() -> &'static str {
    // SAFETY: never NULL, and lives as long as the library.
    unsafe { CStr::from_ptr(sys::fmha_build_info()) }.to_str().unwrap_or_default()
}

/// Uses this HIP runtime, a libamdhip64, instead of the one that the library would find; before the first call.
pub fn set_hip_runtime(path: &Path) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::invalid(format!("path: got {path:?}, expected one without a zero byte")))?;
    // SAFETY: a C string that lives through the call.
    error::check(unsafe { sys::fmha_set_hip_runtime(path.as_ptr()) })
}

/// Path of the HIP runtime in use: finds one if none is. fmha_rocm.h says where.
pub fn hip_runtime_path() -> Result<String> {
    // SAFETY: NULL and a message, or a C string that lives as long as the library.
    let path = unsafe { sys::fmha_hip_runtime_path() };
    if path.is_null() {
        return Err(Error::last(sys::FMHA_HIP_ERROR));
    }
    // SAFETY: see above.
    Ok(unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned())
}

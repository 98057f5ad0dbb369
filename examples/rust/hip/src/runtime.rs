// SPDX-License-Identifier: MIT OR Apache-2.0
//! The HIP runtime that is loaded, and its functions.
use crate::{Error, Result};
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Mutex;
use std::{env, mem};

#[link(name = "dl")] // part of libc since glibc 2.34
extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}
const RTLD_NOW: c_int = 2;

type Code = c_int; // hipError_t; 0: hipSuccess

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// `library` is an open HIP runtime, which stays open.
            unsafe fn of(library: *mut c_void) -> Result<Self> {
                Ok(Functions {
                    // A function pointer and a data pointer are one size wherever there is a dlsym.
                    $($field: mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(
                        symbol(library, $symbol)?
                    ),)*
                })
            }
        }
    };
}

functions! {
    malloc = "hipMalloc": fn(*mut *mut c_void, usize) -> Code;
    free = "hipFree": fn(*mut c_void) -> Code;
    memcpy = "hipMemcpy": fn(*mut c_void, *const c_void, usize, c_int) -> Code;
    device_synchronize = "hipDeviceSynchronize": fn() -> Code;
    stream_create = "hipStreamCreate": fn(*mut *mut c_void) -> Code;
    stream_synchronize = "hipStreamSynchronize": fn(*mut c_void) -> Code;
    stream_destroy = "hipStreamDestroy": fn(*mut c_void) -> Code;
    error_name = "hipGetErrorName": fn(Code) -> *const c_char;
}

impl Functions {
    pub(crate) fn check(&self, function: &str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: HIP has a name for every code, which lives as long as it does.
        let name = unsafe { text((self.error_name)(code)) };
        Err(Error(format!("{function}: {name}")))
    }
}

/// # Safety
/// `library` is open.
unsafe fn symbol(library: *mut c_void, name: &str) -> Result<*mut c_void> {
    let c_name = CString::new(name).expect("a name without a zero in it");
    let address = dlsym(library, c_name.as_ptr());
    if address.is_null() {
        return Err(Error(format!("the HIP runtime has no {name}")));
    }
    Ok(address)
}

/// # Safety
/// A C string.
unsafe fn text(string: *const c_char) -> String {
    CStr::from_ptr(string).to_string_lossy().into_owned()
}

/// Path of the HIP runtime in use. The first call of this crate chooses it: `$FMHA_HIP_RUNTIME`; where there
/// is an AMD GPU, what the library finds; else the software device that was installed with the library.
pub fn runtime() -> Result<String> {
    // Device files without which no AMD GPU works: the kernel driver's, and that of WSL.
    let has_gpu = ["/dev/kfd", "/dev/dxg"].iter().any(|file| Path::new(file).exists());
    if let (None, false, Some(device)) = (env::var_os("FMHA_HIP_RUNTIME"), has_gpu, fmha_rocm_sys::EMULATOR) {
        let path = CString::new(device).map_err(|error| Error(format!("{device:?}: {error}")))?;
        // SAFETY: a C string, and the message of this thread's failure. The same path again is no error.
        unsafe {
            if fmha_rocm_sys::fmha_set_hip_runtime(path.as_ptr()) != fmha_rocm_sys::FMHA_OK {
                return Err(Error(text(fmha_rocm_sys::fmha_last_error())));
            }
        }
    }
    // SAFETY: a C string that lives as long as the library, or NULL and a message.
    unsafe {
        let path = fmha_rocm_sys::fmha_hip_runtime_path();
        if path.is_null() {
            return Err(Error(text(fmha_rocm_sys::fmha_last_error())));
        }
        Ok(text(path))
    }
}

/// The functions of that runtime, looked up once.
pub(crate) fn functions() -> Result<&'static Functions> {
    static FOUND: Mutex<Option<&'static Functions>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(functions) = *found {
        return Ok(functions);
    }
    let path = runtime()?;
    let c_path = CString::new(path.as_str()).expect("what was a C string");
    // SAFETY: the library has this file open already, and keeps it open.
    let functions = unsafe {
        let library = dlopen(c_path.as_ptr(), RTLD_NOW);
        if library.is_null() {
            return Err(Error(format!("cannot open {path}")));
        }
        Functions::of(library)?
    };
    let functions: &'static Functions = Box::leak(Box::new(functions));
    *found = Some(functions);
    Ok(functions)
}

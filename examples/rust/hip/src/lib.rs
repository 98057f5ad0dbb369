// SPDX-License-Identifier: MIT OR Apache-2.0
//! As much of HIP as the tests and the example need: memory, copies, streams. A framework has its own.
//!
//! Nothing of HIP is linked: the functions come from the runtime that libfmha_rocm uses, see [`runtime`].
use std::fmt;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::{mem, ptr};

mod runtime;
use runtime::functions;
pub use runtime::runtime;

/// A function of HIP that failed, or a runtime that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

/// Types for which any bits are a value, so that memory written by a device may be read as them.
pub trait Element: sealed::Sealed + Copy {}
mod sealed {
    pub trait Sealed {}
}
macro_rules! elements {
    ($($type:ty),*) => { $(impl sealed::Sealed for $type {} impl Element for $type {})* };
}
elements!(u8, u16, i32, u32, f32);

/// Elements in the memory of the calling thread's current device, given back with the value. Giving back
/// waits for the device, as hipFree does, so that kernels which still use them are safe.
#[derive(Debug)]
pub struct Buffer<T: Element> {
    data: *mut c_void,
    count: usize,
    elements: PhantomData<T>,
}

// SAFETY: the address is not followed on the host, and HIP's functions may be called from any thread.
unsafe impl<T: Element> Send for Buffer<T> {}
// SAFETY: the same; what is behind it changes only by `&mut self` and by kernels.
unsafe impl<T: Element> Sync for Buffer<T> {}

const HOST_TO_DEVICE: i32 = 1;
const DEVICE_TO_HOST: i32 = 2;

impl<T: Element> Buffer<T> {
    pub fn from_slice(host: &[T]) -> Result<Self> {
        let hip = functions()?;
        let mut data = ptr::null_mut();
        if !host.is_empty() {
            // SAFETY: HIP writes the address to `data`.
            hip.check("hipMalloc", unsafe { (hip.malloc)(&mut data, mem::size_of_val(host)) })?;
        }
        let mut buffer = Buffer { data, count: host.len(), elements: PhantomData };
        buffer.copy_from(host)?;
        Ok(buffer)
    }

    /// Replaces all elements. Waits for the device first: a kernel may be reading them.
    ///
    /// # Panics
    /// If `host` has another number of elements.
    pub fn copy_from(&mut self, host: &[T]) -> Result<()> {
        assert_eq!(host.len(), self.count);
        if self.count == 0 {
            return Ok(());
        }
        let hip = functions()?;
        // SAFETY: both have that many bytes.
        unsafe {
            hip.check("hipDeviceSynchronize", (hip.device_synchronize)())?;
            let bytes = mem::size_of_val(host);
            hip.check("hipMemcpy", (hip.memcpy)(self.data, host.as_ptr().cast(), bytes, HOST_TO_DEVICE))
        }
    }

    /// Waits for all work on the device, and copies to the host.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut host = Vec::<T>::with_capacity(self.count);
        if self.count > 0 {
            let hip = functions()?;
            // SAFETY: both have that many bytes, all of them written at the latest by from_slice, and any
            // bits are a value of an Element.
            unsafe {
                hip.check("hipDeviceSynchronize", (hip.device_synchronize)())?;
                let bytes = self.count * mem::size_of::<T>();
                hip.check(
                    "hipMemcpy",
                    (hip.memcpy)(host.as_mut_ptr().cast(), self.data, bytes, DEVICE_TO_HOST),
                )?;
                host.set_len(self.count);
            }
        }
        Ok(host)
    }

    /// Address on the device.
    pub fn data(&self) -> *mut c_void {
        self.data
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let (false, Ok(hip)) = (self.data.is_null(), functions()) {
            // SAFETY: this value's own memory. An error has no one to go to.
            let _ = unsafe { (hip.free)(self.data) };
        }
    }
}

/// A stream of the calling thread's current device, waited for and given back with the value.
#[derive(Debug)]
pub struct Stream(*mut c_void);

// SAFETY: a handle that only HIP looks into, whose functions may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: the same.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new() -> Result<Self> {
        let hip = functions()?;
        let mut stream = ptr::null_mut();
        // SAFETY: HIP writes the handle to `stream`.
        hip.check("hipStreamCreate", unsafe { (hip.stream_create)(&mut stream) })?;
        Ok(Stream(stream))
    }

    /// Waits for all work of this stream.
    pub fn synchronize(&self) -> Result<()> {
        let hip = functions()?;
        // SAFETY: an open stream.
        hip.check("hipStreamSynchronize", unsafe { (hip.stream_synchronize)(self.0) })
    }

    /// The hipStream_t.
    pub fn handle(&self) -> *mut c_void {
        self.0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.synchronize();
        if let Ok(hip) = functions() {
            // SAFETY: this value's own stream. An error has no one to go to.
            let _ = unsafe { (hip.stream_destroy)(self.0) };
        }
    }
}

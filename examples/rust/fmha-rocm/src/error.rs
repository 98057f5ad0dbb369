// SPDX-License-Identifier: MIT OR Apache-2.0
use fmha_rocm_sys as sys;
use std::ffi::CStr;
use std::fmt;

/// The outcome of a call that failed: nothing was launched and nothing written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The arguments make no sense; the message says which, what it got and what it expected.
    InvalidArgument,
    /// They make sense, but no kernel here does it; the message says what would work.
    Unsupported,
    /// The HIP runtime is missing, ambiguous, or refused; the message has its words.
    HipError,
    /// A defect of the library.
    Internal,
    /// The library is older than what was asked of it.
    AbiMismatch,
    /// A status of a library newer than this crate.
    Other(i32),
}

impl From<sys::fmha_status> for Status {
    fn from(status: sys::fmha_status) -> Self {
        match status {
            sys::FMHA_INVALID_ARGUMENT => Status::InvalidArgument,
            sys::FMHA_UNSUPPORTED => Status::Unsupported,
            sys::FMHA_HIP_ERROR => Status::HipError,
            sys::FMHA_INTERNAL => Status::Internal,
            sys::FMHA_ABI_MISMATCH => Status::AbiMismatch,
            other => Status::Other(other),
        }
    }
}

/// Why nothing ran, in the library's words, or in this crate's where it saw first that tensors do not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn invalid(message: String) -> Self {
        Error { status: Status::InvalidArgument, message }
    }

    pub(crate) fn unsupported(message: String) -> Self {
        Error { status: Status::Unsupported, message }
    }

    /// The failure that the library reported last on this thread.
    pub(crate) fn last(status: sys::fmha_status) -> Self {
        // SAFETY: never NULL, and valid until this thread's next failure: it is copied here.
        let message = unsafe { CStr::from_ptr(sys::fmha_last_error()) };
        Error { status: status.into(), message: message.to_string_lossy().into_owned() }
    }

    pub fn status(&self) -> Status {
        self.status
    }

    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.status, self.message)
    }
}

impl std::error::Error for Error {}

/// To be called right after the library, on the same thread: that is whose message it takes.
pub(crate) fn check(status: sys::fmha_status) -> Result<()> {
    match status {
        sys::FMHA_OK => Ok(()),
        status => Err(Error::last(status)),
    }
}

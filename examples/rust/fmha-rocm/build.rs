// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests and examples find the library where it was found at build time, without LD_LIBRARY_PATH.
use std::env;

fn main() {
    let libdir = env::var("DEP_FMHA_ROCM_LIBDIR").expect("set by the build script of fmha-rocm-sys");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{libdir}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention as a framework would call it: grouped queries, causal; says what ran, and how far from f64 it is.
use fmha_rocm::{flash_attn, hip_runtime_path, version, Stream};
use std::process::ExitCode;

#[path = "../tests/common/mod.rs"]
mod common;
use common::{Batch, Data, Failure, Problem};

fn main() -> Result<ExitCode, Failure> {
    hip::runtime()?; // a GPU's, or the software device
    println!("fmha_rocm {} on {}", version(), hip_runtime_path()?);

    // Random queries, keys and values in bfloat16: 2 sequences of 100 queries on 150 keys, 4 heads on 2.
    let problem = Problem { window: (None, Some(0)), ..Problem::new(&[(100, 150); 2]) };
    let mut data = Data::new(problem, 1)?;
    let stream = hip::Stream::new()?;

    let Batch { q, k, v, mut out, mut lse, .. } = data.batch();
    let mut call = flash_attn(&q, &k, &v, 0.125, true)?.lse(&mut lse)?; // candle's arguments
    let kernel = call.kernel(&out)?;
    println!("kernel {} for {}, sha256 {}", kernel.name, kernel.arch, &kernel.sha256[..16]);
    // SAFETY: the stream outlives the call, which the synchronisation ends.
    call.run(&mut out, unsafe { &Stream::from_raw(stream.handle()) })?; // returns at once
    stream.synchronize()?;

    let error = data.error()?;
    let right = error <= 1.0;
    println!("largest error {error:.2} of what roundings allow");
    println!("{}", if right { "right" } else { "WRONG" });
    Ok(ExitCode::from(u8::from(!right)))
}

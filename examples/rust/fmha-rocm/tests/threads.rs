// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls from several threads at once, each on a stream of its own.
mod common;

use common::{Batch, Data, Failure, Problem};
use fmha_rocm::*;
use std::thread;

fn crosses_threads<T: Send + Sync>() {}

#[test]
fn everything_crosses_threads() {
    crosses_threads::<Tensor<'_, 4>>();
    crosses_threads::<TensorMut<'_, 4>>();
    crosses_threads::<SeqLens<'_>>();
    crosses_threads::<Stream<'_>>();
    crosses_threads::<Attention<'_, 4>>();
    crosses_threads::<Error>();
}

/// Some calls of one thread, each with an error after it whose message has to be this thread's.
fn calls(thread: u64) -> std::result::Result<f64, String> {
    let run = || -> std::result::Result<f64, Failure> {
        let mut worst = 0f64;
        let stream = hip::Stream::new()?;
        for i in 0..3 {
            let (rows, keys) = (20 + thread as usize, 30 + 10 * i);
            let window = (None, Some(0));
            let mut data = Data::new(Problem { window, ..Problem::new(&[(rows, keys)]) }, thread)?;
            let Batch { q, k, v, mut out, mut lse, .. } = data.batch();
            let mut call = flash_attn(&q, &k, &v, 0.125, true)?.lse(&mut lse)?;
            // SAFETY: it outlives the call.
            call.run(&mut out, unsafe { &Stream::from_raw(stream.handle()) })?;
            let scale = -1.0 - thread as f32;
            let error = flash_attn(&q, &k, &v, scale, true)?.kernel(&out).unwrap_err();
            assert!(error.message().contains(&format!("{scale}")), "{error}");
            stream.synchronize()?;
            worst = worst.max(data.error()?);
        }
        Ok(worst)
    };
    run().map_err(|error| error.to_string())
}

#[test]
fn threads_do_not_disturb_each_other() {
    let errors = thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|thread| scope.spawn(move || calls(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for error in errors {
        let error = error.unwrap();
        assert!(error > 0.0 && error <= 1.0, "{error:.2} of what roundings allow");
    }
}

/// Made here, prepared there, run elsewhere.
#[test]
fn a_call_may_move() -> std::result::Result<(), Failure> {
    let mut data = Data::new(Problem::new(&[(20, 30)]), 9)?;
    let Batch { q, k, v, mut out, mut lse, .. } = data.batch();
    let mut call = flash_attn(&q, &k, &v, 0.125, false)?.lse(&mut lse)?;
    thread::scope(|scope| scope.spawn(|| call.prepare(&out)).join().unwrap())?;
    thread::scope(|scope| scope.spawn(|| call.run(&mut out, &Stream::NULL)).join().unwrap())?;
    let error = data.error()?;
    assert!(error > 0.0 && error <= 1.0, "{error:.2} of what roundings allow");
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of every function against f64.
mod common;

use common::{Batch, Data, Failure, Packed, Problem};
use fmha_rocm::*;

type Outcome = std::result::Result<(), Failure>;

/// Runs a batch through a function, output and log-sum-exp, on a stream of its own.
fn run_batch(
    problem: Problem,
    function: impl for<'a> Fn(&Batch<'a>, &Problem) -> Result<Attention<'a, 4>>,
) -> Outcome {
    let stream = hip::Stream::new()?;
    let mut data = Data::new(problem.clone(), 1)?;
    let mut batch = data.batch();
    let mut call = function(&batch, &problem)?.lse(&mut batch.lse)?;
    // SAFETY: it outlives the call, which the synchronisation ends.
    call.run(&mut batch.out, unsafe { &Stream::from_raw(stream.handle()) })?;
    stream.synchronize()?;
    right(&data)
}

/// The same with packed sequences.
fn run_packed(
    problem: Problem,
    function: impl for<'a> Fn(&Packed<'a>, &Problem) -> Result<Attention<'a, 3>>,
) -> Outcome {
    let mut data = Data::new(problem.clone(), 2)?;
    let mut packed = data.packed();
    function(&packed, &problem)?.lse(&mut packed.lse)?.run(&mut packed.out, &Stream::NULL)?;
    right(&data)
}

fn right(data: &Data) -> Outcome {
    let error = data.error()?;
    assert!(error <= 1.0, "{error:.2} of what roundings allow");
    assert!(error > 0.0, "no error at all: nothing was compared");
    Ok(())
}

const CAUSAL: (Option<usize>, Option<usize>) = (None, Some(0));
const SLOPES: [f32; 4] = [0.5, 0.25, 0.125, 0.0625];
/// `make` builds kernels with a feature for one type and head size.
const F16_64: (DType, usize) = (DType::F16, 64);
const F16_128: (DType, usize) = (DType::F16, 128);
const BF16_64: (DType, usize) = (DType::BF16, 64);
const BF16_128: (DType, usize) = (DType::BF16, 128);

fn problem(kind: (DType, usize), lengths: &[(usize, usize)]) -> Problem {
    let scale = 1.0 / (kind.1 as f32).sqrt();
    Problem { dtype: kind.0, dim: kind.1, scale, ..Problem::new(lengths) }
}

#[test]
fn plain() -> Outcome {
    for kind in [F16_64, F16_128, BF16_64, BF16_128] {
        run_batch(problem(kind, &[(70, 130); 2]), |b, p| flash_attn(&b.q, &b.k, &b.v, p.scale, false))?;
    }
    Ok(())
}

#[test]
fn heads() -> Outcome {
    for (heads, key_heads) in [(3, 3), (6, 2), (4, 1)] {
        let problem = Problem { heads, key_heads, ..problem(BF16_64, &[(33, 40)]) };
        run_batch(problem, |b, p| flash_attn(&b.q, &b.k, &b.v, p.scale, false))?;
    }
    Ok(())
}

#[test]
fn causal() -> Outcome {
    // As many queries as keys, fewer, more (the first ones see no key), one.
    for length in [(96, 96), (70, 130), (90, 50), (1, 77)] {
        let problem = Problem { window: CAUSAL, ..problem(BF16_64, &[length; 2]) };
        run_batch(problem, |b, p| flash_attn(&b.q, &b.k, &b.v, p.scale, true))?;
    }
    Ok(())
}

#[test]
fn windowed() -> Outcome {
    let windows = [
        (Some(20), Some(0)),
        (Some(0), Some(0)),
        (Some(7), None),
        (None, Some(9)),
        (Some(500), Some(3)),
        CAUSAL,
    ];
    for window in windows {
        let problem = Problem { window, ..problem(F16_64, &[(60, 85)]) };
        run_batch(problem, |b, p| flash_attn_windowed(&b.q, &b.k, &b.v, p.scale, p.window.0, p.window.1))?;
    }
    Ok(())
}

#[test]
fn alibi() -> Outcome {
    for causal in [false, true] {
        let window = if causal { CAUSAL } else { (None, None) };
        let slopes = Some(SLOPES.to_vec());
        let problem = Problem { window, slopes, ..problem(BF16_128, &[(60, 85); 2]) };
        run_batch(problem, |b, p| flash_attn_alibi(&b.q, &b.k, &b.v, &b.slopes, p.scale, causal))?;
    }
    Ok(())
}

#[test]
fn alibi_windowed() -> Outcome {
    let (window, slopes) = ((Some(30), Some(4)), Some(SLOPES.to_vec()));
    run_batch(Problem { window, slopes, ..problem(BF16_128, &[(60, 85)]) }, |b, p| {
        flash_attn_alibi_windowed(&b.q, &b.k, &b.v, &b.slopes, p.scale, p.window.0, p.window.1)
    })
}

#[test]
fn softcap() -> Outcome {
    let softcap = 2.0; // low enough to bend most scores
    run_batch(Problem { softcap, window: CAUSAL, ..problem(F16_128, &[(60, 85)]) }, |b, p| {
        let (left, right) = p.window;
        flash_attn_alibi_windowed_softcap(&b.q, &b.k, &b.v, None, p.scale, left, right, p.softcap)
    })?;
    let (window, slopes) = ((Some(30), Some(4)), Some(SLOPES.to_vec()));
    run_batch(Problem { window, slopes, ..problem(BF16_128, &[(60, 85)]) }, |b, p| {
        let (left, right) = p.window;
        flash_attn_alibi_windowed_softcap(&b.q, &b.k, &b.v, Some(&b.slopes), p.scale, left, right, 0.0)
    })
}

/// Sequences of all kinds: one empty, one without keys, one of a single row.
const LENGTHS: [(usize, usize); 5] = [(70, 100), (0, 30), (1, 64), (40, 0), (33, 33)];

#[test]
fn varlen() -> Outcome {
    for causal in [false, true] {
        let window = if causal { CAUSAL } else { (None, None) };
        for kind in [BF16_128, F16_64] {
            run_packed(Problem { window, ..problem(kind, &LENGTHS) }, |x, p| {
                let ([lens_q, lens_k], (max_q, max_k)) = (&x.seqlens, p.longest());
                flash_attn_varlen(&x.q, &x.k, &x.v, lens_q, lens_k, max_q, max_k, p.scale, causal)
            })?;
        }
    }
    Ok(())
}

#[test]
fn varlen_windowed() -> Outcome {
    for window in [(Some(20), Some(3)), (None, Some(9))] {
        run_packed(Problem { window, ..problem(F16_64, &LENGTHS) }, |x, p| {
            let ([lens_q, lens_k], (max_q, max_k), (left, right)) = (&x.seqlens, p.longest(), p.window);
            flash_attn_varlen_windowed(&x.q, &x.k, &x.v, lens_q, lens_k, max_q, max_k, p.scale, left, right)
        })?;
    }
    Ok(())
}

#[test]
fn varlen_alibi() -> Outcome {
    let slopes = Some(SLOPES.to_vec());
    run_packed(Problem { window: CAUSAL, slopes, ..problem(F16_64, &LENGTHS) }, |x, p| {
        let ([lens_q, lens_k], (max_q, max_k)) = (&x.seqlens, p.longest());
        flash_attn_varlen_alibi(&x.q, &x.k, &x.v, &x.slopes, lens_q, lens_k, max_q, max_k, p.scale, true)
    })
}

#[test]
#[rustfmt::skip] // argument lists stay in one piece
fn varlen_alibi_windowed() -> Outcome {
    let (window, slopes) = ((Some(20), Some(0)), Some(SLOPES.to_vec()));
    run_packed(Problem { window, slopes, ..problem(F16_64, &LENGTHS) }, |x, p| {
        let ([lens_q, lens_k], (max_q, max_k), (left, right)) = (&x.seqlens, p.longest(), p.window);
        flash_attn_varlen_alibi_windowed(
            &x.q, &x.k, &x.v, &x.slopes, lens_q, lens_k, max_q, max_k, p.scale, left, right,
        )
    })
}

#[test]
#[rustfmt::skip]
fn varlen_softcap() -> Outcome {
    let softcap = 2.0;
    run_packed(Problem { softcap, window: CAUSAL, ..problem(BF16_64, &LENGTHS) }, |x, p| {
        let ([lens_q, lens_k], (max_q, max_k), (left, right)) = (&x.seqlens, p.longest(), p.window);
        flash_attn_varlen_alibi_windowed_softcap(
            &x.q, &x.k, &x.v, None, lens_q, lens_k, max_q, max_k, p.scale, left, right, p.softcap,
        )
    })
}

/// Any strides: the output as (batch, heads, rows, dim) holds the same numbers.
#[test]
fn transposed() -> Outcome {
    let (rows, keys) = (40, 50);
    let mut data = Data::new(problem(BF16_64, &[(rows, keys); 2]), 3)?;
    let Problem { heads, dim, scale, .. } = data.problem;
    let [plain, swapped] = [(); 2].map(|()| hip::Buffer::from_slice(&vec![0u16; 2 * rows * heads * dim]));
    let (plain, swapped) = (plain?, swapped?);
    let batch = data.batch();
    let in_order = Layout::contiguous([2, rows, heads, dim], DType::BF16);
    let by_head = Layout::contiguous([2, heads, rows, dim], DType::BF16).transpose(1, 2);
    for (buffer, layout) in [(&plain, in_order), (&swapped, by_head)] {
        // SAFETY: the buffer has these elements, and is read behind a wait for the device.
        let mut out = unsafe { TensorMut::from_raw_parts(buffer.data(), layout) };
        flash_attn(&batch.q, &batch.k, &batch.v, scale, false)?.run(&mut out, &Stream::NULL)?;
    }
    let (plain, swapped) = (plain.to_vec()?, swapped.to_vec()?);
    assert!(plain.iter().any(|x| *x != 0));
    for (i, row) in plain.chunks(dim).enumerate() {
        let (b, s, h) = (i / heads / rows, i / heads % rows, i % heads);
        assert_eq!(row, &swapped[((b * heads + h) * rows + s) * dim..][..dim], "{b} {s} {h}");
    }
    Ok(())
}

/// Eight bits have kernels of their own, only on gfx942.
#[test]
fn fp8() -> Outcome {
    if common::arch()? == "gfx942" {
        let kernel = common::kernel_for(DType::F8E4M3Fnuz)?;
        assert!(kernel.name.contains("fp8") && kernel.sha256.len() == 64, "{kernel:?}");
    } else {
        assert_eq!(common::kernel_for(DType::F8E4M3Fnuz).unwrap_err().status(), Status::Unsupported);
    }
    Ok(())
}

/// Nothing to do is no error, and there is no memory behind it.
#[test]
fn empty() -> Outcome {
    let mut data = Data::new(problem(BF16_64, &[(0, 10); 2]), 4)?;
    let mut batch = data.batch();
    flash_attn(&batch.q, &batch.k, &batch.v, 0.125, false)?.run(&mut batch.out, &Stream::NULL)?;
    run_batch(Problem { ..problem(BF16_64, &[(5, 1)]) }, |b, p| flash_attn(&b.q, &b.k, &b.v, p.scale, false))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call that cannot be done is an error with the library's status and text, and nothing is written.
mod common;

use common::{Data, Failure, Problem};
use fmha_rocm::*;
use std::path::Path;

type Outcome = std::result::Result<(), Failure>;

/// Asserts that a call fails like this, with a message that has all of these words.
fn refused<T>(result: Result<T>, status: Status, words: &[&str]) {
    let error = result.err().expect("an error");
    assert_eq!(error.status(), status, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{word:?} is not in {:?}", error.message());
    }
}

fn data() -> std::result::Result<Data, Failure> {
    Data::new(Problem::new(&[(20, 30); 2]), 1)
}

/// The same memory, said to be otherwise.
fn retold<'a, const N: usize>(x: &Tensor<'a, N>, change: impl Fn(&mut Layout<N>)) -> Tensor<'a, N> {
    let mut layout = *x.layout();
    change(&mut layout);
    // SAFETY: an address that no call gets to use: the layout is refused.
    unsafe { Tensor::from_raw_parts(std::ptr::null(), layout) }
}

#[test]
fn tensors_that_do_not_match() -> Outcome {
    let mut data = data()?;
    let b = data.batch();
    let bad = |q: &Tensor<'_, 4>, k: &Tensor<'_, 4>, v: &Tensor<'_, 4>, words: &[&str]| {
        refused(flash_attn(q, k, v, 1.0, false).map(drop), Status::InvalidArgument, words);
    };
    bad(
        &b.q,
        &retold(&b.k, |l| l.shape[0] = 3),
        &b.v,
        &["k: got shape [3, 30, 2, 64]", "expected [2, 30, 2, 64]"],
    );
    bad(&b.q, &retold(&b.k, |l| l.shape[3] = 32), &b.v, &["k: got shape", "as q"]);
    bad(&b.q, &b.k, &retold(&b.v, |l| l.shape[1] = 31), &["v: got shape [2, 31, 2, 64]", "as k"]);
    bad(&b.q, &b.k, &retold(&b.v, |l| l.dtype = DType::F16), &["v: got F16, expected BF16"]);
    bad(&b.q, &retold(&b.k, |l| l.device = 1), &b.v, &["k: got memory of device 1", "device 0"]);
    bad(
        &b.q,
        &b.k,
        &retold(&b.v, |l| l.strides[3] = 2),
        &["v: got strides [3840, 128, 64, 2]", "contiguous"],
    );
    bad(&retold(&b.q, |l| l.dtype = DType::I32), &b.k, &b.v, &["q: got I32, expected F16"]);
    Ok(())
}

#[test]
fn slopes_windows_and_lse() -> Outcome {
    let mut data = data()?;
    let b = data.batch();
    let alibi = |slopes: &Tensor<'_, 1>| flash_attn_alibi(&b.q, &b.k, &b.v, slopes, 1.0, false).map(drop);
    refused(
        alibi(&retold(&b.slopes, |l| l.shape[0] = 2)),
        Status::InvalidArgument,
        &["alibi_slopes", "[2]", "[4]"],
    );
    refused(
        alibi(&retold(&b.slopes, |l| l.dtype = DType::F16)),
        Status::InvalidArgument,
        &["alibi_slopes: got F16", "F32"],
    );
    let window = flash_attn_windowed(&b.q, &b.k, &b.v, 1.0, Some(usize::MAX), None);
    refused(window, Status::InvalidArgument, &["window_size_left: got 18446744073709551615"]);
    // SAFETY: an address that no call gets to use.
    let mut lse =
        unsafe { TensorMut::from_raw_parts(b.lse.layout().shape.as_ptr() as *mut _, *b.lse.layout()) };
    let call = flash_attn(&b.q, &b.k, &b.v, 1.0, false)?.lse(&mut lse)?;
    refused(call.kernel(&b.out), Status::InvalidArgument, &["lse"]); // host memory
    let mut short = Layout::contiguous([2, 4, 19], DType::F32);
    for (shape, dtype, words) in [(19, DType::F32, "[2, 4, 19]"), (20, DType::BF16, "BF16")] {
        short.shape[2] = shape;
        short.dtype = dtype;
        // SAFETY: the same.
        let mut lse = unsafe { TensorMut::from_raw_parts(std::ptr::null_mut(), short) };
        let call = flash_attn(&b.q, &b.k, &b.v, 1.0, false)?.lse(&mut lse);
        refused(call, Status::InvalidArgument, &["lse: got", words]);
    }
    assert!(data.untouched()?);
    Ok(())
}

#[test]
fn lengths() -> Outcome {
    let mut data = data()?;
    let x = data.packed();
    let [lens_q, lens_k] = &x.seqlens;
    let numbers = Layout::contiguous([3], DType::I32);
    // SAFETY: addresses that no call gets to use.
    let retold =
        |layout, total| unsafe { SeqLens::new(Tensor::from_raw_parts(std::ptr::null(), layout), total) };
    let bad = |lens_q: &SeqLens<'_>, lens_k: &SeqLens<'_>, words: &[&str]| {
        let call = flash_attn_varlen(&x.q, &x.k, &x.v, lens_q, lens_k, 20, 30, 1.0, false).map(drop);
        refused(call, Status::InvalidArgument, words);
    };
    bad(&retold(numbers, 41), lens_k, &["seqlens_q: got 41 rows", "40"]);
    bad(lens_q, &retold(numbers, 61), &["seqlens_k: got 61 rows", "60"]);
    bad(lens_q, &retold(Layout { shape: [4], ..numbers }, 60), &["seqlens_k: got shape [4]", "[3]"]);
    bad(&retold(Layout { dtype: DType::F32, ..numbers }, 40), lens_k, &["seqlens_q: got F32", "I32 or U32"]);
    bad(&retold(Layout { strides: [2], ..numbers }, 40), lens_k, &["seqlens_q: got strides [2]"]);
    bad(&retold(Layout { shape: [0], ..numbers }, 0), lens_k, &["seqlens_q: got no numbers"]);
    // candle's lengths are u32: the same bits.
    let unsigned = retold(Layout { dtype: DType::U32, ..numbers }, 40);
    assert!(flash_attn_varlen(&x.q, &x.k, &x.v, &unsigned, lens_k, 20, 30, 1.0, false).is_ok());
    Ok(())
}

#[test]
fn the_library_says_why() -> Outcome {
    let mut data = data()?;
    let mut b = data.batch();
    let mut bad = |call: Result<Attention<'_, 4>>, status, words: &[&str]| {
        refused(call.and_then(|mut call| call.run(&mut b.out, &Stream::NULL)), status, words);
    };
    bad(flash_attn(&b.q, &b.k, &b.v, f32::NAN, false), Status::InvalidArgument, &["softmax_scale", "nan"]);
    bad(flash_attn(&b.q, &b.k, &b.v, -1.0, false), Status::Unsupported, &["softmax_scale", "-1"]);
    let both = flash_attn_alibi_windowed_softcap(&b.q, &b.k, &b.v, Some(&b.slopes), 1.0, None, None, 30.0);
    bad(both, Status::Unsupported, &["softcap", "alibi"]);
    let (k, v) = (retold(&b.k, |l| l.shape[2] = 3), retold(&b.v, |l| l.shape[2] = 3));
    bad(flash_attn(&b.q, &k, &v, 1.0, false), Status::InvalidArgument, &["nhead_q", "4", "3"]);
    assert!(data.untouched()?);
    Ok(())
}

/// Host memory whose only fault is to be that.
#[repr(align(16))]
struct Aligned([u16; 64]);

#[test]
fn outputs() -> Outcome {
    let mut data = data()?;
    let b = data.batch();
    let right = *b.out.layout();
    let bad = |change: fn(&mut Layout<4>), status, words: &[&str]| {
        let mut layout = right;
        change(&mut layout);
        let host = Aligned([0; 64]);
        // SAFETY: host memory, which no call gets to use.
        let mut out = unsafe { TensorMut::from_raw_parts(host.0.as_ptr() as *mut _, layout) };
        let mut call = flash_attn(&b.q, &b.k, &b.v, 1.0, false).unwrap();
        refused(call.run(&mut out, &Stream::NULL), status, words);
    };
    bad(|l| l.shape[1] = 19, Status::InvalidArgument, &["out: got shape [2, 19, 4, 64]", "[2, 20, 4, 64]"]);
    bad(|l| l.device = 3, Status::InvalidArgument, &["out: got memory of device 3"]);
    bad(|l| l.strides[3] = 2, Status::InvalidArgument, &["out: got strides"]);
    bad(|l| l.dtype = DType::U32, Status::InvalidArgument, &["out: got U32"]);
    bad(|_| (), Status::InvalidArgument, &["o.data", "not device memory"]);

    let memory = hip::Buffer::from_slice(&vec![0u16; 2 * 20 * 4 * 64])?;
    // SAFETY: memory of that shape; the call is refused.
    let mut out = unsafe { TensorMut::from_raw_parts(memory.data(), Layout { dtype: DType::F16, ..right }) };
    let mut call = flash_attn(&b.q, &b.k, &b.v, 1.0, false)?;
    refused(
        call.run(&mut out, &Stream::NULL),
        Status::Unsupported,
        &["o_dtype = fp16", "takes o_dtype = bf16"],
    );
    assert!(memory.to_vec()?.iter().all(|x| *x == 0));
    Ok(())
}

#[test]
fn head_sizes_without_a_kernel() -> Outcome {
    let mut data = Data::new(Problem { dim: 4096, ..Problem::new(&[(1, 1)]) }, 1)?;
    let mut b = data.batch();
    let result = flash_attn(&b.q, &b.k, &b.v, 1.0, false)?.run(&mut b.out, &Stream::NULL);
    refused(result, Status::Unsupported, &["hdim_q", "4096"]);
    assert!(data.untouched()?);
    Ok(())
}

#[test]
fn runtimes() -> Outcome {
    let used = hip::runtime()?;
    assert_eq!(hip_runtime_path()?, used);
    assert!(set_hip_runtime(Path::new(&used)).is_ok());
    refused(set_hip_runtime(Path::new("/nowhere/libamdhip64.so")), Status::InvalidArgument, &["/nowhere"]);
    refused(set_hip_runtime(Path::new("a\0b")), Status::InvalidArgument, &["zero byte"]);
    assert!(build_info().starts_with('{') && build_info().contains(version()));
    Ok(())
}

#[test]
fn an_error_is_one_of_std() {
    let error = set_hip_runtime(Path::new("a\0b")).unwrap_err();
    let boxed: Box<dyn std::error::Error + Send + Sync> = Box::new(error.clone());
    assert_eq!(boxed.to_string(), format!("InvalidArgument: {}", error.message()));
}

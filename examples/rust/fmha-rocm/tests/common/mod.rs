// SPDX-License-Identifier: MIT OR Apache-2.0
//! A problem on the host: random inputs, what they should give in f64, and how far rounding may take it.
#![allow(dead_code)] // each test, and the example, uses a part

use fmha_rocm::{flash_attn, DType, Kernel, Layout, SeqLens, Tensor, TensorMut};
use hip::Buffer;

mod numbers;
mod reference;
pub use numbers::Random;
pub use reference::worst_error;

pub type Failure = Box<dyn std::error::Error>;

/// Attention over sequences whose rows follow each other: packed ones, or a batch of one length.
#[derive(Clone)]
pub struct Problem {
    pub dtype: DType,
    /// Queries and keys of each sequence.
    pub lengths: Vec<(usize, usize)>,
    pub heads: usize,
    pub key_heads: usize,
    pub dim: usize,
    pub scale: f32,
    pub window: (Option<usize>, Option<usize>),
    pub slopes: Option<Vec<f32>>,
    pub softcap: f32,
}

impl Problem {
    /// Four query heads on two key heads of 64, without a mask.
    pub fn new(lengths: &[(usize, usize)]) -> Self {
        Problem {
            dtype: DType::BF16,
            lengths: lengths.to_vec(),
            heads: 4,
            key_heads: 2,
            dim: 64,
            scale: 0.125,
            window: (None, None),
            slopes: None,
            softcap: 0.0,
        }
    }

    pub fn batch(&self) -> usize {
        self.lengths.len()
    }

    /// Rows of q and of k, in all sequences.
    pub fn totals(&self) -> (usize, usize) {
        self.lengths.iter().fold((0, 0), |(q, k), length| (q + length.0, k + length.1))
    }

    pub fn longest(&self) -> (usize, usize) {
        self.lengths.iter().fold((0, 0), |(q, k), length| (q.max(length.0), k.max(length.1)))
    }
}

/// A problem's inputs on the host and on the device, and room for what comes out.
pub struct Data {
    pub problem: Problem,
    host: [Vec<f32>; 3],
    q: Buffer<u16>,
    k: Buffer<u16>,
    v: Buffer<u16>,
    o: Buffer<u16>,
    lse: Buffer<f32>,
    slopes: Buffer<f32>,
    cumulative: [Buffer<i32>; 2],
}

/// Views of it. `lse` is (heads, total) here: what is read back is, for a batch of one too.
pub struct Packed<'a> {
    pub q: Tensor<'a, 3>,
    pub k: Tensor<'a, 3>,
    pub v: Tensor<'a, 3>,
    pub slopes: Tensor<'a, 1>,
    pub seqlens: [SeqLens<'a>; 2],
    pub out: TensorMut<'a, 3>,
    pub lse: TensorMut<'a, 2>,
}

pub struct Batch<'a> {
    pub q: Tensor<'a, 4>,
    pub k: Tensor<'a, 4>,
    pub v: Tensor<'a, 4>,
    pub slopes: Tensor<'a, 1>,
    pub out: TensorMut<'a, 4>,
    pub lse: TensorMut<'a, 3>,
}

impl Data {
    pub fn new(problem: Problem, seed: u64) -> Result<Self, Failure> {
        let mut random = Random::new(seed);
        let (total_q, total_k) = problem.totals();
        let (row_q, row_k) = (problem.heads * problem.dim, problem.key_heads * problem.dim);
        let mut tensor = |count| numbers::round_all(problem.dtype, random.normal(count));
        let ((q, q_bits), (k, k_bits), (v, v_bits)) =
            (tensor(total_q * row_q), tensor(total_k * row_k), tensor(total_k * row_k));
        let starts = |length: fn(&(usize, usize)) -> usize| -> Vec<i32> {
            let mut sum = 0;
            let ends = problem.lengths.iter().map(|lengths| {
                sum += length(lengths) as i32;
                sum
            });
            std::iter::once(0).chain(ends).collect()
        };
        let (starts_q, starts_k) = (starts(|length| length.0), starts(|length| length.1));
        Ok(Data {
            host: [q, k, v],
            q: Buffer::from_slice(&q_bits)?,
            k: Buffer::from_slice(&k_bits)?,
            v: Buffer::from_slice(&v_bits)?,
            o: Buffer::from_slice(&vec![numbers::NAN; total_q * row_q])?,
            lse: Buffer::from_slice(&vec![f32::NAN; total_q * problem.heads])?,
            slopes: Buffer::from_slice(&problem.slopes.clone().unwrap_or_else(|| vec![0.0; problem.heads]))?,
            cumulative: [Buffer::from_slice(&starts_q)?, Buffer::from_slice(&starts_k)?],
            problem,
        })
    }

    /// As packed sequences.
    pub fn packed(&mut self) -> Packed<'_> {
        let (p, (total_q, total_k)) = (&self.problem, self.problem.totals());
        let of_q = Layout::contiguous([total_q, p.heads, p.dim], p.dtype);
        let of_k = Layout::contiguous([total_k, p.key_heads, p.dim], p.dtype);
        let numbers = Layout::contiguous([p.batch() + 1], DType::I32);
        let of_lse = Layout::contiguous([p.heads, total_q], DType::F32);
        // SAFETY: the buffers have these shapes, are initialised, and stay borrowed; they are read, written and
        // freed only after a wait for the device. The numbers are cumulative lengths.
        unsafe {
            let [starts_q, starts_k] = &self.cumulative;
            Packed {
                q: Tensor::from_raw_parts(self.q.data(), of_q),
                k: Tensor::from_raw_parts(self.k.data(), of_k),
                v: Tensor::from_raw_parts(self.v.data(), of_k),
                slopes: slopes(&self.slopes),
                seqlens: [
                    SeqLens::new(Tensor::from_raw_parts(starts_q.data(), numbers), total_q),
                    SeqLens::new(Tensor::from_raw_parts(starts_k.data(), numbers), total_k),
                ],
                out: TensorMut::from_raw_parts(self.o.data(), of_q),
                lse: TensorMut::from_raw_parts(self.lse.data(), of_lse),
            }
        }
    }

    /// As a batch, if the sequences are of one length.
    pub fn batch(&mut self) -> Batch<'_> {
        let (p, (rows, keys)) = (&self.problem, self.problem.lengths[0]);
        assert!(p.lengths.iter().all(|length| *length == (rows, keys)), "sequences of different lengths");
        let of_q = Layout::contiguous([p.batch(), rows, p.heads, p.dim], p.dtype);
        let of_k = Layout::contiguous([p.batch(), keys, p.key_heads, p.dim], p.dtype);
        // (batch, heads, rows), but stored as packed sequences have it: one way to read it back.
        let strides = [rows, p.batch() * rows, 1];
        let of_lse = Layout { shape: [p.batch(), p.heads, rows], strides, dtype: DType::F32, device: 0 };
        // SAFETY: as in packed().
        unsafe {
            Batch {
                q: Tensor::from_raw_parts(self.q.data(), of_q),
                k: Tensor::from_raw_parts(self.k.data(), of_k),
                v: Tensor::from_raw_parts(self.v.data(), of_k),
                slopes: slopes(&self.slopes),
                out: TensorMut::from_raw_parts(self.o.data(), of_q),
                lse: TensorMut::from_raw_parts(self.lse.data(), of_lse),
            }
        }
    }

    /// Waits for the device. The output.
    pub fn out(&self) -> Result<Vec<f32>, Failure> {
        Ok(self.o.to_vec()?.into_iter().map(|x| numbers::widen(self.problem.dtype, x)).collect())
    }

    /// Waits for the device. The largest error of all outputs, in units of what roundings allow.
    pub fn error(&self) -> Result<f64, Failure> {
        let [q, k, v] = &self.host;
        Ok(worst_error(&self.problem, &arch()?, [q, k, v], &self.out()?, &self.lse.to_vec()?))
    }

    /// Tells whether no output was touched.
    pub fn untouched(&self) -> Result<bool, Failure> {
        Ok(self.o.to_vec()?.iter().all(|x| *x == numbers::NAN)
            && self.lse.to_vec()?.iter().all(|x| x.is_nan()))
    }
}

/// The kernel of a causal problem over 64-wide heads of a type, with an output of bfloat16.
pub fn kernel_for(dtype: DType) -> fmha_rocm::Result<Kernel> {
    let [of_q, of_k] = [40, 50].map(|rows| Layout::contiguous([1, rows, 4, 64], dtype));
    // SAFETY: which kernel it is depends on no data.
    let (q, k, out) = unsafe {
        let [q, k] = [of_q, of_k].map(|layout| Tensor::from_raw_parts(std::ptr::null(), layout));
        let out = Layout { dtype: DType::BF16, ..of_q };
        (q, k, TensorMut::from_raw_parts(std::ptr::null_mut(), out))
    };
    flash_attn(&q, &k, &k, 0.125, true)?.kernel(&out)
}

/// "gfx942", say.
pub fn arch() -> Result<String, Failure> {
    hip::runtime()?;
    Ok(kernel_for(DType::BF16)?.arch)
}

/// # Safety
/// Used, and freed, as Tensor::from_raw_parts asks for.
unsafe fn slopes(buffer: &Buffer<f32>) -> Tensor<'_, 1> {
    Tensor::from_raw_parts(buffer.data(), Layout::contiguous([buffer.len()], DType::F32))
}

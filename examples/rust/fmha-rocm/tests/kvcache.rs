// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention over a KV cache: what is appended to it is attended to, against f64; and what is refused.
mod common;

use common::{Data, Failure, Problem};
use fmha_rocm::*;
use hip::Buffer;

type Outcome = std::result::Result<(), Failure>;

const CAUSAL: (Option<usize>, Option<usize>) = (None, Some(0));
/// Sequences of all kinds: one without queries, one of a single row, one without keys.
const LENGTHS: [(usize, usize); 5] = [(7, 100), (0, 30), (1, 64), (4, 0), (33, 33)];
/// A 16-bit NaN: what no sequence has stored.
const NAN: u16 = 0x7fff;

/// A cache for a problem's keys, in pages that are dealt out backwards, or without pages.
struct Store {
    k: Buffer<u16>,
    v: Buffer<u16>,
    shape: [usize; 4],
    dtype: DType,
    table: Option<(Buffer<i32>, usize)>, // and its width
    before: Buffer<i32>,
    after: Buffer<i32>,
    longest: usize,
}

impl Store {
    fn new(p: &Problem, page_size: Option<usize>) -> std::result::Result<Self, Failure> {
        let longest = p.longest().1;
        let (size, mut pages) = (page_size.unwrap_or(longest), p.batch());
        let mut table = None;
        if page_size.is_some() {
            let width = (longest + size - 1) / size + 1;
            let counts: Vec<usize> = p.lengths.iter().map(|x| (x.1 + size - 1) / size).collect();
            pages = counts.iter().sum::<usize>() + 1; // one is nobody's
            let mut next = (0..pages as i32).rev();
            let mut numbers = vec![-1; p.batch() * width];
            for (b, count) in counts.iter().enumerate() {
                numbers[b * width..].iter_mut().take(*count).for_each(|x| *x = next.next().unwrap());
            }
            table = Some((Buffer::from_slice(&numbers)?, width));
        }
        let shape = [pages, size, p.key_heads, p.dim];
        let elements = vec![NAN; shape.iter().product()];
        let lengths: Vec<i32> = p.lengths.iter().map(|x| x.1 as i32).collect();
        Ok(Store {
            k: Buffer::from_slice(&elements)?,
            v: Buffer::from_slice(&elements)?,
            shape,
            dtype: p.dtype,
            table,
            before: Buffer::from_slice(&vec![0; p.batch()])?,
            after: Buffer::from_slice(&lengths)?,
            longest,
        })
    }

    fn cache(&self) -> KvCache<'_> {
        let layout = Layout::contiguous(self.shape, self.dtype);
        // SAFETY: the buffers have these shapes and stay borrowed; they are freed after a wait for the device.
        // The table has a page for each token of each sequence.
        unsafe {
            let [k, v] = [&self.k, &self.v].map(|x| TensorMut::from_raw_parts(x.data(), layout));
            match &self.table {
                None => KvCache::new(k, v),
                Some((numbers, width)) => {
                    let layout = Layout::contiguous([numbers.len() / width, *width], DType::I32);
                    KvCache::paged(k, v, Tensor::from_raw_parts(numbers.data(), layout))
                }
            }
        }
    }

    /// Lengths before anything is stored, and after all keys are.
    fn lengths(&self) -> [CacheLens<'_>; 2] {
        [(&self.before, 0), (&self.after, self.longest)].map(|(x, longest)| {
            let layout = Layout::contiguous([x.len()], DType::I32);
            // SAFETY: as above; and no sequence is longer.
            unsafe { CacheLens::new(Tensor::from_raw_parts(x.data(), layout), longest) }
        })
    }
}

/// Runs it with the workspace that it asks for.
fn run<const N: usize>(mut call: CachedAttention<'_, N>, out: &mut TensorMut<'_, N>) -> Outcome {
    let memory = Buffer::from_slice(&vec![0xffu8; call.workspace_bytes(out)?])?;
    // SAFETY: it is freed after a wait for the device.
    let mut workspace = unsafe { Workspace::from_raw_parts(memory.data(), memory.len()) };
    call.run(out, &mut workspace, &Stream::NULL)?;
    Ok(())
}

fn right(data: &Data) -> Outcome {
    let error = data.error()?;
    assert!(error <= 1.0, "{error:.2} of what roundings allow");
    assert!(error > 0.0, "no error at all: nothing was compared");
    Ok(())
}

/// Packed sequences through a cache.
fn run_packed(
    problem: Problem,
    page_size: Option<usize>,
    change: impl for<'a> Fn(CachedAttention<'a, 3>, &common::Packed<'a>) -> Result<CachedAttention<'a, 3>>,
) -> Outcome {
    let mut data = Data::new(problem.clone(), 5)?;
    let store = Store::new(&problem, page_size)?;
    let (mut cache, [before, after]) = (store.cache(), store.lengths());
    let ((max_q, max_k), causal) = (problem.longest(), problem.window == CAUSAL);
    let mut x = data.packed();
    let [lens_q, lens_k] = x.seqlens;
    flash_attn_kv_append_varlen(&mut cache, &x.k, &x.v, &lens_k, max_k, &before)?.run(&Stream::NULL)?;
    let call = flash_attn_varlen_paged(&x.q, &cache, &lens_q, max_q, &after, problem.scale, causal)?;
    run(change(call, &x)?.lse(&mut x.lse)?, &mut x.out)?;
    right(&data)
}

fn problem(dtype: DType, dim: usize, lengths: &[(usize, usize)]) -> Problem {
    Problem { dtype, dim, scale: 1.0 / (dim as f32).sqrt(), ..Problem::new(lengths) }
}

#[test]
fn packed() -> Outcome {
    for page_size in [None, Some(1), Some(16), Some(64)] {
        let window = if page_size == Some(16) { (None, None) } else { CAUSAL };
        run_packed(Problem { window, ..problem(DType::BF16, 64, &LENGTHS) }, page_size, |call, _| Ok(call))?;
    }
    Ok(())
}

/// The cache of a problem by candle's arguments, after an append.
fn run_candle(problem: Problem, page_size: usize, change: impl Fn(&mut [usize; 4])) -> Outcome {
    let mut data = Data::new(problem.clone(), 6)?;
    let store = Store::new(&problem, Some(page_size))?;
    let (mut cache, [before, _]) = (store.cache(), store.lengths());
    let ((max_q, max_k), (left, right)) = (problem.longest(), problem.window);
    let mut x = data.packed();
    let [lens_q, lens_k] = x.seqlens;
    flash_attn_kv_append_varlen(&mut cache, &x.k, &x.v, &lens_k, max_k, &before)?.run(&Stream::NULL)?;
    let (numbers, width) = store.table.as_ref().unwrap();
    let mut sizes = [page_size, max_k, problem.batch(), 0];
    change(&mut sizes);
    let [page_size, max_k, batch, ranges] = sizes;
    // SAFETY: as in Store::cache.
    let call = unsafe {
        let layout = Layout::contiguous(store.shape, store.dtype);
        let [k, v] = [&store.k, &store.v].map(|x| Tensor::from_raw_parts(x.data(), layout));
        let table = Tensor::from_raw_parts(numbers.data(), Layout::contiguous([batch, *width], DType::U32));
        let prefixes =
            Tensor::from_raw_parts(numbers.data(), Layout::contiguous([batch, ranges, 2], DType::U32));
        let prefixes = if ranges > 0 { Some(&prefixes) } else { None };
        let (scale, softcap) = (problem.scale, Some(problem.softcap));
        flash_attn_varlen_paged_windowed(
            &x.q, &k, &v, &lens_q, &lens_k, &table, prefixes, max_q, max_k, scale, left, right, page_size,
            softcap,
        )
    };
    run(call?.lse(&mut x.lse)?, &mut x.out)?;
    self::right(&data)
}

#[test]
fn candles_pages() -> Outcome {
    let windowed = (Some(20), Some(3));
    for (page_size, window, softcap) in [(256, CAUSAL, 0.0), (1, (None, None), 0.0), (16, windowed, 2.0)] {
        run_candle(Problem { window, softcap, ..problem(DType::F16, 128, &LENGTHS) }, page_size, |_| ())?;
    }
    let refused = |change: fn(&mut [usize; 4]), words: &str| {
        let error =
            run_candle(problem(DType::F16, 64, &LENGTHS), 64, change).expect_err("an error").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(|x| x[0] = 32, "page_block_size: got 32, expected 64, which k has");
    refused(|x| x[1] = 900, "max_seqlen_k: got a longest of 900 tokens, expected at most 192");
    refused(|x| x[3] = 1, "mm_prefix_ranges: got a tensor, expected None");
    refused(|x| x[2] = 2, "block_table: got shape [2, 3], expected [5, 3]");
    Ok(())
}

#[test]
fn options() -> Outcome {
    let window = (Some(20), Some(3));
    let windowed = Problem { window, softcap: 2.0, ..problem(DType::F16, 128, &LENGTHS) };
    run_packed(windowed, Some(16), |call, _| Ok(call.windowed(Some(20), Some(3))?.softcap(2.0)))?;
    let slopes = Some(vec![0.5, 0.25, 0.125, 0.0625]);
    let biased = Problem { window: CAUSAL, slopes, ..problem(DType::F16, 64, &LENGTHS) };
    run_packed(biased, Some(16), |call, x| Ok(call.alibi(&x.slopes)?.num_splits(3)))
}

/// A logit that is low changes nothing, and one that is high makes all of the output small.
#[test]
fn sinks() -> Outcome {
    for (logit, changes) in [(-1e30f32, false), (1e4, true)] {
        let problem = problem(DType::BF16, 64, &[(7, 100), (1, 64)]);
        let mut data = Data::new(problem.clone(), 9)?;
        let store = Store::new(&problem, Some(32))?;
        let (mut cache, [before, after]) = (store.cache(), store.lengths());
        let logits = Buffer::from_slice(&[logit; 4])?;
        let mut x = data.packed();
        let [lens_q, lens_k] = x.seqlens;
        // SAFETY: it is freed after a wait for the device.
        let logits = unsafe { Tensor::from_raw_parts(logits.data(), Layout::contiguous([4], DType::F32)) };
        flash_attn_kv_append_varlen(&mut cache, &x.k, &x.v, &lens_k, 100, &before)?.run(&Stream::NULL)?;
        let call = flash_attn_varlen_paged(&x.q, &cache, &lens_q, 7, &after, problem.scale, false)?;
        run(call.sinks(&logits)?.lse(&mut x.lse)?, &mut x.out)?;
        assert_eq!(data.error()? > 1.0, changes, "{}", data.error()?);
    }
    Ok(())
}

/// Batches; with rotary that turns queries and keys by a right angle, scores are what they were without.
#[test]
fn batches() -> Outcome {
    let problem = Problem { window: CAUSAL, ..problem(DType::BF16, 64, &[(40, 40), (40, 40)]) };
    for (page_size, turns) in [(None, false), (Some(16), true)] {
        let mut data = Data::new(problem.clone(), 6)?;
        let store = Store::new(&problem, page_size)?;
        let (mut cache, [before, after]) = (store.cache(), store.lengths());
        let (cos, sin) = (Buffer::from_slice(&[0f32; 40 * 32])?, Buffer::from_slice(&[1f32; 40 * 32])?);
        let turned = Buffer::from_slice(&vec![NAN; 2 * 40 * 4 * 64])?;
        let of_tables = Layout::contiguous([40, 32], DType::F32);
        let mut x = data.batch();
        let mut q = x.q;
        // SAFETY: these are freed after a wait for the device, and have a position for each token.
        unsafe {
            let [cos, sin] = [&cos, &sin].map(|table| Tensor::from_raw_parts(table.data(), of_tables));
            let mut out = TensorMut::from_raw_parts(turned.data(), *q.layout());
            let mut append = flash_attn_kv_append(&mut cache, &x.k, &x.v, &before)?;
            if turns {
                append = append.rotary(&cos, &sin, true)?.query(&x.q, &mut out)?;
            }
            append.run(&Stream::NULL)?;
            if turns {
                q = Tensor::from_raw_parts(turned.data(), *x.q.layout());
            }
        }
        let lengths = if turns { &before } else { &after };
        let mut call = flash_attn_with_kvcache(&q, &cache, lengths, problem.scale, true)?;
        if turns {
            call = call.after_append(40)?;
        }
        run(call.lse(&mut x.lse)?, &mut x.out)?;
        right(&data)?;
        assert_eq!(turned.to_vec()?.contains(&NAN), !turns);
    }
    Ok(())
}

/// A cache (batch, num_heads_kv, capacity, head_size), told of as any other.
#[test]
fn heads_first() -> Outcome {
    let problem = problem(DType::F16, 64, &[(1, 50), (1, 50)]);
    let mut data = Data::new(problem.clone(), 7)?;
    let store = Store::new(&problem, None)?;
    let layout = Layout::contiguous([2, 2, 50, 64], DType::F16).transpose(1, 2);
    // SAFETY: as in Store.
    let [k, v] = [&store.k, &store.v].map(|x| unsafe { TensorMut::from_raw_parts(x.data(), layout) });
    let (mut cache, [before, after]) = (KvCache::new(k, v), store.lengths());
    let mut x = data.batch();
    flash_attn_kv_append(&mut cache, &x.k, &x.v, &before)?.run(&Stream::NULL)?;
    let call = flash_attn_with_kvcache(&x.q, &cache, &after, problem.scale, false)?;
    assert!(call.kernel(&x.out)?.name.contains("decode"));
    call.prepare(&x.out)?;
    run(call.lse(&mut x.lse)?, &mut x.out)?;
    right(&data)
}

/// Sequences in elements of the cache that are not their own: element 0 stays nobody's.
#[test]
fn batch_idx() -> Outcome {
    let problem = problem(DType::BF16, 64, &[(3, 40), (3, 40)]);
    let mut data = Data::new(problem.clone(), 10)?;
    let store = Store::new(&Problem { lengths: vec![(3, 40); 3], ..problem.clone() }, None)?;
    let lengths = Store::new(&problem, None)?;
    let (elements, [before, after]) = (Buffer::from_slice(&[2, 1])?, lengths.lengths());
    // SAFETY: it is freed after a wait for the device; the cache has three elements.
    let mut cache = unsafe {
        let elements = Tensor::from_raw_parts(elements.data(), Layout::contiguous([2], DType::I32));
        store.cache().cache_batch_idx(elements)
    };
    let mut x = data.batch();
    flash_attn_kv_append(&mut cache, &x.k, &x.v, &before)?.run(&Stream::NULL)?;
    let call = flash_attn_with_kvcache(&x.q, &cache, &after, problem.scale, false)?;
    run(call.lse(&mut x.lse)?, &mut x.out)?;
    right(&data)?;
    let keys = store.k.to_vec()?;
    let (nobodys, stored) = keys.split_at(keys.len() / 3);
    assert!(nobodys.iter().all(|x| *x == NAN) && !stored.contains(&NAN));
    Ok(())
}

/// The number that an 8-bit float stands for: bias 8, three bits of fraction.
fn of_8_bits(code: u8) -> f32 {
    let (sign, exponent) = (if code >> 7 == 0 { 1.0 } else { -1.0 }, i32::from(code >> 3 & 15));
    assert!(exponent > 0, "subnormal numbers are not drawn");
    sign * (1.0 + f32::from(code & 7) / 8.0) * (exponent as f32 - 8.0).exp2()
}

/// A cache of 8 bits gives what a bfloat16 one of the numbers it stands for gives, but for P's roundings: their
/// scales are powers of two, a different one for each page or sequence and head, of keys and of values.
#[test]
fn scales() -> Outcome {
    if common::arch()? != "gfx942" {
        return Ok(()); // eight bits have kernels there
    }
    let problem = problem(DType::BF16, 64, &[(3, 40), (3, 40)]);
    for (by, page_size) in
        [(ScaledBy::Page, Some(16)), (ScaledBy::Sequence, Some(16)), (ScaledBy::Sequence, None)]
    {
        let mut data = Data::new(problem.clone(), 11)?;
        let store = Store::new(&problem, page_size)?;
        let [pages, size, heads, dim] = store.shape;
        let rows = if by == ScaledBy::Page { pages } else { problem.batch() };
        // Pages are dealt out backwards, three to a sequence; those of the first have the highest numbers.
        let row_of = |page: usize| match (by, page_size) {
            (ScaledBy::Page, _) | (_, None) => page,
            _ => usize::from(page + 3 < pages),
        };
        let mut wide = Vec::new();
        let mut narrow = Vec::new();
        let mut scales = Vec::new();
        for which in 0..2 {
            let scale: Vec<f32> = (0..rows * heads).map(|i| ((i % 5 + which) as f32 - 2.0).exp2()).collect();
            let codes: Vec<u8> = (0..pages * size * heads * dim)
                .map(|i| (i * 2_654_435_761 + which >> 7) as u8 & 0x87 | 0x38)
                .collect();
            let numbers: Vec<u16> = (codes.iter().enumerate())
                .map(|(i, code)| {
                    let at = row_of(i / (size * heads * dim)) * heads + i / dim % heads;
                    ((of_8_bits(*code) * scale[at]).to_bits() >> 16) as u16
                })
                .collect();
            wide.push(Buffer::from_slice(&numbers)?);
            narrow.push(Buffer::from_slice(&codes)?);
            scales.push(Buffer::from_slice(&scale)?);
        }
        let after = &store.lengths()[1];
        let table = store.table.as_ref().map(|(numbers, width)| {
            let layout = Layout::contiguous([numbers.len() / width, *width], DType::I32);
            // SAFETY: as in Store.
            unsafe { Tensor::from_raw_parts(numbers.data(), layout) }
        });
        // SAFETY: all are freed after a wait for the device, and have these shapes.
        let cache = |[k, v]: [*mut std::os::raw::c_void; 2], dtype| unsafe {
            let layout = Layout::contiguous(store.shape, dtype);
            let [k, v] = [k, v].map(|x| TensorMut::from_raw_parts(x, layout));
            match table {
                Some(table) => KvCache::paged(k, v, table),
                None => KvCache::new(k, v),
            }
        };
        let [k_scale, v_scale] = [&scales[0], &scales[1]].map(|x| {
            // SAFETY: the same.
            unsafe { Tensor::from_raw_parts(x.data(), Layout::contiguous([rows, heads], DType::F32)) }
        });
        let plain = cache([wide[0].data(), wide[1].data()], DType::BF16);
        let scaled =
            cache([narrow[0].data(), narrow[1].data()], DType::F8E4M3Fnuz).scaled(by, k_scale, v_scale);
        let mut found = Vec::new();
        for cache in [&plain, &scaled] {
            let mut x = data.batch();
            run(flash_attn_with_kvcache(&x.q, cache, after, problem.scale, false)?, &mut x.out)?;
            found.push(data.out()?);
        }
        let largest = found[0].iter().fold(0f32, |a, b| a.max(b.abs()));
        assert!(largest > 0.0);
        for (a, b) in found[0].iter().zip(&found[1]) {
            assert!((a - b).abs() <= largest / 64.0, "{a} {b} {largest}");
        }
    }
    Ok(())
}

#[test]
fn what_does_not_match_is_refused() -> Outcome {
    let problem = problem(DType::BF16, 64, &[(3, 40), (3, 40)]);
    let mut data = Data::new(problem.clone(), 8)?;
    let store = Store::new(&problem, Some(16))?;
    let other = Store::new(&Problem { dim: 32, ..problem.clone() }, Some(16))?;
    let one = Store::new(&Problem { lengths: vec![(3, 40)], ..problem.clone() }, Some(16))?;
    let longer = Store::new(&Problem { lengths: vec![(3, 90); 2], ..problem.clone() }, Some(16))?;
    let mut x = data.batch();
    let refused = |result: Result<()>, words: &[&str]| {
        let error = result.expect_err("an error");
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        for word in words {
            assert!(error.message().contains(word), "{word:?} is not in {:?}", error.message());
        }
    };
    let attend = |store: &Store, lengths: &Store| {
        flash_attn_with_kvcache(&x.q, &store.cache(), &lengths.lengths()[1], 1.0, false).map(drop)
    };
    refused(attend(&other, &store), &["k_cache: got shape", "with the head size of q"]);
    refused(attend(&one, &store), &["block_table: got shape [1, 4]", "expected [2, 4]"]);
    refused(attend(&store, &one), &["cache_seqlens: got shape [1], expected [2]"]);
    refused(attend(&store, &longer), &["cache_seqlens: got a longest of 90", "at most 64"]);
    let append = flash_attn_kv_append(&mut other.cache(), &x.k, &x.v, &store.lengths()[0]).map(drop);
    refused(append, &["k_cache: got shape", "of what is new"]);
    let three = store.before.data();
    // SAFETY: only the shapes are looked at, before an error.
    unsafe {
        let elements = Tensor::from_raw_parts(three, Layout::contiguous([3], DType::I32));
        let cache = Store::cache(&store).cache_batch_idx(elements);
        let call = flash_attn_with_kvcache(&x.q, &cache, &store.lengths()[1], 1.0, false).map(drop);
        refused(call, &["cache_batch_idx: got shape [3], expected [2] (batch)"]);
        for (by, shape, dtype, words) in [
            (ScaledBy::Sequence, [3, 2], DType::F32, "k_scale: got shape [3, 2], expected [2, 2]"),
            (ScaledBy::Page, [2, 2], DType::F32, "k_scale: got shape [2, 2], expected [7, 2]"),
            (ScaledBy::Page, [7, 2], DType::F16, "k_scale: got F16, expected F32"),
        ] {
            let scale = Tensor::from_raw_parts(three, Layout::contiguous(shape, dtype));
            let cache = Store::cache(&store).scaled(by, scale, scale);
            let call = flash_attn_with_kvcache(&x.q, &cache, &store.lengths()[1], 1.0, false).map(drop);
            refused(call, &[words]);
        }
    }
    // The library's own refusals.
    let (cache, [before, after]) = (store.cache(), store.lengths());
    let mut call = flash_attn_with_kvcache(&x.q, &cache, &after, 1.0, false)?.num_splits(2);
    refused(call.run(&mut x.out, &mut Workspace::none(), &Stream::NULL), &["workspace"]);
    drop(call);
    let mut cache = store.cache();
    let append = flash_attn_kv_append(&mut cache, &x.k, &x.v, &before)?;
    refused(
        append.query(&x.q, &mut x.out).map(drop),
        &["q: got shape [2, 3, 4, 64]", "expected [2, 40, 4, 64]"],
    );
    assert!(data.untouched()?);
    Ok(())
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! 16-bit floats, and random numbers.
use fmha_rocm::DType;

/// A NaN of either 16-bit type: what no output may keep.
pub const NAN: u16 = 0x7fff;

pub fn widen(dtype: DType, bits: u16) -> f32 {
    match dtype {
        DType::BF16 => f32::from_bits(u32::from(bits) << 16),
        DType::F16 => widen_f16(bits),
        other => panic!("{other:?} is no 16-bit float"),
    }
}

fn widen_f16(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => mantissa * 2f32.powi(-24),
        31 if mantissa == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + mantissa) * 2f32.powi(exponent - 25),
    }
}

/// The nearest number of a type, by trying both neighbours: plain, and no second opinion about ties.
pub fn narrow(dtype: DType, x: f32) -> u16 {
    let truncated = match dtype {
        DType::BF16 => (x.to_bits() >> 16) as u16,
        _ => {
            let exponent = (x.abs().max(f32::MIN_POSITIVE).log2().floor() as i32).clamp(-14, 15);
            let steps = (x.abs() * 2f32.powi(10 - exponent)) as u16; // below 2048: 10 bits and the leading one
            let biased = (exponent + 14) as u16; // the leading one adds the missing one, or none if subnormal
            u16::from(x < 0.0) << 15 | ((biased << 10) + steps)
        }
    };
    let distance = |bits| (widen(dtype, bits) - x).abs();
    if distance(truncated + 1) < distance(truncated) {
        truncated + 1
    } else {
        truncated
    }
}

/// Numbers that the type has, and their bits.
pub fn round_all(dtype: DType, numbers: Vec<f32>) -> (Vec<f32>, Vec<u16>) {
    let bits: Vec<u16> = numbers.into_iter().map(|x| narrow(dtype, x)).collect();
    (bits.iter().map(|x| widen(dtype, *x)).collect(), bits)
}

/// A linear congruential generator (Knuth's MMIX).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// From 0 to below 1.
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    /// About normal: sums of four uniform numbers, of variance one.
    pub fn normal(&mut self, count: usize) -> Vec<f32> {
        let mut one = || (0..4).map(|_| self.uniform() - 0.5).sum::<f32>() * 3f32.sqrt();
        (0..count).map(|_| one()).collect()
    }
}

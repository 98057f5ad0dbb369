// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 16-bit floats of the tests.
use fmha_rocm::DType;

#[allow(dead_code)]
#[path = "common/numbers.rs"]
mod numbers;
use numbers::{narrow, widen};

#[test]
fn narrowing_undoes_widening() {
    for dtype in [DType::F16, DType::BF16] {
        for bits in (0..=u16::MAX).filter(|bits| widen(dtype, *bits).is_finite()) {
            if bits & 0x7fff != 0 {
                assert_eq!(narrow(dtype, widen(dtype, bits)), bits, "{dtype:?} {bits:#x}");
            }
        }
    }
    assert_eq!(widen(DType::F16, 0x3c00), 1.0);
    assert_eq!(widen(DType::F16, 0x0001), 2f32.powi(-24));
    assert_eq!(narrow(DType::F16, 1.0 + 2f32.powi(-11) + 2f32.powi(-20)), 0x3c01);
    assert_eq!(narrow(DType::BF16, -1.0 - 2f32.powi(-8) - 2f32.powi(-20)), 0xbf81);
}

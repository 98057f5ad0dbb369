// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapter for candle's ROCm backend, on stand-ins: candle's own crates cannot be had here. They have the
//! names and types that the adapter uses, and memory of the device.
use hip::Buffer;

#[allow(dead_code)]
#[path = "common/numbers.rs"]
mod numbers;

/// As far as the adapter needs it: `CustomOp3`, tensors of four dimensions, and the backend's storage.
mod candle_core {
    pub use super::rocm_backend;
    use rocm_backend::RocmStorage;
    use std::fmt;

    #[derive(Debug)]
    pub struct Error(pub String);

    impl Error {
        pub fn wrap(error: impl std::error::Error + Send + Sync + 'static) -> Self {
            Error(error.to_string())
        }
    }

    impl fmt::Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl std::error::Error for Error {}

    pub type Result<T> = std::result::Result<T, Error>;

    macro_rules! bail {
        ($($words:tt)*) => {
            return Err(crate::candle_core::Error(format!($($words)*)))
        };
    }
    pub(crate) use bail;

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Shape(pub [usize; 4]);

    impl Shape {
        pub fn dims4(&self) -> Result<(usize, usize, usize, usize)> {
            let [a, b, c, d] = self.0;
            Ok((a, b, c, d))
        }

        pub fn elem_count(&self) -> usize {
            self.0.iter().product()
        }
    }

    impl From<(usize, usize, usize, usize)> for Shape {
        fn from((a, b, c, d): (usize, usize, usize, usize)) -> Self {
            Shape([a, b, c, d])
        }
    }

    pub struct Layout {
        pub shape: Shape,
        pub stride: Vec<usize>,
        pub start_offset: usize,
    }

    impl Layout {
        pub fn shape(&self) -> &Shape {
            &self.shape
        }

        pub fn stride(&self) -> &[usize] {
            &self.stride
        }

        pub fn start_offset(&self) -> usize {
            self.start_offset
        }
    }

    pub struct CpuStorage;

    pub struct Tensor {
        pub storage: RocmStorage,
        pub layout: Layout,
    }

    impl Tensor {
        pub fn apply_op3<C: 'static + CustomOp3 + Send + Sync>(
            &self,
            a: &Self,
            b: &Self,
            op: C,
        ) -> Result<Self> {
            assert_eq!(op.name(), "flash-attn-rocm");
            let [q, k, v] = [self, a, b].map(|x| (&x.storage, &x.layout));
            let (storage, shape) = op.rocm_fwd(q.0, q.1, k.0, k.1, v.0, v.1)?;
            let [_, s, h, d] = shape.0;
            let layout = Layout { shape, stride: vec![s * h * d, h * d, d, 1], start_offset: 0 };
            Ok(Tensor { storage, layout })
        }
    }

    pub trait CustomOp3 {
        fn name(&self) -> &'static str;

        #[rustfmt::skip]
        fn cpu_fwd(
            &self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout,
        ) -> Result<(CpuStorage, Shape)>;

        #[rustfmt::skip]
        fn rocm_fwd(
            &self, _: &RocmStorage, _: &Layout, _: &RocmStorage, _: &Layout, _: &RocmStorage, _: &Layout,
        ) -> Result<(RocmStorage, Shape)>;
    }
}

pub mod rocm_backend {
    use super::candle_core::{Error, Result};
    use super::Buffer;
    use std::{marker::PhantomData, mem::size_of, os::raw::c_void, sync::Arc};

    pub struct SendSyncDeviceMemory<T> {
        pub bytes: Buffer<u8>,
        elements: PhantomData<T>,
    }

    impl<T> SendSyncDeviceMemory<T> {
        pub fn of(bytes: &[u8]) -> Result<Self> {
            Ok(SendSyncDeviceMemory {
                bytes: Buffer::from_slice(bytes).map_err(Error::wrap)?,
                elements: PhantomData,
            })
        }

        pub fn as_ptr(&self) -> *mut c_void {
            self.bytes.data()
        }

        /// # Safety
        /// The element must be one of the memory's.
        pub unsafe fn ptr_at(&self, element: usize) -> *mut c_void {
            self.as_ptr().cast::<u8>().wrapping_add(element * size_of::<T>()).cast()
        }
    }

    /// Elements of two bytes, which nothing here computes with.
    pub struct F16(pub [u8; 2]);
    pub struct BF16(pub [u8; 2]);

    pub enum RocmStorageSlice {
        U8(SendSyncDeviceMemory<u8>),
        F16(SendSyncDeviceMemory<F16>),
        BF16(SendSyncDeviceMemory<BF16>),
    }

    pub struct Stream(hip::Stream);

    impl Stream {
        pub fn as_raw(&self) -> *mut u8 {
            self.0.handle().cast()
        }
    }

    #[derive(Clone)]
    pub struct RocmDevice(Arc<Stream>);

    impl RocmDevice {
        pub fn new() -> Result<Self> {
            Ok(RocmDevice(Arc::new(Stream(hip::Stream::new().map_err(Error::wrap)?))))
        }

        pub fn alloc<T>(&self, elements: usize) -> Result<SendSyncDeviceMemory<T>> {
            SendSyncDeviceMemory::of(&vec![0xff; elements * size_of::<T>()])
        }

        pub fn stream(&self) -> &Stream {
            &self.0
        }
    }

    pub struct RocmStorage {
        pub slice: RocmStorageSlice,
        pub device: RocmDevice,
    }
}

include!("candle/adapter.rs");

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// Heads come first in memory, behind eight elements of nobody.
fn tensor(device: &RocmDevice, dtype: DType, [b, s, h, d]: [usize; 4]) -> Result<Tensor> {
    let (count, start_offset) = (b * s * h * d, 8);
    let (_, bits) =
        numbers::round_all(DType::BF16, numbers::Random::new(s as u64).normal(start_offset + count));
    let bytes: Vec<u8> = bits.into_iter().flat_map(u16::to_ne_bytes).collect();
    let slice = match dtype {
        DType::F16 => RocmStorageSlice::F16(SendSyncDeviceMemory::of(&bytes)?),
        DType::BF16 => RocmStorageSlice::BF16(SendSyncDeviceMemory::of(&bytes)?),
        _ => RocmStorageSlice::U8(SendSyncDeviceMemory::of(&bytes)?),
    };
    let storage = RocmStorage { slice, device: device.clone() };
    let stride = vec![h * s * d, d, s * d, 1];
    Ok(Tensor { storage, layout: Layout { shape: Shape([b, s, h, d]), stride, start_offset } })
}

fn bytes(tensor: &Tensor) -> &Buffer<u8> {
    match &tensor.storage.slice {
        RocmStorageSlice::U8(x) => &x.bytes,
        RocmStorageSlice::F16(x) => &x.bytes,
        RocmStorageSlice::BF16(x) => &x.bytes,
    }
}

/// The bits of a direct call, which other tests judge against f64.
#[test]
fn the_adapter_gives_what_a_direct_call_does() -> Outcome {
    hip::runtime()?;
    let device = RocmDevice::new()?;
    for (dtype, causal) in [(DType::BF16, true), (DType::BF16, false), (DType::F16, true)] {
        let [q, k, v] = [[2, 30, 4, 64], [2, 50, 2, 64], [2, 50, 2, 64]].map(|x| tensor(&device, dtype, x));
        let (q, k, v) = (q?, k?, v?);
        let got = flash_attn(&q, &k, &v, 0.125, causal)?;
        assert_eq!(got.layout.shape, Shape([2, 30, 4, 64]));
        let want = device.alloc::<rocm_backend::F16>(2 * 30 * 4 * 64)?;
        // SAFETY: memory of these shapes, which is freed after a wait for the device.
        unsafe {
            let view = |x: &Tensor| {
                let strides = [x.layout.stride[0], x.layout.stride[1], x.layout.stride[2], 1];
                let layout = fmha_rocm::Layout { shape: x.layout.shape.0, strides, dtype, device: 0 };
                fmha_rocm::Tensor::from_raw_parts(bytes(x).data().cast::<u8>().add(16).cast(), layout)
            };
            let layout = fmha_rocm::Layout::contiguous([2, 30, 4, 64], dtype);
            let mut out = TensorMut::from_raw_parts(want.as_ptr(), layout);
            fmha_rocm::flash_attn(&view(&q), &view(&k), &view(&v), 0.125, causal)?
                .run(&mut out, &Stream::NULL)?;
        }
        assert_eq!(bytes(&got).to_vec()?, want.bytes.to_vec()?);
        assert!(want.bytes.to_vec()?.iter().any(|byte| *byte != 0xff));
    }
    Ok(())
}

#[test]
fn the_adapter_passes_errors_on() -> Outcome {
    hip::runtime()?;
    let device = RocmDevice::new()?;
    let made = |dtype, shape| tensor(&device, dtype, shape);
    let (q, k) = (made(DType::BF16, [1, 30, 4, 64])?, made(DType::BF16, [1, 30, 3, 64])?);
    let said = |result: Result<Tensor>| result.err().expect("an error").to_string();
    assert!(said(flash_attn(&q, &k, &k, 0.125, true)).contains("nhead_q"));
    let other = made(DType::F32, [1, 30, 4, 64])?;
    assert!(said(flash_attn(&q, &other, &other, 0.125, true)).contains("expected q, k and v of F16"));
    let on_the_cpu = FlashAttn { softmax_scale: 1.0, window: (None, None) }.cpu_fwd(
        &CpuStorage,
        &q.layout,
        &CpuStorage,
        &q.layout,
        &CpuStorage,
        &q.layout,
    );
    assert!(on_the_cpu.err().expect("an error").to_string().contains("expected a ROCm device"));
    Ok(())
}

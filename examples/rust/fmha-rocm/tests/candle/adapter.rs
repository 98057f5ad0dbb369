// SPDX-License-Identifier: MIT OR Apache-2.0
use candle_core::rocm_backend::{RocmDevice, RocmStorage, RocmStorageSlice, SendSyncDeviceMemory};
use candle_core::{bail, CpuStorage, CustomOp3, Error, Layout, Result, Shape, Tensor};
use fmha_rocm::{flash_attn_windowed, DType, Stream, TensorMut};

struct FlashAttn {
    softmax_scale: f32,
    window: (Option<usize>, Option<usize>),
}

impl FlashAttn {
    fn run<T>(
        &self,
        device: &RocmDevice,
        inputs: [(&SendSyncDeviceMemory<T>, &Layout); 3],
        dtype: DType,
        slice: fn(SendSyncDeviceMemory<T>) -> RocmStorageSlice,
    ) -> Result<(RocmStorage, Shape)> {
        let mut views = Vec::with_capacity(3);
        for (memory, layout) in inputs {
            let (b, s, h, d) = layout.shape().dims4()?;
            let strides = layout.stride().try_into().map_err(Error::wrap)?;
            let layout_in_elements = fmha_rocm::Layout { shape: [b, s, h, d], strides, dtype, device: 0 };
            // SAFETY: candle keeps the tensors until the stream is past the call, and writes none of them.
            views.push(unsafe {
                let data = memory.ptr_at(layout.start_offset());
                fmha_rocm::Tensor::from_raw_parts(data.cast(), layout_in_elements)
            });
        }
        let ((b, s, h, _), (.., d)) = (inputs[0].1.shape().dims4()?, inputs[2].1.shape().dims4()?);
        let shape = Shape::from((b, s, h, d));
        let memory = device.alloc::<T>(shape.elem_count())?;
        let layout = fmha_rocm::Layout::contiguous([b, s, h, d], dtype);
        // SAFETY: new memory of this shape, and the stream on which candle enqueues what reads it.
        let (mut out, stream) = unsafe {
            let stream = Stream::from_raw(device.stream().as_raw().cast());
            (TensorMut::from_raw_parts(memory.as_ptr().cast(), layout), stream)
        };
        let (left, right) = self.window;
        flash_attn_windowed(&views[0], &views[1], &views[2], self.softmax_scale, left, right)
            .and_then(|mut call| call.run(&mut out, &stream))
            .map_err(Error::wrap)?;
        Ok((RocmStorage { slice: slice(memory), device: device.clone() }, shape))
    }
}

impl CustomOp3 for FlashAttn {
    fn name(&self) -> &'static str {
        "flash-attn-rocm"
    }

    #[rustfmt::skip]
    fn cpu_fwd(
        &self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        bail!("flash-attn-rocm: got tensors on the CPU, expected a ROCm device")
    }

    #[rustfmt::skip]
    fn rocm_fwd(
        &self, q: &RocmStorage, q_l: &Layout, k: &RocmStorage, k_l: &Layout, v: &RocmStorage, v_l: &Layout,
    ) -> Result<(RocmStorage, Shape)> {
        use RocmStorageSlice::{BF16, F16};
        match (&q.slice, &k.slice, &v.slice) {
            (F16(a), F16(b), F16(c)) => self.run(&q.device, [(a, q_l), (b, k_l), (c, v_l)], DType::F16, F16),
            (BF16(a), BF16(b), BF16(c)) => self.run(&q.device, [(a, q_l), (b, k_l), (c, v_l)], DType::BF16, BF16),
            _ => bail!("flash-attn-rocm: expected q, k and v of F16, or all of BF16"),
        }
    }
}

pub fn flash_attn(q: &Tensor, k: &Tensor, v: &Tensor, softmax_scale: f32, causal: bool) -> Result<Tensor> {
    let window = (None, if causal { Some(0) } else { None });
    q.apply_op3(k, v, FlashAttn { softmax_scale, window })
}

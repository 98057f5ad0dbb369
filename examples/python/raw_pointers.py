# SPDX-License-Identifier: MIT OR Apache-2.0
"""The C function on raw pointers: memory and a stream of hip-python, strides of ours, log-sum-exp.

A runtime with an allocator of its own works so: `fmha_fwd` takes addresses, and owns and waits for nothing.
"""

from __future__ import annotations

import numpy as np
from check import finish, is_right, ok, say_what_runs
from rocm.bindings import hip

import pyfa_rocm as fa

BATCH, SEQLEN, HEADS, HDIM = 2, 100, 4, 128


def parameters(qkv: int, o: int, lse: int) -> fa.FwdParams:
    """Q, K and V in one tensor (batch, seqlen, 3, nhead, hdim), as a single projection leaves them."""
    row = 3 * HEADS * HDIM  # elements from a token to the next

    def part(number: int) -> fa.Strided:
        return fa.Strided(qkv + number * HEADS * HDIM * 2, SEQLEN * row, row, HDIM)  # address in bytes

    return fa.FwdParams(
        dtype="bfloat16", batch=BATCH, seqlen_q=SEQLEN, seqlen_k=SEQLEN, nhead_q=HEADS, nhead_k=HEADS,
        hdim_q=HDIM, hdim_v=HDIM, softmax_scale=HDIM**-0.5, mask="causal",
        q=part(0), k=part(1), v=part(2),
        o=fa.Strided(o, SEQLEN * HEADS * HDIM, HEADS * HDIM, HDIM),
        lse=fa.Lse(lse, HEADS * SEQLEN, SEQLEN),
    )  # fmt: skip


def main() -> bool:
    """Copy in, attend, copy out, all on one stream; wait once."""
    say_what_runs()  # chooses the HIP runtime, for hip-python as well: before hip-python's first call
    rng = np.random.default_rng(1)
    qkv = rng.standard_normal((BATCH, SEQLEN, 3, HEADS, HDIM), np.float32).astype(fa.bfloat16)
    o = np.empty((BATCH, SEQLEN, HEADS, HDIM), fa.bfloat16)
    lse = np.empty((BATCH, HEADS, SEQLEN), np.float32)
    stream = ok(hip.hipStreamCreate())
    on_device = [int(ok(hip.hipMalloc(x.nbytes))) for x in (qkv, o, lse)]
    try:
        params = parameters(*on_device)
        kernel = fa.fmha_fwd_kernel(params)
        print(f"kernel {kernel.name} for {kernel.arch}, sha256 {kernel.sha256[:16]}")
        to_device, to_host = hip.hipMemcpyKind.hipMemcpyHostToDevice, hip.hipMemcpyKind.hipMemcpyDeviceToHost
        ok(hip.hipMemcpyAsync(on_device[0], qkv.ctypes.data, qkv.nbytes, to_device, stream))
        fa.fmha_fwd(params, int(stream))  # returns at once
        ok(hip.hipMemcpyAsync(o.ctypes.data, on_device[1], o.nbytes, to_host, stream))
        ok(hip.hipMemcpyAsync(lse.ctypes.data, on_device[2], lse.nbytes, to_host, stream))
        ok(hip.hipStreamSynchronize(stream))
    finally:
        for address in on_device:
            ok(hip.hipFree(address))
        ok(hip.hipStreamDestroy(stream))
    q, k, v = (qkv[:, :, number] for number in range(3))
    return is_right("strided, on a stream", q, k, v, o, lse, (-1, 0))


if __name__ == "__main__":
    finish(main())

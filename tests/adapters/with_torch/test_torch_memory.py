# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where pyfa_rocm.torch computes: on host memory that is lent to the software device, or on a card's stream.

There is no card here. Tensors that claim to be on one, and whose memory is the software device's own, take
the path of a ROCm build's tensors, onto a stream that is being captured.
"""

from __future__ import annotations

import ctypes
import threading
from functools import partial

import numpy as np
import pytest
import torch
from adapters import torch_card
from adapters.torch_card import CurrentStream, on_card, replayed
from adapters.with_torch.torch_cases import is_known, pinned, to_numpy, to_torch
from strict import forgiven

import pyfa_rocm
from pyfa_rocm import HipError, InvalidArgumentError
from pyfa_rocm import torch as p
from pyfa_rocm._call.call import Call
from pyfa_rocm._call.params import Options
from pyfa_rocm._call.plan import make
from pyfa_rocm._runtime import hip, host_memory
from pyfa_rocm._runtime.hip import Runtime
from pyfa_rocm._runtime.tensor import layout_of

card = torch_card.card


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(torch.bfloat16)


def test_views_of_one_storage() -> None:
    """q, k and v of a packed projection: the memory is registered once, and given back."""
    qkv = randn(2, 70, 3, 2, 128)
    q, k, v = qkv.unbind(2)
    want = p.flash_attn_func(q.contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(p.flash_attn_func(q, k, v), want)
    assert not is_known(qkv.data_ptr())


def test_layouts_are_not_copied() -> None:
    """(b, h, s, d) as a view, and keys that batches share by a stride of 0: what the device sees is them."""
    q, k = randn(2, 4, 50, 128).transpose(1, 2), randn(1, 60, 1, 128).expand(2, -1, 2, -1)
    want = p.flash_attn_func(q.contiguous(), k.contiguous(), k.contiguous())
    assert torch.equal(p.flash_attn_func(q, k, k), want)


def test_memory_is_given_back_after_an_error() -> None:
    q = randn(1, 16, 2, 128)
    with pytest.raises(InvalidArgumentError, match="data"):
        p.flash_attn_func(q.flatten()[4:-252].view(1, 15, 2, 128), q[:, :15], q[:, :15])
    assert not is_known(q.data_ptr())
    assert not is_known(q.data_ptr() + 8)


def test_memory_is_given_back_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that runs too long is stopped: the call says so."""
    q, at = randn(50, 2, 128), torch.tensor([0, 20, 50], dtype=torch.int32)
    monkeypatch.setenv("FMHA_EMU_MAX_INSTRUCTIONS", "10")
    with pytest.raises(HipError, match="hipErrorLaunchTimeOut"), forgiven():
        p.flash_attn_varlen_func(q, q, q, at, at, 30, 30)
    monkeypatch.undo()
    assert not any(is_known(x.data_ptr()) for x in (q, at))
    assert p.flash_attn_varlen_func(q, q, q, at, at, 30, 30).isfinite().all()


def test_memory_that_the_device_knows_stays_known() -> None:
    host = np.ones((1, 16, 2, 128), np.float16)
    q = to_torch(host)
    with pinned(host):
        p.flash_attn_func(q, q, q)
        assert is_known(q.data_ptr())
    assert not is_known(q.data_ptr())


def test_memory_that_the_device_knows_in_part() -> None:
    host = np.ones((2, 16, 2, 128), np.float16)
    q = to_torch(host)
    with pinned(host[:1]), pytest.raises(HipError, match="hipHostRegister"):
        p.flash_attn_func(q, q, q)
    assert torch.equal(p.flash_attn_func(q, q, q), q)


def test_merged_ranges() -> None:
    assert host_memory._merged([(100, 8), (0, 40), (32, 8), (20, 40), (200, 0), (104, 4)]) == [
        (0, 60),
        (100, 8),
    ]


def test_what_is_lent() -> None:
    """From the first element to the last, a gap at the end not included; nothing of what has no elements."""

    def extents(q: tuple[int, ...], q_strides: tuple[int, ...], batch: int) -> list[tuple[int, int]]:
        shape, strides = (batch, 5, 2, 64), (0, 128, 64, 1)
        layout, kv = layout_of(q, q_strides, "float16", 0), layout_of(shape, strides, "float16", 0)
        plan = make({}, (), Call(q=layout, k=kv, v=kv, options=Options()))
        return plan.extents(1 << 20, 1 << 21, 1 << 22, 1 << 23, 0, None)

    assert extents((2, 3, 2, 64), (1024, 256, 72, 1), 2) == [
        (1 << 20, 2 * (1024 + 2 * 256 + 72 + 64)),
        (1 << 21, 2 * 5 * 128),
        (1 << 22, 2 * 5 * 128),
        (1 << 23, 2 * 2 * 3 * 2 * 64),
    ]
    assert extents((0, 3, 2, 64), (384, 128, 64, 1), 0) == []


def test_threads_share_memory() -> None:
    """Keys and values are one storage for all."""
    k, v = randn(2, 1, 64, 2, 128)
    qs = [randn(1, 40, 2, 128) for _ in range(4)]
    wants = [p.flash_attn_func(q, k, v) for q in qs]
    results: list[list[torch.Tensor]] = [[] for _ in qs]

    def work(index: int) -> None:
        results[index] += [p.flash_attn_func(qs[index], k, v) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(qs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(got) == 5 for got in results)
    assert all(torch.equal(x, want) for got, want in zip(results, wants, strict=True) for x in got)


def test_a_cpu_tensor_where_there_is_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip, "runtime", lambda: Runtime("/opt/rocm/lib/libamdhip64.so.7", False, "found"))
    q = randn(1, 16, 2, 128)
    with pytest.raises(
        InvalidArgumentError, match=r"q: got a CPU tensor, expected one on a ROCm device.*rocm/lib"
    ):
        p.flash_attn_func(q, q, q)


def test_card_dense(card: CurrentStream) -> None:
    """One kernel on the current stream, of what the tensors point to; nothing waits, or it would fail."""
    q, k = randn(2, 50, 4, 128), randn(2, 70, 2, 128)
    want = p.flash_attn_func(q, k, k, causal=True, return_lse=True)
    q_card, k_card = on_card(q), on_card(k)
    call = partial(p.flash_attn_func, q_card, k_card, k_card, causal=True, return_lse=True)
    out, lse = replayed(card, call)
    assert out.device == torch.device("cuda:0")
    np.testing.assert_array_equal(out.array.to_numpy(), to_numpy(want[0]))
    np.testing.assert_array_equal(lse.array.to_numpy(), to_numpy(want[1]))


def test_card_varlen_into_a_tensor(card: CurrentStream) -> None:
    q, at = randn(50, 2, 128), torch.tensor([0, 20, 50], dtype=torch.int32)
    want = p.flash_attn_varlen_func(q, q, q, at, at, 30, 30)
    q_card, at_card, out = on_card(q), on_card(at), on_card(torch.zeros_like(q))
    replayed(
        card, lambda: p.flash_attn_varlen_func(q_card, q_card, q_card, at_card, at_card, 30, 30, out=out)
    )
    np.testing.assert_array_equal(out.array.to_numpy(), to_numpy(want))


def test_card_varlen(card: CurrentStream) -> None:
    """Rows of no sequence are cleared on the stream too, anew whenever it is replayed."""
    q, at = randn(50, 2, 128), torch.tensor([0, 20, 40], dtype=torch.int32)
    want, want_lse = p.flash_attn_varlen_func(q, q, q, at, at, 20, 20, return_lse=True)
    q_card, at_card = on_card(q), on_card(at)
    out, lse = replayed(
        card,
        lambda: p.flash_attn_varlen_func(q_card, q_card, q_card, at_card, at_card, 20, 20, return_lse=True),
    )
    np.testing.assert_array_equal(out.array.to_numpy(), to_numpy(want))
    np.testing.assert_array_equal(lse.array.to_numpy(), to_numpy(want_lse))
    assert not want[40:].any()
    assert want_lse[:, 40:].isneginf().all()


def test_a_card_of_another_maker(card: CurrentStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    q = on_card(randn(1, 16, 2, 128))
    with pytest.raises(InvalidArgumentError, match="expected one on an AMD GPU"):
        p.flash_attn_func(q, q, q)


def test_cpu_and_card(card: CurrentStream) -> None:
    q = randn(1, 16, 2, 128)
    with pytest.raises(InvalidArgumentError, match="v: got a tensor on cpu, expected cuda:0 as q"):
        p.flash_attn_func(on_card(q), on_card(q), q)


def test_card_backward_on_another_stream(card: CurrentStream) -> None:
    """Gradients are computed on the stream that is current then, and wait for no other: not for forward's."""
    q, k, dout = randn(2, 50, 4, 128), randn(2, 70, 2, 128), randn(2, 50, 4, 128)
    out, lse = p.flash_attn_func(q, k, k, causal=True, return_lse=True)
    want = torch.ops.pyfa_rocm.fmha_bwd(dout, q, k, k, out, lse, causal=True)[:3]
    of_forward, of_backward = card.stream, pyfa_rocm.Stream()
    runtime = ctypes.CDLL(pyfa_rocm.runtime().path)
    q_card, k_card, dout_card = (on_card(x) for x in (q, k, dout))
    out_card, lse_card = p.flash_attn_func(q_card, k_card, k_card, causal=True, return_lse=True)
    of_forward.synchronize()
    for held in (of_forward, of_backward):
        grads = [on_card(torch.zeros_like(x)) for x in (q, k, k)]
        card.stream = of_backward
        assert not runtime.fmha_emu_stream_hold(ctypes.c_void_p(held.handle))
        torch.ops.pyfa_rocm.fmha_bwd_out(
            dout_card, q_card, k_card, k_card, out_card, lse_card, *grads, causal=True
        )
        of_forward.synchronize() if held is of_backward else of_backward.synchronize()
        written = [ctypes.string_at(x.array.data, x.array.nbytes).strip(b"\0") != b"" for x in grads]
        assert written == [held is of_forward] * 3
        assert not runtime.fmha_emu_stream_release(ctypes.c_void_p(held.handle))
        of_backward.synchronize()
        for got, gradient in zip(grads, want, strict=True):
            np.testing.assert_array_equal(got.array.to_numpy(), to_numpy(gradient))
    card.stream = of_forward
    of_backward.close()

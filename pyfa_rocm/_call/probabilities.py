# SPDX-License-Identifier: MIT OR Apache-2.0
"""The probabilities of a call, for tests: flash-attention's `return_attn_probs`.

The kernels do not store them. They are computed here on the host, in float64, from the inputs and from what
the kernel did store: its log-sum-exp, and the random bytes of its dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.numbers import can_drop
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import FwdParams, Lse, RandVal
from pyfa_rocm._call.plan import Plan
from pyfa_rocm._call.results import packed_results
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.array import DeviceArray, copy_to_host
from pyfa_rocm.fmha import fmha_fwd

__all__ = ["keep_at_most", "random_bytes", "randval_at", "run_with_probabilities", "visible"]

Array = npt.NDArray[Any]


def run_with_probabilities(
    plan: Plan, q: Any, k: Any, v: Any, out: Any, to: Any, optional: OptionalArguments | None, handle: int
) -> Any:
    """Run a call that its plan has asked for, and return (out, lse, S_dmask); waits for the device."""
    p = plan.params_at(q.address, k.address, v.address, optional)
    assert plan.lse is not None
    assert plan.s_dmask is not None
    if plan.packed:
        to, lse = packed_results(plan.o, plan.lse, to, handle)
    else:
        to = DeviceArray.allocate(plan.o, handle) if to is None else to
        lse = DeviceArray.allocate(plan.lse, handle)
    assert lse is not None
    out = to if out is None else out
    randval = None
    if (layout := random_bytes(plan)) is not None:
        randval = DeviceArray.allocate(layout, handle)
        p = replace(p, randval=randval_at(layout, randval.address))
    workspace = None
    if plan.workspace is not None:
        workspace = DeviceArray.allocate(plan.workspace, handle)
        p = replace(p, workspace=workspace.address, workspace_bytes=plan.workspace.shape[0])
    fmha_fwd(replace(p, o=p.o._replace(data=to.address), lse=_at(p.lse, lse.address)), handle)
    arrays = {} if optional is None else optional.arrays
    tensors = {"q": q, "k": k, "lse": lse, "randval": randval, **arrays}
    host = {name: copy_to_host(x.address, x.layout) for name, x in tensors.items() if x is not None}
    s_dmask = np.zeros(plan.s_dmask, np.float32)
    for batch, part in enumerate(_sequences(p, host)):
        for head in range(p.nhead_q):
            rows, columns = part["q"].shape[0], part["k"].shape[0]
            s_dmask[batch, head, :rows, :columns] = _signed_probabilities(p, part, head)
    return out, lse, DeviceArray.from_numpy(s_dmask, plan.o.device)


def keep_at_most(p_drop: float) -> float:
    """Return the largest random byte that is kept, worked out in float32 as the library does."""
    return float(np.floor(np.float32(1.0 - float(np.float32(p_drop))) * np.float32(255)))


def random_bytes(plan: Plan) -> Layout | None:
    """Return the layout of the random bytes of a call that asks for its probabilities; None: all are kept."""
    p = plan.params
    if plan.lse is None or not can_drop(p.p_drop):
        return None
    return contiguous((*plan.lse.shape, p.seqlen_k), "uint8", plan.o.device)


def randval_at(layout: Layout, address: int) -> RandVal:
    """Return random bytes as the C ABI describes them."""
    strides = layout.strides[:-1]
    return RandVal(address, *([0] * (3 - len(strides))), *strides)


def _at(lse: Lse | None, address: int) -> Lse | None:
    return None if lse is None else lse._replace(data=address)


def _sequences(p: FwdParams, host: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield the arrays of one sequence after the other: q, k (seqlen, nhead, hdim), the others by head."""
    by_head = [name for name in ("lse", "randval", "bias") if name in host]
    for batch in range(p.batch):
        part: dict[str, Array] = {}
        if "alibi_slopes" in host:
            slopes = host["alibi_slopes"]
            part["alibi_slopes"] = slopes[batch] if slopes.ndim == 2 else slopes
        if not p.cu_seqlens_q:
            for name in ("q", "k", *by_head):
                part[name] = host[name][batch if len(host[name]) > 1 else 0]
        else:
            rows, columns = (_range(host, side, batch) for side in "qk")
            part |= {"q": host["q"][rows], "k": host["k"][columns]}
            for name in by_head:
                whole = host[name]
                part[name] = whole[:, rows] if whole.shape[1] > 1 or name != "bias" else whole
        yield part


def _range(host: dict[str, Array], side: str, batch: int) -> slice:
    """Return the rows in use of a packed sequence."""
    start, end = (int(n) for n in host[f"cu_seqlens_{side}"][batch : batch + 2])
    used = host.get(f"seqused_{side}")
    return slice(start, end if used is None else start + int(used[batch]))


def _signed_probabilities(p: FwdParams, part: dict[str, Array], head: int) -> Array:
    """Return the probabilities of one head, with the sign bit set where one was dropped."""
    q = part["q"][:, head].astype(np.float64)
    k = part["k"][:, head // (p.nhead_q // p.nhead_k)].astype(np.float64)
    scores = p.softmax_scale * (p.q_descale or 1.0) * (p.k_descale or 1.0) * (q @ k.T)
    if p.softcap:
        scores = p.softcap * np.tanh(scores / p.softcap)
    if "bias" in part:
        bias = part["bias"][head if len(part["bias"]) > 1 else 0]
        scores = scores + bias[..., : len(k)].astype(np.float64)
    alignment = 0 if p.mask.endswith("top_left") else len(k) - len(q)
    distance = np.arange(len(k))[None, :] - (np.arange(len(q))[:, None] + alignment)
    if "alibi_slopes" in part:
        scores = scores - float(part["alibi_slopes"][head]) * np.abs(distance)
    lse = part["lse"][head].astype(np.float64)[:, None]
    seen = visible(p, distance) & (lse > -np.inf)
    result = np.exp(np.where(seen, scores - np.where(lse > -np.inf, lse, 0.0), -np.inf))
    if "randval" not in part:
        return np.asarray(result)
    dropped = seen & (part["randval"][head][:, : len(k)] > keep_at_most(p.p_drop))
    return np.where(dropped, -result, result)


def visible(p: FwdParams, distance: Any) -> Any:
    """Return which keys each query sees; `distance` is that of the key from the query's own column.

    It is an array of NumPy's or torch's, and so is the result.
    """
    left = right = 2**31 - 1
    if p.mask.startswith("causal"):
        right = 0
    if p.mask.startswith("window"):
        left, right = (x if x < p.seqlen_k else left for x in (p.window_left, p.window_right))
    return (-distance <= left) & (distance <= right)

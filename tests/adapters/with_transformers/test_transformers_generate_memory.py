# SPDX-License-Identifier: MIT OR Apache-2.0
"""How transformers' caches are read: on a card's stream and in a captured graph, and servers' layouts.

A card is what `torch_card` makes of the software device.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from adapters import torch_card
from adapters.with_torch.torch_cases import to_numpy
from capture import Graph, upload
from cases_judge import judge
from reference import attention, numerics_of

from pyfa_rocm import DeviceArray
from pyfa_rocm.transformers._decode import Keys, Scores, can_decode, decode

card = torch_card.card


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(5)


HEADS_Q, HEADS_K, HDIM = 8, 2, 64
SCORES = Scores(HDIM**-0.5, causal=True)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(torch.bfloat16)


def ints(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    """Judge a sequence: (seqlen, nhead, hdim) of each."""
    numerics = numerics_of("bfloat16", arch="gfx942")
    host_q, host_k, host_v = (to_numpy(x[None]) for x in (q, k, v))
    want = attention(host_q, host_k, host_v, causal=True, numerics=numerics)
    judge(want, to_numpy(out[None]), None)


def judged(q: torch.Tensor, out: torch.Tensor, keys: list[tuple[torch.Tensor, ...]]) -> None:
    """Judge packed queries: one for each sequence, but three for the last."""
    for b, (k, v) in enumerate(keys):
        rows = slice(b, b + 1 if b < len(keys) - 1 else None)
        check(q[rows], k, v, out[rows])


def test_captured_step(card: torch_card.CurrentStream) -> None:
    """A graph of a step over a static cache goes on as the sequences grow; what is beyond is NaN."""
    q, k, v = normal(2, 1, HEADS_Q, HDIM), normal(2, 64, HEADS_K, HDIM), normal(2, 64, HEADS_K, HDIM)
    k[:, 50:], v[:, 50:] = torch.nan, torch.nan
    k[1, :7], v[1, :7] = torch.nan, torch.nan
    on_card = tuple(torch_card.on_card(x) for x in (q, k, v))
    lengths, begins = torch_card.on_card(ints(20, 20)), torch_card.on_card(ints(0, 7))
    results: list[torch_card.CardTensor] = []

    def step(_: object) -> None:
        q, k, v = on_card
        results.append(decode(q, k, v, Keys(64, lengths=lengths, begins=begins), SCORES))

    with Graph(step, card.stream) as graph:
        for now in (20, 21, 33, 50):
            upload(lengths.array, np.array([now, now], np.int32))
            graph.replay()
            out = torch.from_numpy(results[-1].array.to_numpy().astype(np.float32)).to(torch.bfloat16)
            for b, begin in enumerate((0, 7)):
                check(q[b], k[b, begin:now], v[b, begin:now], out[b])


@pytest.mark.parametrize("where", ["host", "card"])
def test_cache_in_parts(request: pytest.FixtureRequest, where: str) -> None:
    """One so long that its keys are dealt to several compute units: in a workspace, which torch allocates."""
    q, k, v = normal(2, 2, HEADS_Q, HDIM), normal(2, 900, HEADS_K, HDIM), normal(2, 900, HEADS_K, HDIM)
    if where == "host":
        out = decode(q, k, v, Keys(900), SCORES)
    else:
        stream = request.getfixturevalue("card")
        torch.empty.pools[torch.uint8] = DeviceArray.empty((2**18,), "uint8")
        a, b, c = (torch_card.on_card(x) for x in (q, k, v))
        array = torch_card.replayed(stream, lambda: decode(a, b, c, Keys(900), SCORES)).array
        out = torch.from_numpy(array.to_numpy().astype(np.float32)).to(torch.bfloat16)
    for one in zip(q, k, v, out, strict=True):
        check(*one)


def test_blocks_of_keys_and_values() -> None:
    """As vLLM has them: (blocks, 2, block size, heads, head dim), and a table; all other blocks are NaN."""
    lengths, size = (37, 5, 64), 16
    cache = torch.full((20, 2, size, HEADS_K, HDIM), torch.nan, dtype=torch.bfloat16)
    table = torch.full((3, 6), -1, dtype=torch.int32)
    free = torch.randperm(20).tolist()
    for b, length in enumerate(lengths):
        for page in range(-(-length // size)):
            table[b, page] = free.pop()
            cache[table[b, page], :, : length - page * size] = normal(2, size, HEADS_K, HDIM)[
                :, : length - page * size
            ]
    q, (k, v) = normal(5, HEADS_Q, HDIM), cache.unbind(1)
    starts = ints(0, *np.cumsum(lengths).tolist())
    out = decode(q, k, v, Keys(64, starts=starts, table=table), SCORES, ints(0, 1, 2, 5), 3)
    listed = [table[b, : -(-n // size)].long() for b, n in enumerate(lengths)]
    judged(
        q,
        out,
        [(k[at].flatten(0, 1)[:n], v[at].flatten(0, 1)[:n]) for at, n in zip(listed, lengths, strict=True)],
    )


def test_pool_of_tokens() -> None:
    """As SGLang has them: keys and values apart, (tokens, heads, head dim), and a list; others are NaN."""
    lengths = (37, 5, 64)
    k, v = (torch.full((200, HEADS_K, HDIM), torch.nan, dtype=torch.bfloat16) for _ in range(2))
    tokens = torch.randperm(200)[: sum(lengths)]
    k[tokens], v[tokens] = normal(sum(lengths), HEADS_K, HDIM), normal(sum(lengths), HEADS_K, HDIM)
    tokens[5] = tokens[40]  # shared, as a common prefix is
    q, starts = normal(5, HEADS_Q, HDIM), ints(0, *np.cumsum(lengths).tolist())
    keys = Keys(64, starts=starts, tokens=tokens.int())
    out = decode(q, k[:, None], v[:, None], keys, SCORES, ints(0, 1, 2, 5), 3)
    judged(q, out, [(k[at], v[at]) for at in tokens.split(lengths)])


def test_what_cannot_be_read_in_place() -> None:
    """It goes to the forward kernels: rows that are not whole 16 bytes, other types, gradients, dropout."""
    x = normal(2, 1, HEADS_Q, HDIM)
    odd = normal(2, 1, HEADS_Q, HDIM + 4)[..., :HDIM]
    shifted = normal(2 * HEADS_Q * HDIM + 4)[4:].view(2, 1, HEADS_Q, HDIM)
    assert can_decode(x, x, x, 0.0)
    for k in (odd, shifted, x.mT.contiguous().mT, normal(2, 1, HEADS_Q, 520), normal(2, 1, HEADS_Q, 36)):
        assert not can_decode(x, k, x, 0.0)
    assert not can_decode(x.float(), x, x, 0.0)
    assert not can_decode(x, x, x, 0.1)
    leaf = x.clone().requires_grad_()
    assert not can_decode(leaf, x, x, 0.0)
    with torch.no_grad():
        assert can_decode(leaf, x, x, 0.0)

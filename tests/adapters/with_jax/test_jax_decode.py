# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.jax over KV caches: numbers, caches that are handed over, loops, maps and shards."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

from adapters.with_jax import jax_cases  # noqa: F401  # isort: skip  # before jax
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from adapters.with_jax.jax_cached import Cached, InJax, new_tokens, rotary
from cases_place import bits
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from kv_append import Append

from pyfa_rocm import UnsupportedError
from pyfa_rocm.jax import (
    flash_attn_kv_append,
    flash_attn_merge,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)

BASE = Cached()
CHANGES: list[dict[str, Any]] = [
    {},
    {"pages": "none", "dtype": "float16"},
    {"pages": "batch_idx", "lengths": (0, 65, 3)},
    {"hdim": 128, "hdim_v": 40, "page_size": 1, "ratio": 5, "nhead_k": 1},
    {"seqlen_q": 5, "options": {"causal": True}},
    {"seqlen_q": 5, "options": {"causal": True, "window_size": (20, 0), "softcap": 20.0}},
    {"alibi": True, "seqlen_q": 2, "options": {"causal": True}},
    {"leftpad": (5, 40), "options": {"num_splits": 3}},
]


def same(a: Any, b: Any) -> bool:
    return np.array_equal(bits(np.asarray(a)), bits(np.asarray(b)))


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_attention(change: dict[str, Any]) -> None:
    case = replace(BASE, **change)
    arrays = case.arguments()
    call = jax.jit(partial(flash_attn_with_kvcache, **case.options, return_softmax_lse=True))
    case.judge(arrays, *call(**arrays))


def test_sinks() -> None:
    """A logit without a value: a factor on the output, and a summand in the log-sum-exp."""
    arrays = BASE.arguments()
    sinks = np.linspace(-2, 4, BASE.nhead_q, dtype=np.float32)
    o, lse = flash_attn_with_kvcache(**arrays, return_softmax_lse=True)
    with_sinks = flash_attn_with_kvcache(**arrays, sinks=jnp.asarray(sinks), return_softmax_lse=True)
    joined = np.logaddexp(np.asarray(lse, np.float64), sinks[None, :, None])
    assert np.asarray(with_sinks[1]) == pytest.approx(joined, abs=1e-5)
    share = np.exp(np.asarray(lse) - joined).swapaxes(1, 2)[..., None]
    want = np.asarray(o, np.float64) * share
    # Both are rounded to bfloat16: half an ulp of each.
    assert (np.abs(np.asarray(with_sinks[0], np.float64) - want) <= 2**-8 * np.abs(want).max()).all()


def test_lengths_as_a_number_and_none() -> None:
    """An integer is every sequence's length, and without lengths the cache is full."""
    case = replace(BASE, pages="none", lengths=(40, 40))
    arrays = case.arguments()
    full = flash_attn_with_kvcache(**arrays)
    assert arrays["k_cache"].shape[1] == 40
    for lengths in (40, None):
        assert same(flash_attn_with_kvcache(**(arrays | {"cache_seqlens": lengths})), full)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"interleaved": True, "rotary_float": True, "table": "none"},
        {"packed": True, "lengths": (1, 0, 20, 7), "used": (100, 3, 0, 15)},
        {"table": "slots", "positions": True},
        {"rotary_dim": 0, "parts": "kv", "hdim_v": 40},
        {"cache_dtype": "float8_e4m3fnuz", "scales": "page"},
        {"cache_dtype": "float8_e4m3fnuz", "scales": "sequence"},
    ],
    ids=str,
)
def test_append(change: dict[str, Any]) -> None:
    InJax(replace(Append(rotary_dim=32), **change)).run_in_jax()


@pytest.mark.parametrize(("seqlen_q", "seqlen_new", "causal"), [(3, 3, True), (3, 3, False), (2, 4, True)])
def test_new_tokens(seqlen_q: int, seqlen_new: int, causal: bool) -> None:
    """One call equals an append, judged above, and attention after it; it is right against float64 too."""
    case = replace(BASE, seqlen_q=seqlen_q, room=seqlen_new, options={"causal": causal})
    arrays = case.arguments()
    new, tables, lengths = new_tokens(case, seqlen_new), rotary(case), arrays.pop("cache_seqlens")
    q, table = arrays.pop("q"), arrays["block_table"]
    o, lse, k_cache, v_cache = flash_attn_with_kvcache(
        q, **arrays, **new, **tables, cache_seqlens=lengths, causal=causal, return_softmax_lse=True
    )
    k_want, v_want = flash_attn_kv_append(**arrays, **new, **tables, cache_seqlens=lengths)
    assert same(k_cache, k_want)
    assert same(v_cache, v_want)
    place = lengths[:, None] + jnp.arange(seqlen_q) * causal
    # Keys and values of the queries' own shapes, which go nowhere: only q is asked for.
    nowhere = {name: jnp.zeros((*q.shape[:2], *x.shape[2:]), x.dtype) for name, x in new.items()}
    *_, rotated = flash_attn_kv_append(
        k_cache,
        v_cache,
        **nowhere,
        q=q,
        **tables,
        positions=place.astype(jnp.int32),
        slots=jnp.full(place.shape, -1, jnp.int32),
    )
    written = {"k_cache": k_cache, "v_cache": v_cache, "block_table": table, "q": rotated}
    case.judge(written, o, lse, [n + seqlen_new for n in case.lengths])


def test_without_rotary_new_tokens_are_seen() -> None:
    case = replace(BASE, room=1, pages="batch_idx")
    arrays = case.arguments()
    o, k_cache, v_cache = flash_attn_with_kvcache(**arrays, **new_tokens(case, 1))
    case.judge(arrays | {"k_cache": k_cache, "v_cache": v_cache}, o, None, [n + 1 for n in case.lengths])


@pytest.mark.parametrize("scales", ["sequence", "page"])
def test_eight_bits(scales: str) -> None:
    """A prompt and a token into a cache of 8 bits, and attention over what that stands for."""
    case = replace(BASE, lengths=(0, 0), room=21, scales=scales)
    arrays = case.arguments()
    lengths = [0, 0]
    for seqlen in (20, 1):
        step = jax.jit(partial(flash_attn_with_kvcache, scale_per_page=scales == "page"))
        o, arrays["k_cache"], arrays["v_cache"] = step(
            **(arrays | {"cache_seqlens": jnp.array(lengths, jnp.int32)}), **new_tokens(case, seqlen)
        )
        lengths = [n + seqlen for n in lengths]
        case.judge(arrays, o, None, lengths)


def test_donated_caches_stay_where_they_are() -> None:
    """The compiled step has no copy of a cache, and what it returns lies where the cache lay."""
    case = replace(BASE, room=1)
    arrays = case.arguments()
    new = new_tokens(case, 1)

    def step(k_cache: Any, v_cache: Any, lengths: Any) -> Any:
        rest = {"q": arrays["q"], "block_table": arrays["block_table"]}
        return flash_attn_with_kvcache(k_cache=k_cache, v_cache=v_cache, cache_seqlens=lengths, **rest, **new)

    caches = (arrays["k_cache"], arrays["v_cache"])
    keeping = jax.jit(step).lower(*caches, arrays["cache_seqlens"]).compile()
    assert copies(keeping, caches[0])
    kept = keeping(*caches, arrays["cache_seqlens"])
    assert not same(kept[1], caches[0])  # a copy has the new token
    places = [x.unsafe_buffer_pointer() for x in caches]
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*caches, arrays["cache_seqlens"]).compile()
    assert not copies(compiled, caches[0])
    results = compiled(*caches, arrays["cache_seqlens"])
    assert [x.unsafe_buffer_pointer() for x in results[1:]] == places
    assert all(x.is_deleted() for x in caches)
    for got, want in zip(results, kept, strict=True):
        assert same(got, want)


def test_exported() -> None:
    """A step with both custom calls, as a stored program for both platforms has it."""
    case = replace(BASE, room=1)
    arrays, new = case.arguments(), new_tokens(case, 1)
    step = jax.jit(flash_attn_with_kvcache)
    calls = ("pyfa_rocm_fmha_decode", "pyfa_rocm_fmha_kv_append")
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name) for name in calls]
    export = jax.export.export(step, platforms=("cpu", "rocm"), disabled_checks=allowed)
    got = jax.jit(export(**arrays, **new).call)(**arrays, **new)
    for a, b in zip(got, step(**arrays, **new), strict=True):
        assert same(a, b)


def copies(compiled: Any, cache: Any) -> list[str]:
    """Copies of a cache in a compiled program."""
    short = {"bfloat16": "bf16", "float16": "f16"}[cache.dtype.name]
    shape = re.escape(f"{short}[{','.join(map(str, cache.shape))}]")
    return re.findall(rf"= {shape}\S* copy\(.*", compiled.as_text())


def test_loop() -> None:
    """Decoding as a scan: a step's output is the next one's query, and caches are carried without a copy."""
    steps = 4
    case = replace(BASE, room=steps, lengths=(14, 0, 30), seed=3)
    arrays = case.arguments()
    new = new_tokens(case, steps)

    def step(carry: Any, token: Any) -> Any:
        q, k_cache, v_cache, lengths = carry
        o, k_cache, v_cache = flash_attn_with_kvcache(
            q, k_cache, v_cache, token[0], token[1], **rotary(case), cache_seqlens=lengths, causal=True,
            block_table=arrays["block_table"],
        )  # fmt: skip
        return (o, k_cache, v_cache, lengths + 1), o

    def decode(k_cache: Any, v_cache: Any) -> Any:
        tokens = tuple(jnp.moveaxis(new[name], 1, 0)[:, :, None] for name in "kv")
        return jax.lax.scan(step, (arrays["q"], k_cache, v_cache, arrays["cache_seqlens"]), tokens)

    carry = (arrays["q"], arrays["k_cache"], arrays["v_cache"], arrays["cache_seqlens"])
    outputs = []
    for i in range(steps):
        carry, o = step(carry, (new["k"][:, i : i + 1], new["v"][:, i : i + 1]))
        outputs.append(o)
    caches = (arrays["k_cache"], arrays["v_cache"])
    places = [x.unsafe_buffer_pointer() for x in caches]
    compiled = jax.jit(decode, donate_argnums=(0, 1)).lower(*caches).compile()
    assert not copies(compiled, caches[0])
    (_, *written, _), got = compiled(*caches)
    assert [x.unsafe_buffer_pointer() for x in written] == places
    assert same(got, jnp.stack(outputs))
    assert same(written[0], carry[1])
    assert same(written[1], carry[2])


def test_mapped() -> None:
    """As a loop: over queries and lengths with one cache, and over caches that are written."""
    case = replace(BASE, room=2)
    arrays, other = case.arguments(), replace(case, seed=5).arguments()
    new, table = new_tokens(case, 2), arrays["block_table"]
    caches = (arrays["k_cache"], arrays["v_cache"])
    call: Any = partial(flash_attn_with_kvcache, block_table=table, return_softmax_lse=True)
    queries = jnp.stack([arrays["q"], other["q"], -arrays["q"]], axis=2)
    lengths = jnp.array([[37, 100], [1, 0], [9, 50]], jnp.int32)
    mapped = jax.vmap(lambda q, n: call(q, *caches, cache_seqlens=n), in_axes=(2, 0))(queries, lengths)
    for i in range(3):
        for got, want in zip(mapped, call(queries[:, :, i], *caches, cache_seqlens=lengths[i]), strict=True):
            assert same(got[i], want)

    stacked = [jnp.stack([arrays[name], -arrays[name]]) for name in ("k_cache", "v_cache")]
    both = jax.vmap(lambda k, v: call(arrays["q"], k, v, **new, cache_seqlens=lengths[0]))(*stacked)
    for i in range(2):
        want = call(arrays["q"], stacked[0][i], stacked[1][i], **new, cache_seqlens=lengths[0])
        for got, x in zip(both, want, strict=True):
            assert same(got[i], x)


def test_mapped_where_there_are_no_strides() -> None:
    """Slots, positions and rotary tables, mapped along other axes than the first."""
    case = replace(BASE, pages="none", lengths=(20, 20), room=5)
    arrays = case.arguments()
    new, q = new_tokens(case, 3), jnp.asarray(case.normal(2, 3, case.nhead_q, case.hdim))
    places = jnp.array([[[20, 21, 22], [45, 47, -1]], [[24, 0, 1], [26, 25, 28]]], jnp.int32)
    positions = jnp.array([[[5, 3, 9], [0, 1, 2]], [[7, 7, 7], [4, 4, 1]]], jnp.int32)
    cos, sin = rotary(case).values()
    both_cos, both_sin = jnp.stack([cos, sin]), jnp.stack([sin, cos], axis=1)

    def call(slots: Any, positions: Any, cos: Any, sin: Any) -> Any:
        return flash_attn_kv_append(
            arrays["k_cache"], arrays["v_cache"], **new, q=q, slots=slots, positions=positions,
            rotary_cos=cos, rotary_sin=sin,
        )  # fmt: skip

    got = jax.vmap(call, in_axes=(1, 1, 0, 1))(places, positions, both_cos, both_sin)
    for i in range(2):
        want = call(places[:, i], positions[:, i], both_cos[i], both_sin[:, i])
        for a, b in zip(got, want, strict=True):
            assert same(a[i], b)


def test_sharded_heads() -> None:
    """Each device has its heads of the cache, and pages and lengths of all sequences."""
    case = replace(BASE, nhead_k=4, room=2)
    arrays = case.arguments()
    new = new_tokens(case, 2)
    operands = (arrays["q"], arrays["k_cache"], arrays["v_cache"], new["k"], new["v"])

    def call(q: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, lengths: Any, table: Any) -> Any:
        return flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, cache_seqlens=lengths, block_table=table, causal=True, num_splits=2
        )

    heads = P(None, None, "heads")
    sharded = jax.shard_map(
        call,
        mesh=Mesh(np.array(jax.devices()), ("heads",)),
        in_specs=(heads,) * 5 + (P(), P()),
        out_specs=heads,
    )
    got = jax.jit(sharded)(*operands, arrays["cache_seqlens"], arrays["block_table"])
    assert len(got[0].sharding.device_set) == 4
    for x, want in zip(got, call(*operands, arrays["cache_seqlens"], arrays["block_table"]), strict=True):
        assert same(x, want)


def test_packed_queries_over_listed_pages() -> None:
    """The other list of pages, and packed queries of a function whose arguments are flash-attention's."""
    case = replace(BASE, lengths=(9, 50, 33), room=2, options={"causal": True})
    arrays = case.arguments()
    starts, lengths = np.array([0, 9, 10, 13], np.int32), arrays["cache_seqlens"]
    q, table = jnp.asarray(case.normal(13, case.nhead_q, case.hdim, seed=4)), arrays["block_table"]
    counts = np.ceil((np.array(case.lengths) + 2) / case.page_size).astype(np.int32)
    lists = {
        "kv_indptr": jnp.asarray(np.concatenate([[0], np.cumsum(counts)]), jnp.int32),
        "kv_indices": jnp.concatenate([table[b, :n] for b, n in enumerate(counts)]),
    }
    caches = (arrays["k_cache"], arrays["v_cache"])
    o = jax.jit(partial(flash_attn_with_kvcache, causal=True, max_seqlen_q=9, max_seqlen_k=60))(
        q, *caches, cache_seqlens=lengths, cu_seqlens_q=starts, **lists
    )
    for b in range(3):
        rows, own = slice(starts[b], starts[b + 1]), replace(case, lengths=case.lengths[b : b + 1])
        own.judge(
            {"q": q[None, rows], "block_table": table[b : b + 1]}
            | dict(zip(("k_cache", "v_cache"), caches, strict=True)),
            o[None, rows],
            None,
        )
    new = new_tokens(case, 2)
    by_list = flash_attn_kv_append(caches[0], caches[1], **new, cache_seqlens=lengths, **lists)
    by_table = flash_attn_kv_append(caches[0], caches[1], **new, cache_seqlens=lengths, block_table=table)
    for got, want in zip(by_list, by_table, strict=True):
        assert same(got, want)


def test_vectorised_cache() -> None:
    """As servers lay it out for loads of 16 bytes: the same numbers, to the bit."""
    case = replace(BASE, room=3)
    arrays, new = case.arguments(), new_tokens(case, 3)
    want = flash_attn_with_kvcache(**arrays, **new, causal=True)

    def keys(x: Any) -> Any:  # (pages, nhead, hdim / 8, page_size, 8)
        return x.reshape(*x.shape[:3], -1, 8).transpose(0, 2, 3, 1, 4)

    def values(x: Any) -> Any:  # (pages, nhead, hdim, page_size)
        return x.transpose(0, 2, 3, 1)

    vectors = arrays | {"k_cache": keys(arrays["k_cache"]), "v_cache": values(arrays["v_cache"])}
    got = jax.jit(partial(flash_attn_with_kvcache, causal=True))(**vectors, **new)
    for a, b in zip(got, (want[0], keys(want[1]), values(want[2])), strict=True):
        assert same(a, b)


_VALUES_IN_KEYS: list[Any] = [
    {"hdim": 576, "hdim_v": 512, "nhead_k": 1, "ratio": 16, "options": {"num_splits": 2}},
    {"hdim": 576, "hdim_v": 512, "nhead_k": 1, "seqlen_q": 3, "options": {"causal": True}, "leftpad": (2, 9)},
    {"hdim": 72, "hdim_v": 40, "pages": "batch_idx"},
    {"hdim": 128, "hdim_v": 128, "pages": "none"},
]


@pytest.mark.parametrize("change", _VALUES_IN_KEYS, ids=str)
def test_values_in_keys(change: dict[str, Any]) -> None:
    """Latent attention: against float64, and to the bit what a copy of the values gives; mapped too."""
    case = replace(BASE, **change)
    arrays = case.arguments()
    arrays["v_cache"] = arrays["k_cache"][..., : case.hdim_v]
    shared = arrays | {"v_cache": None}
    call: Any = partial(flash_attn_with_kvcache, **case.options, return_softmax_lse=True, hdim_v=case.hdim_v)
    o, lse = jax.jit(call)(**shared)
    case.judge(arrays, o, lse)
    copied = flash_attn_with_kvcache(**arrays, **case.options, return_softmax_lse=True)
    for got, want in zip((o, lse), copied, strict=True):
        assert same(got, want)
    q, k_cache = shared.pop("q"), shared.pop("k_cache")
    mapped = jax.vmap(lambda q, k: call(q, k, **shared), in_axes=(0, 2), out_axes=2)(
        jnp.stack([q, -q]), jnp.stack([k_cache, 2 * k_cache], axis=2)
    )
    for i, (own_q, own_k) in enumerate(((q, k_cache), (-q, 2 * k_cache))):
        for got, want in zip(mapped, call(own_q, own_k, **shared), strict=True):
            assert same(got[:, :, i], want)


def test_values_in_keys_take_no_new_tokens() -> None:
    case = replace(BASE, room=2)
    arrays = case.arguments() | {"v_cache": None}
    with pytest.raises(UnsupportedError, match="k: got an array with hdim_v, expected None"):
        flash_attn_with_kvcache(**arrays, **new_tokens(case, 1), hdim_v=64)


@pytest.mark.parametrize("splits", [1, 3])
def test_log_sum_exp_to_base_2(splits: int) -> None:
    """The natural one divided by log 2, and what `flash_attn_merge` merges by."""
    arrays = replace(BASE, lengths=(64, 64)).arguments()
    call = partial(flash_attn_with_kvcache, num_splits=splits, return_softmax_lse=True)
    o, lse = call(**arrays)
    o2, lse2 = call(**arrays, base2=True)
    assert same(o, o2)
    natural = np.asarray(lse, np.float64)
    assert np.asarray(lse2) == pytest.approx(natural / np.log(2), rel=2**-22)  # both are rounded to float32
    whole, total = call(**arrays, base2=True)
    halves = [
        call(**(arrays | {"block_table": arrays["block_table"][:, part], "cache_seqlens": 32}), base2=True)
        for part in (slice(0, 2), slice(2, 4))
    ]
    merged, sum2 = flash_attn_merge(*(jnp.stack(x) for x in zip(*halves, strict=True)), base2=True)
    assert np.asarray(sum2) == pytest.approx(np.asarray(total), abs=2**-20)
    off = np.abs(np.asarray(merged, np.float64) - np.asarray(whole, np.float64))
    assert (off <= 2**-7 * np.abs(np.asarray(whole, np.float64)).max()).all()  # three roundings to bfloat16


@pytest.mark.parametrize("by_used", [False, True])
def test_packed_queries(by_used: bool) -> None:
    """`flash_attn_varlen_func` over pages: sequences that begin, and that go on; rows of none are 0."""
    case = replace(BASE, lengths=(9, 50, 33), options={"causal": True})
    arrays = case.arguments()
    starts = np.array([0, 9, 10, 13], np.int32)
    q = jnp.asarray(case.normal(16, case.nhead_q, case.hdim, seed=4))
    lengths = np.array(case.lengths, np.int32)
    cu_seqlens_k = None if by_used else np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    o, lse = flash_attn_varlen_func(
        q, arrays["k_cache"], arrays["v_cache"], starts, cu_seqlens_k, 9, 50, causal=True, return_lse=True,
        block_table=arrays["block_table"], seqused_k=lengths if by_used else None,
    )  # fmt: skip
    for b in range(3):
        rows = slice(starts[b], starts[b + 1])
        one = replace(case, lengths=case.lengths[b : b + 1], leftpad=())
        own = arrays | {"q": q[None, rows], "block_table": arrays["block_table"][b : b + 1]}
        one.judge(own, o[None, rows], lse[None, :, rows])
    assert not bits(np.asarray(o[13:])).any()
    assert np.isneginf(lse[:, 13:]).all()


def test_nothing_to_do() -> None:
    case = replace(BASE, pages="none", lengths=(5,))
    arrays = case.arguments() | {"cache_seqlens": jnp.zeros(1, jnp.int32)}
    o, lse = flash_attn_with_kvcache(**arrays, return_softmax_lse=True)
    assert not bits(np.asarray(o)).any()
    assert np.isneginf(lse).all()
    no_rows = arrays | {"q": arrays["q"][:, :0]}
    assert flash_attn_with_kvcache(**no_rows).shape == (1, 0, case.nhead_q, case.hdim_v)

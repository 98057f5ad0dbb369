# SPDX-License-Identifier: MIT OR Apache-2.0
"""The drop-in for flash-attn over KV caches and pages: public and private functions, and the extension."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from adapters.cached_cases import Cached
from adapters.with_torch.torch_cases import to_numpy, to_torch
from torch.utils._python_dispatch import TorchDispatchMode

import pyfa_rocm.torch
from pyfa_rocm import InvalidArgumentError, UnsupportedError, flash_attn
from pyfa_rocm.flash_attn import flash_attn_2_cuda, flash_attn_interface
from pyfa_rocm.flash_attn.layers.rotary import apply_rotary_emb

BASE = Cached()
# Not typed: calls here are by tuples of arguments.
public: Any = flash_attn
private: Any = flash_attn_interface
raw: Any = flash_attn_2_cuda
rotate: Any = apply_rotary_emb
Tensors = dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch._dynamo.reset()
    torch.manual_seed(3)


def tensors(case: Cached) -> Tensors:
    return {name: to_torch(np.ascontiguousarray(x)) for name, x in case.hosts().items()}


def judge(case: Cached, arrays: Tensors, o: Any, lse: Any, lengths: Any = None) -> None:
    hosts = {name: to_numpy(x) for name, x in arrays.items()}
    case.judge(hosts, to_numpy(o), to_numpy(lse), lengths)


def new_tokens(case: Cached, seqlen: int) -> Tensors:
    shape = (case.batch, seqlen, case.nhead_k, case.hdim)
    return {name: to_torch(case.normal(*shape, seed=seed)) for seed, name in ((7, "k"), (8, "v"))}


def rotary(case: Cached) -> Tensors:
    """Tables of rotary_dim 32."""
    angles = torch.arange(200)[:, None] * 10.0 ** -torch.arange(0, 4, 0.25)
    dtype = getattr(torch, case.dtype)
    return {"rotary_cos": angles.cos().to(dtype), "rotary_sin": angles.sin().to(dtype)}


def extension(arrays: Tensors, out: torch.Tensor | None = None, scale: float = 0.125, **options: Any) -> Any:
    """Call the extension by position."""
    names = (
        "q", "k_cache", "v_cache", "k", "v", "cache_seqlens", "rotary_cos", "rotary_sin", "cache_batch_idx",
        "cache_leftpad", "block_table", "alibi_slopes",
    )  # fmt: skip
    left, right = options.get("window_size", (-1, -1))
    return raw.fwd_kvcache(
        *(arrays.get(name) for name in names), out, scale, options.get("causal", False), left, right,
        options.get("softcap", 0.0), options.get("rotary_interleaved", True), options.get("num_splits", 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pages": "none", "dtype": "float16"},
        {"pages": "batch_idx", "lengths": (0, 65, 3)},
        {"page_size": 256, "ratio": 5, "nhead_k": 1},
        {"page_size": 1, "seqlen_q": 3, "leftpad": (5, 40)},
        {"seqlen_q": 5, "options": {"causal": True, "window_size": (20, 0), "softcap": 20.0}},
        {"alibi": True, "seqlen_q": 30, "options": {"causal": True}},
        {"pages": "none", "leftpad": (5, 40), "options": {"num_splits": 3}},
    ],
    ids=str,
)
def test_attention(change: dict[str, Any]) -> None:
    """The public function by keyword; and the extension, which returns the `out` that it is given."""
    case = replace(BASE, **change)
    arrays = tensors(case)
    out, lse = public.flash_attn_with_kvcache(**arrays, **case.options, return_softmax_lse=True)
    judge(case, arrays, out, lse)
    into = torch.full_like(out, torch.nan)
    result, again = extension(arrays, into, **case.options)
    assert result is into
    assert torch.equal(into, out)
    assert torch.equal(again, lse)
    assert torch.equal(public.flash_attn_with_kvcache(**arrays, **case.options), out)


@pytest.mark.parametrize("lengths", [40, None])
def test_one_length(lengths: int | None) -> None:
    arrays = tensors(replace(BASE, pages="none", lengths=(40, 40)))
    want = public.flash_attn_with_kvcache(**arrays)
    got = public.flash_attn_with_kvcache(**(arrays | {"cache_seqlens": lengths}))
    assert torch.equal(got, want)


@pytest.mark.parametrize("pages", ["table", "none"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_new", "options"), [
    (1, 1, {}), (3, 3, {"causal": True}), (3, 2, {"window_size": (30, 0)}), (2, 4, {}),
    # A window that nothing is beyond is none, and does not decide where queries are rotated.
    (3, 3, {"window_size": (1000, 1000)}),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("interleaved", [False, True])
def test_appends_and_rotates(
    pages: str, seqlen_q: int, seqlen_new: int, options: dict[str, Any], interleaved: bool
) -> None:
    """In place: behind each length, and nowhere else; rotated as plain torch does it."""
    case = replace(BASE, pages=pages, seqlen_q=seqlen_q, room=seqlen_new, options=options)
    arrays, new, tables = tensors(case), new_tokens(case, seqlen_new), rotary(case)
    before = {name: x.clone() for name, x in arrays.items()}
    out, lse = public.flash_attn_with_kvcache(
        **arrays, **new, **tables, **options, rotary_interleaved=interleaved, return_softmax_lse=True
    )

    def rotated(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        # A row as a sequence of its own, which begins at its place.
        rows = rotate(
            x.flatten(0, 1)[:, None].float(),
            *(y.float() for y in tables.values()),
            interleaved=interleaved,
            seqlen_offsets=places.flatten(),
        )
        return rows.reshape(x.shape).to(x.dtype)

    first = arrays["cache_seqlens"][:, None]
    keys = rotated(new["k"], first + torch.arange(seqlen_new))
    for b, n in enumerate(case.lengths):
        for t in range(seqlen_new):
            at = (b, n + t)
            if pages == "table":
                at = (int(arrays["block_table"][b, (n + t) // case.page_size]), (n + t) % case.page_size)
            # Both round the same sum of two products to bfloat16, one after float32 has rounded it.
            torch.testing.assert_close(arrays["k_cache"][at], keys[b, t], rtol=2**-7, atol=1e-6)
            assert torch.equal(arrays["v_cache"][at], new["v"][b, t])
            for name in ("k_cache", "v_cache"):
                before[name][at] = arrays[name][at]
    for name, x in before.items():
        assert (to_numpy(arrays[name]).view(np.uint8) == to_numpy(x).view(np.uint8)).all()
    own = options.get("causal") or 0 <= options.get("window_size", (-1, -1))[0] < 1000
    places = (first + torch.arange(seqlen_q) * bool(own)).int()
    q = pyfa_rocm.torch.flash_attn_kv_append(
        None, None, None, None, q=arrays["q"], q_out=torch.empty_like(arrays["q"]), positions=places,
        **tables, rotary_interleaved=interleaved,
    )  # fmt: skip
    assert q is not None
    torch.testing.assert_close(q, rotated(arrays["q"], places), rtol=2**-7, atol=1e-6)
    judge(case, arrays | {"q": q}, out, lse, [n + seqlen_new for n in case.lengths])


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("pages", ["table", "none"])
def test_what_kernels_cannot_read_is_copied(pages: str, append: bool) -> None:
    """A head dim that is no multiple of 8, padded; and rows that are not aligned. Appends reach the cache."""
    case = replace(BASE, dtype="float16", hdim=60, hdim_v=60, pages=pages, room=1)
    arrays = tensors(case)
    wide = torch.full((*arrays["v_cache"].shape[:-1], 63), torch.nan, dtype=torch.float16)
    wide[..., 1:61] = arrays["v_cache"]
    arrays["v_cache"] = wide[..., 1:61]
    new = new_tokens(case, 1) if append else {}
    out, lse = public.flash_attn_with_kvcache(**arrays, **new, return_softmax_lse=True)
    assert out.shape == arrays["q"].shape
    judge(case, arrays, out, lse, [n + append for n in case.lengths])
    assert wide[..., 0].isnan().all()
    assert wide[..., 61:].isnan().all()
    into = torch.empty_like(out)
    assert extension(arrays, into, scale=60**-0.5, num_splits=1)[0] is into
    if not append:
        torch.testing.assert_close(into, out, rtol=0, atol=2**-9)


def test_caches_that_kernels_can_read_are_not() -> None:
    case = replace(BASE, room=1)
    arrays = {**tensors(case), **new_tokens(case, 1), **rotary(case)}
    elements = arrays["k_cache"].numel()

    class NoCopies(TorchDispatchMode):
        """Sees that no operator but attention and append gives a tensor as large as a cache."""

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **kwargs or {})
            if function.namespace != "pyfa_rocm" and isinstance(result, torch.Tensor):
                assert result.numel() < elements, function
            return result

    with NoCopies():
        public.flash_attn_with_kvcache(**arrays)
        flat = arrays["q"][:, 0], arrays["k_cache"], arrays["v_cache"]
        starts = torch.arange(3, dtype=torch.int32)
        public.flash_attn_varlen_func(*flat, starts, starts, 1, 1, block_table=arrays["block_table"])


class Packed:
    """Sequences of packed queries, of which some begin and some go on, over the pages of a case."""

    def __init__(self, case: Cached, counts: tuple[int, ...] = (9, 1, 3)) -> None:
        self.case = case
        self.arrays = tensors(case)
        self.starts = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)
        self.longest = max(counts)
        self.q = to_torch(case.normal(sum(counts), case.nhead_q, case.hdim, seed=4))
        self.keys = torch.tensor([0, *np.cumsum(case.lengths)], dtype=torch.int32)

    @property
    def given(self) -> tuple[Any, ...]:
        """q, k, v, lengths and their bounds."""
        caches = self.arrays["k_cache"], self.arrays["v_cache"]
        return self.q, *caches, self.starts, self.keys, self.longest, max(self.case.lengths)

    def judge(self, out: torch.Tensor, lse: torch.Tensor) -> None:
        assert (out.shape, lse.shape) == (self.q.shape, (self.q.shape[1], self.q.shape[0]))
        for b, n in enumerate(self.case.lengths):
            rows = slice(*self.starts[b : b + 2])
            pad = self.case.leftpad[b : b + 1]
            one = replace(self.case, lengths=(n,), leftpad=pad)
            own = {
                name: x for name, x in self.arrays.items() if name in ("k_cache", "v_cache", "alibi_slopes")
            }
            own |= {"q": self.q[None, rows], "block_table": self.arrays["block_table"][b : b + 1]}
            judge(one, own, out[None, rows], lse[None, :, rows])

    def extension(self, block_table: Any, leftpad: Any, used: Any, out: Any = None, **changes: Any) -> Any:
        """Call the extension's varlen_fwd by position."""
        q, k, v, *lengths, longest_q, longest_k = self.given
        rest = (0.0, 0.125, changes.pop("zero_tensors", False), True, -1, -1, 0.0, False, None)
        k, v = changes.pop("keys", (k, v))
        return raw.varlen_fwd(
            q, k, v, out, *lengths, used, leftpad, block_table, None, longest_q, longest_k, *rest
        )


RAGGED = replace(BASE, lengths=(9, 50, 33), options={"causal": True})


@pytest.mark.parametrize("change", [
    {}, {"page_size": 256, "dtype": "float16"}, {"alibi": True}, {"hdim": 60, "hdim_v": 60},
    {"options": {"window_size": (20, 0), "softcap": 20.0}},
], ids=str)  # fmt: skip
def test_varlen_over_pages(change: dict[str, Any]) -> None:
    packed = Packed(replace(RAGGED, **change))
    table, options = packed.arrays["block_table"], dict(packed.case.options)
    if "alibi" in change:
        options["alibi_slopes"] = packed.arrays["alibi_slopes"]
    out, lse, s_dmask = public.flash_attn_varlen_func(
        *packed.given, **options, return_attn_probs=True, block_table=table
    )
    packed.judge(out, lse)
    assert (s_dmask.shape, s_dmask.dtype) == ((0,), out.dtype)
    longest = (torch.tensor(9), torch.tensor(10**6))  # a bound may be any, and a tensor
    again = public.flash_attn_varlen_func(*packed.given[:5], *longest, **options, block_table=table)
    # The bound decides how keys are dealt to splits.
    torch.testing.assert_close(again, out, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_varlen_fwd(paged: bool, padded: bool) -> None:
    """Lengths in use and padding at the left, of pages and of packed keys."""
    leftpad = (0, 30, 2) if padded else ()
    packed = Packed(replace(RAGGED, leftpad=leftpad))
    arrays, lengths = packed.arrays, packed.case.lengths
    table: Any = arrays["block_table"]
    changes: dict[str, Any] = {}
    if not paged:
        # Two rows more than are used, of each sequence.
        rows = [
            packed.case.tokens(b, {x: to_numpy(y) for x, y in arrays.items()}, n)
            for b, n in enumerate(lengths)
        ]
        packed.keys = torch.tensor([0, *np.cumsum([n + 2 for n in lengths])], dtype=torch.int32)
        keys = [torch.full((int(packed.keys[-1]), 2, 64), torch.nan, dtype=torch.bfloat16) for _ in "kv"]
        for b, n in enumerate(lengths):
            begin = int(packed.keys[b])
            for into, x in zip(keys, rows[b], strict=True):
                into[begin + (leftpad[b] if padded else 0) : begin + n] = to_torch(np.ascontiguousarray(x[0]))
        changes, table = {"keys": tuple(keys)}, None
    elif not padded:
        packed.keys = packed.keys * 0 - 1  # not looked at
    used = torch.tensor(lengths, dtype=torch.int32)
    pad = torch.tensor(leftpad, dtype=torch.int32) if padded else None
    into = torch.full_like(packed.q, torch.nan)
    for out_ in (None, into):
        out, lse, s_dmask, rng_state = packed.extension(table, pad, used, out_, **changes)
        packed.judge(out, lse)
        assert (s_dmask.shape, rng_state.tolist()) == ((0,), [0, 0])
    assert out is into


def test_no_keys() -> None:
    packed = Packed(replace(RAGGED, lengths=(0, 0, 0)))
    none, zeros = packed.q.new_zeros(0, 2, 64), torch.zeros(3, dtype=torch.int32)
    for keys, leftpad, table in (
        ((none, none), zeros, None),
        (packed.given[1:3], None, packed.arrays["block_table"]),
    ):
        out, lse, *_ = packed.extension(table, leftpad, None, keys=keys)
        assert not out.any()
        assert lse.isneginf().all()


def test_tables_that_are_not_contiguous() -> None:
    arrays = tensors(BASE)
    want = public.flash_attn_with_kvcache(**arrays)
    for name in ("block_table", "cache_seqlens"):
        arrays[name] = torch.stack([arrays[name], arrays[name] * 0 - 1], -1)[..., 0]
        assert not arrays[name].is_contiguous()
    assert torch.equal(public.flash_attn_with_kvcache(**arrays), want)


def test_rows_of_no_sequence() -> None:
    """They are 0 with zero_tensors, in what is given too."""
    packed = Packed(RAGGED)
    packed.q = torch.cat([packed.q, packed.q[:2]])
    table, into = packed.arrays["block_table"], torch.full_like(packed.q, torch.nan)
    for out_ in (None, into):
        out = packed.extension(table, None, None, out_, zero_tensors=True)[0]
        assert not out[13:].any()
        assert out[:13].any(-1).all()


def test_private_functions() -> None:
    """The operator works too, by our name and, once installed, by flash-attn's."""
    packed = Packed(RAGGED)
    table, used = packed.arrays["block_table"], torch.tensor(packed.case.lengths, dtype=torch.int32)
    out, lse, _, state = private._flash_attn_varlen_forward(
        *packed.given, 0.0, 0.125, True, block_table=table, seqused_k=used
    )
    packed.judge(out, lse)
    assert not state.any()
    split, lse_of_parts, *_ = private._flash_attn_varlen_forward(
        *packed.given, 0.0, 0.125, True, block_table=table, num_splits=3
    )
    packed.judge(split, lse_of_parts)
    flash_attn.install()
    try:
        arguments = (*packed.given, 0.0, 0.125, True, -1, -1, 0.0, None, False, table, None, used)
        for results in (
            torch.ops.flash_attn._flash_attn_varlen_forward(*arguments),
            private._wrapped_flash_attn_varlen_forward(*arguments),
            private._wrapped_flash_attn_varlen_forward(*arguments, False, 0),
        ):
            for got, want in zip(results, (out, lse), strict=False):
                assert torch.equal(got, want)
    finally:
        flash_attn.uninstall()
    with torch._subclasses.FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments]
        traced = private._wrapped_flash_attn_varlen_forward(*fake)
    for fake_one, real in zip(traced, results, strict=True):
        assert (fake_one.shape, fake_one.dtype) == (real.shape, real.dtype)


def test_compiled() -> None:
    """Whole, with the cache written where it is; and over pages."""
    case = replace(BASE, room=1)
    arrays, new, tables = tensors(case), new_tokens(case, 1), rotary(case)
    caches = {name: arrays[name].clone() for name in ("k_cache", "v_cache")}

    def step(arrays: Tensors, new: Tensors, tables: Tensors) -> Any:
        return public.flash_attn_with_kvcache(**arrays, **new, **tables, return_softmax_lse=True)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for got, want in zip(compiled(arrays, new, tables), step(arrays | caches, new, tables), strict=True):
        assert torch.equal(got, want)
    for name, x in caches.items():
        assert (to_numpy(arrays[name]).view(np.uint8) == to_numpy(x).view(np.uint8)).all()
    packed = Packed(RAGGED)

    def varlen(*given: Any, block_table: torch.Tensor) -> Any:
        return public.flash_attn_varlen_func(*given, causal=True, block_table=block_table)

    compiled, table = torch.compile(varlen, fullgraph=True, backend="aot_eager"), packed.arrays["block_table"]
    assert torch.equal(compiled(*packed.given, block_table=table), varlen(*packed.given, block_table=table))


def test_gradients() -> None:
    """None over a cache, as in flash-attn; over pages an error once one is asked for."""
    arrays = tensors(BASE)
    want = public.flash_attn_with_kvcache(**arrays)
    arrays["q"].requires_grad_()
    out = public.flash_attn_with_kvcache(**arrays)
    assert torch.equal(out, want)
    assert not out.requires_grad
    packed = Packed(RAGGED)
    table = packed.arrays["block_table"]
    want = public.flash_attn_varlen_func(*packed.given, block_table=table)
    packed.q.requires_grad_()
    out = public.flash_attn_varlen_func(*packed.given, block_table=table)
    assert torch.equal(out, want)
    with pytest.raises(UnsupportedError, match=r"block_table: a gradient .* gather the pages into k and v"):
        out.sum().backward()


def test_autocast_is_not_seen() -> None:
    arrays = tensors(replace(BASE, dtype="float16"))
    want = public.flash_attn_with_kvcache(**arrays)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(public.flash_attn_with_kvcache(**arrays), want)


NEW = torch.zeros(2, 1, 2, 64, dtype=torch.bfloat16)
TABLE, LENGTHS = torch.zeros(2, 4, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "list": ({"k_cache": [1.0]}, TypeError, r"k_cache: got list, expected a torch\.Tensor"),
    "table_list": ({"block_table": [[0]]}, TypeError, r"block_table: got list, expected a torch\.Tensor"),
    "dims": ({"q": NEW[0]}, InvalidArgumentError, r"q: got shape .*expected 4 dimensions \(batch, seqlen_q"),
    "cache_dims": ({"v_cache": NEW[0]}, InvalidArgumentError, r"v_cache: got shape .* \(pages or batch, tok"),
    "hdim": ({"q": NEW[..., :0]}, InvalidArgumentError, "q: got shape .*expected hdim above 0"),
    "k_dims": ({"k": NEW[0], "v": NEW}, InvalidArgumentError, r"k: got shape .*\(batch, seqlen_new, nhead_k"),
    "one": ({"k": NEW, "v": None}, InvalidArgumentError, "v: got None, expected both k and v"),
    "nowhere": ({"k": NEW, "v": NEW, "cache_seqlens": None}, InvalidArgumentError, "cache_seqlens: got None"),
    "rotary": ({"rotary_cos": NEW[0, 0]}, InvalidArgumentError, "rotary_(cos: got an array|sin: got None)"),
    "lengths": ({"cache_seqlens": LENGTHS.long()}, InvalidArgumentError, "cache_seqlens: got dtype int64"),
    "negative": ({"cache_seqlens": -1}, InvalidArgumentError, "cache_seqlens: got -1, expected 0 or more"),
    "table": ({"block_table": TABLE[0]}, InvalidArgumentError, r"block_table: got shape \(4,\), expected \("),
    "page": (
        {x: torch.zeros(9, 48, 2, 64).bfloat16() for x in ("k_cache", "v_cache")},
        InvalidArgumentError,
        "page_size = 48: expected a power of two",
    ),
    "index": ({"cache_batch_idx": LENGTHS}, InvalidArgumentError, "cache_batch_idx: got .* None with block_"),
    "window": ({"window_size": 3}, InvalidArgumentError, "window_size: got 3, expected two integers"),
    "splits": ({"num_splits": 129}, InvalidArgumentError, "num_splits = 129: expected 0 .* to 128"),
    "softcap": ({"softcap": "1"}, InvalidArgumentError, "softcap: got '1', expected a number"),
    "float32": (
        {x: torch.zeros(9, 16, 2, 64) for x in ("k_cache", "v_cache")},
        UnsupportedError,
        r"cache->dtype = fp32.* expected cache->dtype = bf16",
    ),
}


@pytest.mark.parametrize("new", [{}, {"k": NEW + 1, "v": NEW + 1}], ids=["", "new"])
@pytest.mark.parametrize(("change", "error", "said"), WRONG.values(), ids=WRONG)
def test_wrong_arguments(
    change: dict[str, Any], error: type[Exception], said: str, new: dict[str, Any]
) -> None:
    """A refused call has stored nothing."""
    cache = torch.zeros(9, 16, 2, 64, dtype=torch.bfloat16)
    q = torch.zeros(2, 1, 4, 64, dtype=torch.bfloat16)
    arguments = {
        "q": q,
        "k_cache": cache,
        "v_cache": cache + 0,
        "block_table": TABLE,
        "cache_seqlens": LENGTHS,
    }
    with pytest.raises(error, match=said):
        public.flash_attn_with_kvcache(**arguments | new | change)
    assert not cache.any()
    assert not arguments["v_cache"].any()
    assert not public.flash_attn_with_kvcache(**arguments).any()


@pytest.mark.parametrize("hdim", [60, 64])
@pytest.mark.parametrize("wrong", [{"dtype": torch.float32}, {"size": (2, 1, 4, 56)}], ids=str)
def test_a_wrong_out_stores_nothing(hdim: int, wrong: dict[str, Any]) -> None:
    case = replace(BASE, dtype="float16", hdim=hdim, hdim_v=hdim, pages="none", room=1)
    arrays = tensors(case) | new_tokens(case, 1)
    before = [to_numpy(arrays[name].clone()).tobytes() for name in ("k_cache", "v_cache")]
    out = torch.zeros(**{"size": (2, 1, 4, hdim), "dtype": torch.float16} | wrong)
    with pytest.raises(InvalidArgumentError, match="out: got"):
        extension(arrays, out, scale=0.125)
    assert [to_numpy(arrays[name]).tobytes() for name in ("k_cache", "v_cache")] == before


def test_wrong_arguments_over_pages() -> None:
    packed = Packed(RAGGED)
    table, varlen = packed.arrays["block_table"], public.flash_attn_varlen_func
    with pytest.raises(UnsupportedError, match=r"dropout_p: got 0\.1 with block_table, expected 0: gather"):
        varlen(*packed.given, dropout_p=0.1, block_table=table)
    with pytest.raises(UnsupportedError, match=r"dropout_p: got 0\.1 with leftpad_k, expected 0: gather"):
        private._flash_attn_varlen_forward(*packed.given, 0.1, 0.125, True, leftpad_k=packed.keys)
    with pytest.raises(InvalidArgumentError, match="return_softmax: got True with p_dropout"):
        private._flash_attn_varlen_forward(
            *packed.given, 0.0, 0.125, True, return_softmax=True, block_table=table
        )
    with pytest.raises(TypeError, match=r"block_table: got list, expected a torch\.Tensor"):
        varlen(*packed.given, block_table=[[0]])
    with pytest.raises(UnsupportedError, match=r"num_splits: got 2 without block_table_ or leftpad_k_, expe"):
        private._flash_attn_varlen_forward(*packed.given, 0.0, 0.125, True, num_splits=2)
    with pytest.raises(InvalidArgumentError, match="num_splits: got -1"):
        private._flash_attn_varlen_forward(*packed.given, 0.0, 0.125, True, block_table=table, num_splits=-1)
    keys = packed.arrays["k_cache"].flatten(0, 1)
    with pytest.raises(InvalidArgumentError, match=r"k: got shape .*expected 4 dimensions \(pages, page_si"):
        varlen(packed.q, keys, keys, *packed.given[3:], block_table=table)
    with pytest.raises(
        InvalidArgumentError, match=r"k: got shape .*expected 3 dimensions \(total_k, nhead_k"
    ):
        private._flash_attn_varlen_forward(*packed.given, 0.0, 0.125, True, leftpad_k=packed.keys)
    with pytest.raises(InvalidArgumentError, match="out: got dtype float32, expected bfloat16 as q"):
        packed.extension(table, None, None, packed.q.float())

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backend's classes by themselves: each layout of a cache, each kind of layer, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import vllm
from built import this_arch
from cases_judge import judge
from ml_dtypes import bfloat16
from reference import attention, numerics_of
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.attention.cross_attention import create_cross_attention_backend
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.mla.prefill.registry import MLAPrefillBackendEnum
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.kv_cache_layout import KVCacheLayout

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.vllm import VERSIONS, _versions, register
from pyfa_rocm.vllm._backend import Backend
from pyfa_rocm.vllm._impl import Impl
from pyfa_rocm.vllm._latent import LatentBackend, LatentDecode, LatentImpl, Prefill
from pyfa_rocm.vllm._metadata import Builder, Metadata

BLOCKS, SIZE, HEADS, KEYS, HDIM = 12, 16, 4, 2, 64
QUERIES, LENGTHS = (1, 20, 3), (33, 20, 50)  # a token, a prompt, and a draft
LAYER: Any = SimpleNamespace(layer_name="layers.0", _k_scale=torch.tensor(0.5), _v_scale=torch.tensor(2.0))


def laid_out(layout: KVCacheLayout, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A cache of a layer, (blocks, heads, tokens, elements), as vLLM cuts it from memory of three layers."""
    sizes = (3, *shape)
    memory = torch.zeros([sizes[i] for i in layout.stride_order], dtype=dtype)
    return memory.permute(*np.argsort(layout.stride_order).tolist())[1]


def step(queries: tuple[int, ...] = QUERIES, lengths: tuple[int, ...] = LENGTHS, **changes: Any) -> Metadata:
    """The metadata of a step, by default with a token, a prompt and a draft."""
    table = torch.arange(BLOCKS, dtype=torch.int32).flip(0).reshape(3, 4)
    starts = np.cumsum((0, *queries))
    slots = [
        int(table[b, place // SIZE]) * SIZE + place % SIZE
        for b, (new, length) in enumerate(zip(queries, lengths, strict=True))
        for place in range(length - new, length)
    ]
    fields = {
        "num_actual_tokens": sum(queries), "max_query_len": max(queries), "max_seq_len": max(lengths),
        "query_start_loc": torch.tensor(starts, dtype=torch.int32),
        "seq_lens": torch.tensor(lengths, dtype=torch.int32), "block_table": table,
        "slot_mapping": torch.tensor(slots), "causal": True, "begins": False,
    }  # fmt: skip
    return Metadata(**fields | changes)


def made(**changes: Any) -> Impl:
    """A layer's attention, in a model of bfloat16."""
    arguments = {
        "num_heads": HEADS, "head_size": HDIM, "scale": HDIM**-0.5, "num_kv_heads": KEYS,
        "alibi_slopes": None, "sliding_window": None, "kv_cache_dtype": "auto",
    }  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    try:
        layer = Impl(**arguments | changes)
    finally:
        torch.set_default_dtype(torch.float32)
    layer.process_weights_after_loading(torch.bfloat16)
    return layer


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def host(x: torch.Tensor) -> Any:
    """An array of bfloat16, or of what an 8-bit float stands for, with a batch."""
    if x.dtype == torch.bfloat16:
        return x.contiguous().view(torch.int16).numpy().view(bfloat16)[None]
    return x.float().numpy()[None]


def require(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, sinks: Any = None, **options: Any
) -> None:
    """Raise unless a sequence's attention is float64's, within what rounding explains."""
    numerics = numerics_of("bfloat16", None, 128, this_arch())
    logits = None if sinks is None else np.array(sinks, np.float32)
    judge(attention(host(q), host(k), host(v), numerics=numerics, sinks=logits, **options), host(out), None)


def places(meta: Metadata, b: int) -> list[int]:
    """Where the tokens of a sequence are."""
    return [int(meta.block_table[b, i // SIZE]) * SIZE + i % SIZE for i in range(int(meta.seq_lens[b]))]


def each(meta: Metadata) -> Iterator[tuple[slice, list[int]]]:
    """The rows of queries and the places of keys of each sequence."""
    for b, (start, end) in enumerate(pairwise(meta.query_start_loc.tolist())):
        yield slice(start, end), places(meta, b)


def check(layer: Impl, cache: torch.Tensor, **options: Any) -> None:
    """Fill a cache, do a step, and compare each sequence with float64."""
    meta, total = step(), sum(QUERIES)
    old, new = random(2, BLOCKS * SIZE, KEYS, HDIM), random(2, total + 5, KEYS, HDIM)
    q, out = random(total + 5, HEADS, HDIM), torch.zeros(total + 5, HEADS, HDIM).bfloat16()
    layer.do_kv_cache_update(LAYER, old[0], old[1], cache, torch.arange(BLOCKS * SIZE))
    # Padding, as in a captured step, has rows of no sequence and slots of -1.
    slots = torch.cat([meta.slot_mapping, torch.full((5,), -1)])
    layer.do_kv_cache_update(LAYER, new[0], new[1], cache, slots)
    layer.forward(LAYER, q, new[0], new[1], cache, meta, out)
    assert not out[total:].any()
    held = [x.clone() for x in old]
    for x, y in zip(held, new, strict=True):
        x[meta.slot_mapping] = y[:total]
    if layer.cache_dtype.itemsize == 1:
        given = held
        scales = float(LAYER._k_scale), float(LAYER._v_scale)
        held = [x.flatten(0, 1).float() * scale for x, scale in zip(layer.caches(cache), scales, strict=True)]
        for x, y in zip(held, given, strict=True):  # three bits of mantissa, and subnormals
            np.testing.assert_allclose(x, y.float(), rtol=2**-4, atol=2**-9)
    for rows, at in each(meta):
        require(q[rows], held[0][at], held[1][at], out[rows], causal=True, **options)


@pytest.mark.parametrize("layout", KVCacheLayout, ids=lambda x: x.name)
@pytest.mark.parametrize("kind", ["bfloat16", "fp8"])
def test_layouts(layout: KVCacheLayout, kind: str) -> None:
    """A cache is read and written where it lies, with scales if it has 8 bits."""
    name, dtype = ("fp8", torch.uint8) if kind == "fp8" else ("auto", torch.bfloat16)
    cache = laid_out(layout, (BLOCKS, KEYS, SIZE, 2 * HDIM), dtype)
    place = cache.data_ptr()
    check(made(kv_cache_dtype=name), cache)
    assert cache.data_ptr() == place
    assert cache.any()


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"sliding_window": 7}, {"window_size": (6, 0)}),
        ({"logits_soft_cap": 3.0}, {"softcap": 3.0}),
        (
            {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625]},
            {"alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625], np.float32)},
        ),
        ({"sinks": torch.tensor([0.0, 1.0, 2.0, 3.0]).bfloat16()}, {"sinks": np.arange(4, dtype=np.float32)}),
    ],
    ids=["window", "softcap", "alibi", "sinks"],
)
def test_features(arguments: dict[str, Any], options: dict[str, Any]) -> None:
    cache = laid_out(KVCacheLayout.LBNHC, (BLOCKS, KEYS, SIZE, 2 * HDIM), torch.bfloat16)
    check(made(**arguments), cache, **options)


def test_scales_of_heads() -> None:
    """One scale a layer, or one a head; they are looked at again when weights are loaded again."""
    layer = made(kv_cache_dtype="fp8")
    heads = SimpleNamespace(layer_name="x", _k_scale=torch.tensor([1.0, 2.0]), _v_scale=torch.tensor([3.0]))
    assert layer.scales(heads, 3)["k_scale"].tolist() == [[1.0, 2.0]] * 3
    assert layer.scales(heads, 1)["v_scale"].tolist() == [[3.0, 3.0]]
    heads._k_scale = torch.tensor(5.0)
    layer.process_weights_after_loading(torch.bfloat16)
    assert layer.scales(heads, 1)["k_scale"].tolist() == [[5.0, 5.0]]


@pytest.mark.parametrize("sinks", [None, (0.0, 1.0, 2.0, 3.0)], ids=["", "sinks"])
@pytest.mark.parametrize("window", [None, 5])
def test_encoder(window: int | None, sinks: tuple[float, ...] | None) -> None:
    """No cache; a window has two sides."""
    logits = None if sinks is None else torch.tensor(sinks)
    layer = made(attn_type="encoder_only", sliding_window=window, sinks=logits)
    q, (k, v) = random(24, HEADS, HDIM), random(2, 24, KEYS, HDIM)
    out = torch.zeros_like(q)
    layer.forward(LAYER, q, k, v, torch.empty(0), step(), out)
    sides = (-1, -1) if window is None else (window - 1, window - 1)
    for rows, _ in each(step()):
        require(q[rows], k[rows], v[rows], out[rows], sinks, window_size=sides)


def test_cross_attention() -> None:
    """vLLM's own wrapper: keys of the encoder are stored once, and read by each later token."""
    wrapped = create_cross_attention_backend(Backend)
    torch.set_default_dtype(torch.bfloat16)
    layer = wrapped.get_impl_cls()(HEADS, HDIM, HDIM**-0.5, KEYS, None, None, "auto", None, "encoder_decoder")
    torch.set_default_dtype(torch.float32)
    cache = laid_out(KVCacheLayout.LBNHC, (BLOCKS, KEYS, SIZE, 2 * HDIM), torch.bfloat16)
    k, v = random(2, 40, KEYS, HDIM)
    q = random(6, HEADS, HDIM)
    own = SimpleNamespace(layer_name="x", kv_sharing_target_layer_name=None)
    fields = {
        "num_actual_tokens": 3, "max_query_len": 3, "max_seq_len": 40, "causal": False,
        "query_start_loc": torch.tensor([0, 3], dtype=torch.int32),
        "seq_lens": torch.tensor([40], dtype=torch.int32),
        "block_table": torch.tensor([[5, 1, 9]], dtype=torch.int32),
    }  # fmt: skip
    slots = torch.tensor([[5, 1, 9][i // SIZE] * SIZE + i % SIZE for i in range(40)])
    out = torch.zeros_like(q)
    layer.forward(own, q[:3], k, v, cache, step(**fields, slot_mapping=slots), out[:3])
    layer.forward(own, q[3:], None, None, cache, step(**fields, slot_mapping=slots[:0]), out[3:])
    require(q, k, v, out)


def common(**changes: Any) -> CommonAttentionMetadata:
    """The step as vLLM's runner hands it to a builder."""
    meta = step()
    fields = {
        "query_start_loc": meta.query_start_loc, "query_start_loc_cpu": meta.query_start_loc,
        "seq_lens": meta.seq_lens, "num_reqs": 3, "num_actual_tokens": 24, "max_query_len": 20,
        "max_seq_len": 50, "block_table_tensor": meta.block_table, "slot_mapping": meta.slot_mapping,
        "seq_lens_cpu_upper_bound": meta.seq_lens,
    }  # fmt: skip
    return CommonAttentionMetadata(**fields | changes)


def test_builder() -> None:
    """It copies nothing. A captured step may meet longer sequences, none of which begins."""
    config: Any = SimpleNamespace(model_config=SimpleNamespace(max_model_len=512))
    builder = Builder(None, ["layers.0", "layers.1"], config, torch.device("cpu"))
    given = common()
    built = builder.build(0, given)
    assert built.block_table is given.block_table_tensor
    assert built.slot_mapping is given.slot_mapping
    assert not built.begins
    fresh = common(seq_lens_cpu_upper_bound=torch.tensor(QUERIES, dtype=torch.int32))
    assert builder.build(0, fresh).begins
    captured = builder.build_for_cudagraph_capture(fresh)
    assert (captured.begins, captured.max_seq_len) == (False, 512)
    assert builder.update_block_table(
        built, given.block_table_tensor[:1], given.slot_mapping[:1]
    ).block_table.shape == (1, 4)
    with pytest.raises(UnsupportedError, match=r"layers layers.0, layers.1: got causal and other sequences"):
        builder.build(0, common(causal=torch.tensor([True, False, True])))


def test_a_step_of_beginnings() -> None:
    """It goes to the forward kernels, with the same result as from the cache."""
    q, (k, v) = random(23, 1, 128), random(2, 23, 1, 128)
    meta = step(
        num_actual_tokens=23,
        query_start_loc=torch.tensor([0, 3, 23], dtype=torch.int32),
        max_seq_len=20,
        seq_lens=torch.tensor([3, 20], dtype=torch.int32),
        block_table=torch.tensor([[7, 0], [2, 3]], dtype=torch.int32),
        slot_mapping=torch.tensor([112, 113, 114, *range(32, 52)]),
    )
    cache = laid_out(KVCacheLayout.LBHNC, (BLOCKS, 1, SIZE, 256), torch.bfloat16)
    layer = made(num_heads=1, head_size=128, num_kv_heads=1, scale=128**-0.5)
    layer.do_kv_cache_update(LAYER, k, v, cache, meta.slot_mapping)
    outs = torch.zeros(2, 23, 1, 128).bfloat16()
    layer.forward(LAYER, q, k, v, cache, meta, outs[0])
    meta.begins = True
    layer.forward(LAYER, q, k, v, torch.empty(0), meta, outs[1])  # without the cache
    assert layer.may_begin
    for rows in (slice(0, 3), slice(3, 23)):
        for out in outs:
            require(q[rows], k[rows], v[rows], out[rows], causal=True)


def latent(**changes: Any) -> LatentImpl:
    """A layer of latent attention, in a model of bfloat16."""
    arguments = {
        "num_heads": HEADS, "head_size": 576, "scale": 192**-0.5, "num_kv_heads": 1, "alibi_slopes": None,
        "sliding_window": None, "kv_cache_dtype": "auto", "logits_soft_cap": None, "attn_type": "decoder",
        "kv_sharing_target_layer_name": None, "q_lora_rank": None, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "qk_head_dim": 192, "v_head_dim": 128, "kv_b_proj": None,
    }  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    try:
        with set_current_vllm_config(VllmConfig()):
            return LatentImpl(**arguments | changes)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", ["bfloat16", "fp8"])
def test_latent_attention(kind: str) -> None:
    """Rows in two parts, of which the first is the value; a token, a prompt and a draft in one launch."""
    name, dtype = ("fp8", torch.uint8) if kind == "fp8" else ("auto", torch.bfloat16)
    layer, meta = latent(kv_cache_dtype=name), step()
    cache = laid_out(KVCacheLayout.BLNHC, (BLOCKS, 1, SIZE, 576), dtype).squeeze(1)
    rows, scale = random(BLOCKS * SIZE, 576), torch.tensor(0.5)
    layer.do_kv_cache_update(rows[:, :512], rows[:, None, 512:], cache, torch.arange(len(rows)), name, scale)
    q = random(24, HEADS, 576)
    decode = LatentDecode(meta.block_table, meta.seq_lens, None, meta.query_start_loc, 20, 50)
    out, _ = layer.forward_mqa(
        (q[..., :512], q[..., 512:]), cache, SimpleNamespace(decode=decode, causal=True), LAYER
    )
    if kind == "fp8":
        rows = layer.rows(cache).flatten(0, 2).float() * 0.5
    for queries, at in each(meta):
        k = rows[at][:, None]
        require(q[queries], k, k[..., :512], out[queries], causal=True, softmax_scale=192**-0.5)


ASKED: dict[str, Any] = {
    "head_size": 64, "dtype": torch.bfloat16, "kv_cache_dtype": "auto", "block_size": 16, "use_mla": False,
    "has_sink": False, "use_sparse": False, "use_mm_prefix": False, "use_per_head_quant_scales": False,
    "device_capability": None, "attn_type": "decoder",
}  # fmt: skip


def test_what_vllm_asks() -> None:
    """It has these; latent attention has a name of its own."""
    for changes in (
        {}, {"has_sink": True}, {"has_sliding_window": True}, {"attn_type": "encoder_only"},
        {"block_size": 784},
        {"attn_type": "encoder_decoder"}, {"kv_cache_dtype": "fp8"}, {"head_size": 512}, {"head_size": 80},
        {"use_non_causal": True}, {"use_per_head_quant_scales": True, "kv_cache_dtype": "fp8"},
    ):  # fmt: skip
        assert Backend.validate_configuration(**ASKED | changes) == [], changes
    assert LatentBackend.validate_configuration(**ASKED | {"head_size": 576, "use_mla": True}) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"head_size": 520}, "takes fwd->hdim_q up to 512"),
        ({"head_size": 20}, "expected a multiple of 8"),
        ({"dtype": torch.float32}, "dtype not supported"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "expected one of auto, bfloat16, fp8, fp8_e4m3"),
        ({"kv_cache_dtype": "float16"}, "expected one of auto, bfloat16"),
        ({"block_size": 8}, "block_size not supported"),
        ({"use_mla": True}, "PYFA_ROCM_VLLM_MLA=1"),
        ({"use_mm_prefix": True}, "partial multimodal token full attention not supported"),
        ({"use_batch_invariant": True}, "batch invariance not supported"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_what_it_refuses(changes: dict[str, Any], reason: str) -> None:
    """The reason says what there is."""
    assert reason in "; ".join(Backend.validate_configuration(**ASKED | changes))


def test_context_parallelism_is_refused() -> None:
    """vLLM 0.29 does not ask for it here; it looks whether layers can return the log-sum-exp."""
    if vllm.__version__.startswith("0.29."):
        assert not Impl.can_return_lse_for_decode
        assert not LatentImpl.can_return_lse_for_decode
        return
    for backend, changes in ((Backend, {}), (LatentBackend, {"head_size": 576, "use_mla": True})):
        reasons = backend.validate_configuration(**ASKED | {"use_dcp": True} | changes)
        assert reasons == ["DCP not supported"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: made(head_size=520), "up to 512"),
        (lambda: made(kv_cache_dtype="fp8_e5m2"), "a cache of fp8_e5m2"),
        (lambda: made(attn_type="encoder", kv_cache_dtype="fp8"), "encoders have no cache"),
        (lambda: latent(sliding_window=8), "a window of latent attention"),
        (lambda: latent(head_size=640, kv_lora_rank=576), "up to 576"),
    ],
    ids=["hdim", "cache", "fp8", "window", "rank"],
)
def test_layers_that_it_refuses(make: Any, reason: str) -> None:
    """vLLM's CPU platform does not ask before."""
    with pytest.raises(UnsupportedError, match=r"a layer of .* attention with 4 heads") as caught:
        make()
    assert reason in str(caught.value)
    assert "PYFA_ROCM_VLLM_CPU" in str(caught.value)


def test_scale_of_the_output_is_refused() -> None:
    layer, nothing = made(), torch.empty(0)
    with pytest.raises(UnsupportedError, match=r"layers.0: got a scale of the output"):
        layer.forward(LAYER, nothing, nothing, nothing, nothing, step(), nothing, torch.ones(1))


@pytest.fixture
def clean() -> Iterator[None]:
    """Whatever a test registers, it takes back."""
    yield
    for member in (*AttentionBackendEnum, MLAPrefillBackendEnum.CUSTOM):
        member.clear_override()


@pytest.mark.usefixtures("clean")
def test_nothing_changes_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PYFA_ROCM_VLLM_CPU", "PYFA_ROCM_VLLM_MLA"):
        monkeypatch.delenv(variable, raising=False)
    register()
    register()
    assert [x.name for x in AttentionBackendEnum if x.is_overridden()] == ["CUSTOM"]
    assert AttentionBackendEnum.CUSTOM.get_class() is Backend
    assert MLAPrefillBackendEnum.CUSTOM.get_class() is Prefill
    monkeypatch.setenv("PYFA_ROCM_VLLM_MLA", "1")
    register()
    assert AttentionBackendEnum.TRITON_MLA.get_class() is LatentBackend
    monkeypatch.setenv("PYFA_ROCM_VLLM_CPU", "1")
    register()
    assert AttentionBackendEnum.CPU_ATTN.get_class() is Backend
    assert AttentionBackendEnum.CPU_MLA.get_class() is LatentBackend
    for backend in (Backend, LatentBackend):  # vLLM looks it up
        assert AttentionBackendEnum[backend.get_name()]


@pytest.mark.usefixtures("clean")
def test_the_backend_of_another_plugin_stays(caplog: pytest.LogCaptureFixture) -> None:
    register_backend(AttentionBackendEnum.CUSTOM, "others.Backend")
    register()
    assert AttentionBackendEnum.CUSTOM.get_path() == "others.Backend"
    assert "others.Backend already; VLLM_PLUGINS chooses plug-ins" in caplog.text


def test_versions() -> None:
    """The installed one is an end of the range; others are refused by name."""
    assert _versions.refusal() == ""
    ends = VERSIONS[0], (VERSIONS[1][0], VERSIONS[1][1] - 1)
    assert tuple(map(int, vllm.__version__.split(".")[:2])) in ends
    for version in ("0.29.0", "0.32.7+rocm"):
        assert _versions.refusal(version) == ""
    for version in ("0.28.4", "0.33.0", "1.32"):
        assert f"got vLLM {version}, expected 0.29 or newer and older than 0.33" in _versions.refusal(version)
    assert VERSIONS[0] < VERSIONS[1]

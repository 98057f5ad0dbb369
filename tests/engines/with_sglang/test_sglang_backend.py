# SPDX-License-Identifier: MIT OR Apache-2.0
"""SGLang's layers with our backend, over SGLang's own pools and batches, against float64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from built import this_arch
from cases_judge import judge
from engines import recorded
from engines.with_sglang import sglang_batches as sg
from engines.with_sglang.sglang_batches import HDIM, HEADS, KEYS, attend, batch, layer, place, random, runner
from ml_dtypes import bfloat16
from reference import attention, numerics_of
from sglang.srt.arg_groups import choices
from sglang.srt.layers import radix_attention
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.plugins import GENERAL_PLUGINS_GROUP, load_plugins_by_group

from pyfa_rocm import emulator
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.sglang import VERSIONS, _versions, register

LENGTHS = (33, 20, 50)
MIXES = {"tokens": (1, 1, 1), "chunks": (1, 20, 3), "prompts": LENGTHS}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"sliding_window_size": 6},
    "softcap": {"logit_cap": 3.0},
    "sinks": {},
    "encoder": {"attn_type": radix_attention.AttentionType.ENCODER_ONLY},
}
SINKS = torch.arange(HEADS).float()


@pytest.fixture(autouse=True)
def _registered() -> None:
    register()


def made(held: Any) -> tuple[Any, Any]:
    """A runner, and the backend that SGLang's register makes for it."""
    model = runner(held)
    return model, ATTENTION_BACKENDS["pyfa_rocm"](model)


def host(x: torch.Tensor) -> Any:
    """An array of bfloat16 or float32, with a batch."""
    if x.dtype == torch.bfloat16:
        return x.contiguous().view(torch.int16).numpy().view(bfloat16)[None]
    return x.float().numpy()[None]


def errors(out: torch.Tensor, q: Any, k: Any, v: Any, sinks: bool, **options: Any) -> float:
    """Raise unless a sequence's attention is float64's within what rounding explains; return the largest."""
    want = attention(
        host(q), host(k), host(v), numerics=numerics_of("bfloat16", None, 128, this_arch()), **options
    )
    got = host(out).astype(float)
    if sinks:
        kept = 1 / (1 + np.exp(SINKS.numpy() - want.lse.transpose(0, 2, 1)))[..., None]
        assert (np.abs(got - want.o * kept) <= want.o_tolerance).all()
        return float(np.abs(got - want.o * kept).max())
    judge(want, host(out), None)
    return float(np.abs(got - want.o).max())


def serve(model: Any, backend: Any, attended: Any, new: Sequence[int], case: str, mode: Any = None) -> float:
    """Fill the pool by an earlier step, do a step, compare each sequence; return the largest error."""
    place(model, LENGTHS)
    sinks = {"sinks": SINKS.bfloat16()} if case == "sinks" else {}
    total = sum(LENGTHS)
    k, v = random(2, total, KEYS, HDIM).unbind(0)
    starts = np.cumsum((0, *LENGTHS))
    before = [n - a for n, a in zip(LENGTHS, new, strict=True)]
    if any(before):
        known = [i for i, n in enumerate(before) if n]
        rows = torch.cat([torch.arange(starts[i], starts[i] + before[i]) for i in known])
        first = batch(model, before, before)
        if len(known) < len(before):
            keep = torch.tensor(known)
            first.req_pool_indices, first.seq_lens = first.req_pool_indices[keep], first.seq_lens[keep]
            first.seq_lens_cpu, first.batch_size = first.seq_lens, len(known)
            first.extend_seq_lens = first.extend_seq_lens[keep]
            first.extend_seq_lens_cpu = first.extend_seq_lens.tolist()
            first.extend_prefix_lens_cpu = [0] * len(known)
        backend.init_forward_metadata(first)
        attend(backend, attended, random(len(rows), HEADS, HDIM), k[rows], v[rows], first, **sinks)
    decodes = tuple(new) == MIXES["tokens"] and mode is None
    step = batch(model, LENGTHS, None if decodes else new, mode)
    rows = torch.cat([torch.arange(starts[i + 1] - n, starts[i + 1]) for i, n in enumerate(new)])
    q = random(len(rows), HEADS, HDIM)
    backend.init_forward_metadata(step)
    out = attend(backend, attended, q, k[rows], v[rows], step, **sinks).view(q.shape)
    caches = [x.flatten(0, 1) for x in backend._caches(attended)]
    if caches[0].dtype.itemsize == 1:
        scales = (attended.k_scale, attended.v_scale)
        caches = [x.float() * float(scale) for x, scale in zip(caches, scales, strict=True)]
    options: dict[str, Any] = {"causal": case != "encoder"}
    if case == "window":
        options["window_size"] = (CASES[case]["sliding_window_size"], 0)
    if case == "softcap":
        options["softcap"] = CASES[case]["logit_cap"]
    place_of, worst = np.cumsum((0, *new)), 0.0
    for i, length in enumerate(LENGTHS):
        slots = model.req_to_token_pool.req_to_token[i + 1, :length].long()
        if getattr(model.token_to_kv_pool, "layers_mapping", {}).get(attended.layer_id, (0, False))[1]:
            slots = model.token_to_kv_pool.translate_loc_from_full_to_swa(slots)
        mine = slice(starts[i], starts[i + 1])
        stored = [x[slots] for x in caches]
        for x, y in zip(stored, (k[mine], v[mine]), strict=True):
            if caches[0].dtype == torch.float32:  # three bits of mantissa, and subnormals
                np.testing.assert_allclose(x, y.float(), rtol=2**-4, atol=2**-9)
            else:
                assert torch.equal(x, y)
        part = slice(place_of[i], place_of[i + 1])
        worst = max(worst, errors(out[part], q[part], stored[0], stored[1], case == "sinks", **options))
    return worst


@pytest.mark.parametrize("page_size", [1, 16, 48, 64])
@pytest.mark.parametrize("mix", MIXES)
def test_steps(mix: str, page_size: int) -> None:
    """Single tokens, chunks mixed with a token, and prompts, in pages of any size."""
    model, backend = made(sg.pool(page_size))
    mode = ForwardMode.MIXED if mix == "chunks" else None
    serve(model, backend, layer(), MIXES[mix], "plain", mode)


@pytest.mark.parametrize(
    ("case", "mix"),
    # An encoder sees its whole prompt in one step.
    [(case, mix) for case in CASES for mix in MIXES if case != "encoder" or mix == "prompts"],
)
def test_features(case: str, mix: str) -> None:
    """Each in every kind of step; the page has what was measured."""
    model, backend = made(sg.pool(16))
    with emulator.profile() as profile:
        worst = serve(model, backend, layer(**CASES[case]), MIXES[mix], case)
    ran = sorted({x.kernel.partition(".")[0] for x in profile.launches if "kv_append" not in x.kernel})
    version = metadata.version("sglang")
    recorded.row("sglang.md", f"{version}: {case}, {mix}", f"{worst:.1e}", ", ".join(f"`{x}`" for x in ran))


@pytest.mark.parametrize("mix", MIXES)
def test_windows_with_a_pool_of_their_own(mix: str) -> None:
    """A layer with windows has other pages; the other layer's do not change."""
    model, backend = made(sg.pool(16, windows=True))
    serve(model, backend, layer(1, **CASES["window"]), MIXES[mix], "window")
    serve(model, backend, layer(0), MIXES[mix], "plain")


@pytest.mark.parametrize("mix", MIXES)
def test_caches_of_8_bits(mix: str) -> None:
    """The backend uses the scales that SGLang loads into a layer."""
    model, backend = made(sg.pool(16, torch.float8_e4m3fnuz))
    attended = layer()
    attended.k_scale, attended.v_scale = torch.tensor(0.5), torch.tensor(2.0)
    serve(model, backend, attended, MIXES[mix], "plain")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_cross_attention": True}, "cross attention is not written"),
        ({"head_dim": 20}, "expected a multiple of 8"),
        ({"logit_cap": 2.0, "logit_capping_method": "other"}, "expected 'tanh'"),
    ],
    ids=["cross", "hdim", "cap"],
)
def test_layers_that_it_refuses(change: dict[str, Any], reason: str) -> None:
    """The message names a backend that works."""
    held = sg.pool(16)
    model, backend = made(held)
    place(model, LENGTHS)
    step = batch(model, LENGTHS)
    backend.init_forward_metadata(step)
    width = change.get("head_dim", HDIM)
    if width != HDIM:
        held.k_buffer, held.v_buffer = (
            [x[..., :width].contiguous() for x in y] for y in (held.k_buffer, held.v_buffer)
        )
    k = random(3, KEYS, width)
    with pytest.raises(UnsupportedError, match="layer 0, of 4 heads") as caught:
        attend(backend, layer(**change), random(3, HEADS, width), k, k, step)
    assert reason in str(caught.value)
    assert "--attention-backend triton" in str(caught.value)


def test_models_and_steps_that_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    held = sg.pool()
    held.kv_cache_layout = "vectorized_5d"
    with pytest.raises(UnsupportedError, match="unset SGLANG_USE_HND_KVCACHE"):
        made(held)
    model, backend = made(sg.pool())
    place(model, LENGTHS)
    with pytest.raises(UnsupportedError, match="got TARGET_VERIFY, expected one of"):
        backend.init_forward_metadata(batch(model, LENGTHS, (3, 3, 3), ForwardMode.TARGET_VERIFY))
    step = batch(model, LENGTHS)
    backend.init_forward_metadata(step)
    k = random(3, KEYS, HDIM)
    with pytest.raises(UnsupportedError, match="got score_mod, expected no arguments besides sinks"):
        attend(backend, layer(), random(3, HEADS, HDIM), k, k, step, score_mod="x")


def test_sglang_finds_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel's entry point registers it; SGLang's command line knows the name, once."""
    project = (recorded.DOCS.parent / "pyproject.toml").read_text()
    found = re.findall(
        rf'^\[project.entry-points."{re.escape(GENERAL_PLUGINS_GROUP)}"\]\n(.*) = "(.*)"', project, re.M
    )
    ((name, place_of_it),) = found
    info = tmp_path / "pyfa_rocm-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pyfa-rocm\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[{GENERAL_PLUGINS_GROUP}]\n{name} = {place_of_it}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(ATTENTION_BACKENDS, "pyfa_rocm")
    ((plugin, _),) = load_plugins_by_group(GENERAL_PLUGINS_GROUP).values()
    plugin()
    plugin()
    assert "pyfa_rocm" in ATTENTION_BACKENDS
    assert choices.ATTENTION_BACKEND_CHOICES.count("pyfa_rocm") == 1


def test_versions() -> None:
    """The installed one is supported; others are refused by name."""
    assert _versions.refusal() == ""
    for version in ("0.5.22", "0.5.24", "0.6.0"):
        assert f"got SGLang {version}, expected 0.5.23 or newer" in _versions.refusal(version)
    assert VERSIONS[0] < VERSIONS[1]

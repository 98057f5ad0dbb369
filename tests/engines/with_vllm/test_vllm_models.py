# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random models in vLLM: our kernels against float64, beside vLLM's own attention.

Both round to bfloat16 wherever vLLM does, so each differs from float64 by many roundings, of which attention
does a few. The errors of vLLM's own kernels measure that, at the same tokens' sensitivity.

A layer rounds eleven times at least: two norms, four products, the rotation, O, the activation, two sums. Our
kernels may do one rounding that vLLM's do not, that of P, so errors may grow by sqrt(12 / 11) = 1.04. The
rest is sampling: a model gives 48 errors. The largest of two such samples of normal errors differ by less
than 2.39 times in 9999 of 10,000 cases; times 1.04 that is `LARGEST`. Their root mean squares differ by less
than 1.58 times in 999 of 1000 cases. Here it may be less, since our errors and vLLM's share the roundings
before the first attention: of samples of 384 tokens, 999 of 1000 are below 1.28 (gpt-oss), 1.39 (float16) and
1.43 (Llama), which times 1.04 is `RMS`. For all of these 384 tokens the root mean squares are 1.02, 0.99 and
1.01 times vLLM's, and the largest errors 1.19, 0.99 and 1.09 times. The mean of seven models or more varies
less, by exp(0.146 / sqrt(7)): `MEAN` is 1.04 and 3.7 such deviations.

A token may differ from float64's only if float64 prefers its own by less than two errors as large as vLLM's.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vllm
from engines.with_vllm.vllm_jobs import (
    COMPARED,
    FP8,
    LENGTHS,
    OF_PARALLEL,
    PARALLEL,
    ROOT,
    Judged,
    embedded,
    judge,
    prompts,
)

WITH_ORACLE = [name for name in COMPARED if name != "modernbert"]  # which has embeddings, see test_encoder
RMS, LARGEST, MEAN = 1.5, 2.5, 1.3
# Errors of bfloat16 stay below the first; those of a cache of 8-bit floats, 4 bits fewer, below the second.
NOISE, NOISE_OF_FP8 = 0.1, 0.5
KERNELS = {
    "llama": {"fmha_decode_bf16_d64", "fmha_decode_bf16_d64_m64"},
    "qwen3": {"fmha_decode_bf16_d128", "fmha_fwd_bf16_d128_group_mask_pad"},
    "gemma2": {"fmha_decode_bf16_d64", "fmha_decode_bf16_d64_m64"},
    "gpt_oss": {"fmha_decode_bf16_d64", "fmha_decode_bf16_d64_m64"},
    "bloom": {"fmha_decode_bf16_d64"},
    "deepseek": {"fmha_decode_bf16_d576v512"},
    "deepseek_64": {"fmha_decode_bf16_d576v512", "fmha_fwd_bf16_d128_group_mask_pad"},
    "modernbert": {"fmha_fwd_bf16_d64_group_mask_pad_pingpong", "fmha_fwd_bf16_d64_group_pad_pingpong"},
    "llama, float16": {"fmha_decode_fp16_d64"},
    FP8: {"fmha_decode_bf16_fp8_d64"},
}


@pytest.fixture(scope="module")
def judged(models: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, tuple[Judged, Judged]]:
    """Ours and theirs, against float64, by job."""
    given = prompts(*LENGTHS)
    found = {}
    for name in WITH_ORACLE:
        for report in (ours[name], theirs[name]):
            assert "error" not in report, report["error"]
        folder = models / COMPARED[name][0]
        mine, own = (judge(folder, given, report[name]["results"]) for report in (ours, theirs))
        found[name] = mine, own
    return found


@pytest.mark.parametrize("name", WITH_ORACLE)
def test_log_probabilities(name: str, judged: dict[str, tuple[Judged, Judged]]) -> None:
    """As near to float64 as vLLM's own attention."""
    mine, own = judged[name]
    assert mine.rms <= RMS * own.rms, (mine.rms, own.rms)
    assert mine.most <= LARGEST * own.most, (mine.most, own.most)
    assert own.most < (NOISE_OF_FP8 if "fp8" in name else NOISE)


def test_all_models(judged: dict[str, tuple[Judged, Judged]]) -> None:
    """All models together, where chance counts for less."""
    ratios = [mine.rms / own.rms for mine, own in judged.values()]
    assert np.exp(np.log(ratios).mean()) <= MEAN, ratios


@pytest.mark.parametrize("name", WITH_ORACLE)
def test_tokens(name: str, judged: dict[str, tuple[Judged, Judged]]) -> None:
    """Float64's, but for ties."""
    mine, own = judged[name]
    assert max(mine.lost) <= 2 * own.most


@pytest.mark.parametrize("name", ["deepseek", "deepseek_64"])
def test_latent_attention(name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    check_latent_attention(ours[name]["results"], theirs[name]["results"])


def check_latent_attention(ours: list[Any], theirs: list[Any]) -> None:
    """The same tokens as vLLM's own kernels, and log-probabilities, up to a tie."""
    for mine, own in zip(ours, theirs, strict=True):
        for place, (a, b) in enumerate(zip(mine["best"], own["best"], strict=True)):
            if mine["tokens"][place] != own["tokens"][place]:
                assert b[0][1] - b[1][1] < NOISE, "no tie"
                break
            assert a[0][1] == pytest.approx(b[0][1], abs=NOISE)


def test_encoder(models: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Embeddings of length 1, as near to float64 as with vLLM's own attention."""
    exact = embedded(models / "modernbert", prompts(*LENGTHS)).numpy()
    mine, own = (np.linalg.norm(x["modernbert"]["results"] - exact, axis=1) for x in (ours, theirs))
    assert np.sqrt((mine**2).mean()) <= RMS * np.sqrt((own**2).mean())
    assert mine.max() <= LARGEST * own.max()
    # bfloat16 has 2^-9 of each element, of which layers make a few.
    assert own.max() < 2**-6


@pytest.mark.parametrize("name", KERNELS)
def test_our_kernels_ran(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """The software device has seen their launches; without the plug-in there are none."""
    if name not in COMPARED:
        pytest.skip("vLLM has no caches of 8 bits on a CPU without AVX-512")
    assert KERNELS[name] <= set(ours[name]["kernels"]), ours[name]["kernels"]
    assert theirs[name]["kernels"] == []


def compared(mine: list[Any], own: list[Any]) -> tuple[int, int, float]:
    """Tokens that are equal, all of them up to each prompt's first tie, and the largest difference."""
    equal, count, worst = 0, 0, 0.0
    for a, b in zip(mine, own, strict=True):
        for place, (x, y) in enumerate(zip(a["tokens"], b["tokens"], strict=True)):
            count += 1
            if x != y:
                break
            equal += 1
            worst = max(worst, abs(a["best"][place][0][1] - b["best"][place][0][1]))
    return equal, count, worst


def row_of(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """A line of the page's table."""
    mine = ours[name]["results"]
    own = theirs[PARALLEL[name][0]]["results"][OF_PARALLEL] if name in PARALLEL else theirs[name]["results"]
    kernels = ", ".join(f"`{x}`" for x in ours[name]["kernels"] if "_decode_" in x or "_fwd_" in x)
    if name == "modernbert":
        tokens, worst = "embeddings", float(np.abs(np.subtract(mine, own)).max())
    else:
        equal, count, worst = compared(mine, own)
        tokens = f"{equal} of {count}"
    return f"| {name} | {tokens} | {worst:.4f} | {kernels} |"


def test_the_page_has_what_was_measured(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """PYFA_ROCM_RECORD=1 writes the table. On another CPU vLLM has other kernels, and other differences.

    A kernel of the page may not have run: the pace of the machine decides which prompt finds another one's
    keys. KERNELS has those that must.
    """
    page = ROOT / "docs" / "vllm.md"
    head = f"| vLLM {vllm.__version__.partition('+')[0]} | tokens equal | difference | kernels |"
    rows = [row_of(name, ours, theirs) for name in (*COMPARED, *PARALLEL)]
    text = page.read_text(encoding="utf-8")
    before, shown, behind = re.split(r"(?<=recorded: begin -->\n)|(?=<!-- recorded: end)", text)
    if os.environ.get("PYFA_ROCM_RECORD") == "1":
        kept = [] if FP8 in COMPARED else re.findall(rf"^\| {re.escape(FP8)} \| .*$", shown, re.M)
        written = rows[: len(COMPARED)] + kept + rows[len(COMPARED) :]
        table = "\n".join([head, "| --- | --- | --- | --- |", *written])
        page.write_text(f"{before}\n{table}\n\n{behind}", encoding="utf-8")
        return
    assert head in shown
    for row in rows:
        name, _, worst, kernels = row.strip("| ").split(" | ")
        (recorded,) = re.findall(rf"^\| {re.escape(name)} \| .*$", shown, re.M)
        assert set(kernels.split(", ")) <= set(recorded.strip("| ").split(" | ")[-1].split(", "))
        # Each is that far from float64 at most.
        assert float(worst) <= 2 * (NOISE_OF_FP8 if "fp8" in name else NOISE)

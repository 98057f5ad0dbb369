# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oldest vLLM that is supported, with three models; test_vllm_backend.py runs with it too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import vllm
from engines.with_vllm import vllm_jobs, vllm_models
from engines.with_vllm.test_vllm_models import NOISE, check_latent_attention

from pyfa_rocm.vllm import VERSIONS

JUDGED = ("llama", "gpt_oss")  # with float64
LATENT = "deepseek_64"  # with vLLM's own kernels
PROMPTS = vllm_jobs.prompts(130, 1, 17)  # the first in two parts
KERNELS = {
    "llama": {"fmha_decode_bf16_d64", "fmha_fwd_bf16_d64_group_mask_pad_pingpong"},
    "gpt_oss": {"fmha_decode_bf16_d64"},
    "deepseek_64": {"fmha_decode_bf16_d576v512", "fmha_fwd_bf16_d128_group_mask_pad"},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in KERNELS:
        vllm_models.save(name, folder)
    return folder


@pytest.fixture(scope="module")
def reports(models: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of our kernels and of vLLM's own, at the same time."""
    jobs = [
        job | {"prompts": [PROMPTS], "tokens": 4}
        for job in vllm_jobs.compared(models, {name: vllm_jobs.COMPARED[name] for name in KERNELS})
    ]
    plugin = vllm_jobs.install_entry_point(tmp_path_factory.mktemp("plugin"))
    folders = [tmp_path_factory.mktemp(name) for name in ("ours", "theirs")]
    with ThreadPoolExecutor() as both:
        mine = both.submit(vllm_jobs.work, jobs, folders[0], plugin)
        own = both.submit(vllm_jobs.work, [x for x in jobs if x["name"] == LATENT], folders[1], None)
        return mine.result(), own.result()


def test_it_is_the_oldest() -> None:
    """The first end of the range; tests/engines/with_vllm has the other."""
    assert vllm.__version__.split(".")[:2] == [str(x) for x in VERSIONS[0]]


@pytest.mark.parametrize("name", JUDGED)
def test_log_probabilities(name: str, models: Path, reports: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Float64's and its tokens, but for ties, within the bound of the newest version's tests."""
    report = reports[0][name]
    assert "error" not in report, report["error"]
    judged = vllm_jobs.judge(models / name, PROMPTS, report["results"])
    assert judged.most < NOISE
    assert max(judged.lost) < 2 * NOISE


def test_latent_attention(reports: tuple[dict[str, Any], dict[str, Any]]) -> None:
    mine, own = (x[LATENT] for x in reports)
    for report in (mine, own):
        assert "error" not in report, report["error"]
    check_latent_attention(mine["results"], own["results"])


@pytest.mark.parametrize("name", KERNELS)
def test_our_kernels_ran(name: str, reports: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert KERNELS[name] <= set(reports[0][name]["kernels"]), reports[0][name]["kernels"]

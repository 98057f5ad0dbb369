# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models, and the reports of vLLM's processes, each once a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engines.with_vllm import vllm_jobs, vllm_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models, by their names."""
    folder = tmp_path_factory.mktemp("models")
    for name in vllm_models.MODELS:
        vllm_models.save(name, folder)
    return folder


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that makes vLLM find our entry point."""
    return vllm_jobs.install_entry_point(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="session")
def theirs(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The reports of vLLM with its own attention."""
    return vllm_jobs.work(vllm_jobs.compared(models), tmp_path_factory.mktemp("theirs"), None)


@pytest.fixture(scope="session")
def ours(models: Path, plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The reports of the same jobs with our kernels, and of those that only these do."""
    jobs = vllm_jobs.compared(models) + vllm_jobs.ours(models)
    return vllm_jobs.work(jobs, tmp_path_factory.mktemp("ours"), plugin)

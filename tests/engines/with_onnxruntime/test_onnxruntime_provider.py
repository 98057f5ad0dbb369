# SPDX-License-Identifier: MIT OR Apache-2.0
"""The provider itself: devices, memory, threads, and which nodes ran where."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from engines.with_onnxruntime.expectations import randoms
from engines.with_onnxruntime.sessions import LIBRARY, PROVIDER, Array, Case, device, our_session, run


def drawn(seed: int, batch: int = 2, seqlen: int = 67) -> Case:
    """A node with numbers."""
    rng = np.random.default_rng(seed)
    query, key, value = (randoms(rng, (batch, seqlen, 2 * 64), np.dtype(np.float16)) for _ in range(3))
    shapes: dict[str, Sequence[Any]] = {
        name: ["batch", "length", 2 * 64] for name in ("query", "key", "value")
    }
    inputs: dict[str, Array | None] = {"query": query, "key": key, "value": value}
    return Case("MultiHeadAttention", inputs, ["output"], {"num_heads": 2}, shapes=shapes)


def free_bytes() -> int:
    """The device's memory that nobody has."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    library = ctypes.CDLL("libfmha_rocm.so.0")  # which the provider has loaded
    library.fmha_hip_runtime_path.restype = ctypes.c_char_p
    hip = ctypes.CDLL(library.fmha_hip_runtime_path().decode())
    assert hip.hipMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value


def test_devices() -> None:
    found = [d for d in ort.get_ep_devices() if d.ep_name == PROVIDER]
    assert [d.ep_metadata["hip_device"] for d in found] == ["0", "1"]
    assert {d.ep_vendor for d in found} == {"fmha_rocm"}
    case = drawn(0)
    first, second = (run(our_session(case.model(), number=i), case.feeds())[0] for i in (0, 1))
    np.testing.assert_array_equal(first, second)


def test_without_hip_there_is_no_device() -> None:
    code = (
        "import onnxruntime as ort, sys\n"
        "ort.register_execution_provider_library('fmha', sys.argv[1])\n"
        f"print([d for d in ort.get_ep_devices() if d.ep_name == '{PROVIDER}'])"
    )
    environment = os.environ | {"FMHA_HIP_RUNTIME": "/nonexistent/libamdhip64.so"}
    done = subprocess.run(
        [sys.executable, "-c", code, LIBRARY], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
    assert "no device: " in done.stderr
    assert "/nonexistent/libamdhip64.so" in done.stderr


def test_memory_is_kept_between_runs_and_goes_with_the_session() -> None:
    gc.collect()  # sessions of other tests go now, not in between
    case, before = drawn(0), free_bytes()
    session = our_session(case.model())
    run(session, case.feeds())
    kept = free_bytes()
    assert kept < before
    for _ in range(5):
        run(session, case.feeds())
        assert free_bytes() == kept
    del session
    gc.collect()
    assert free_bytes() == before


def test_threads_share_a_session() -> None:
    cases = [drawn(seed, batch=1 + seed % 3, seqlen=5 + 9 * seed) for seed in range(8)]
    session = our_session(cases[0].model())
    alone = [run(session, case.feeds())[0] for case in cases]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda case: run(session, case.feeds())[0], cases * 4))
    for got, want in zip(together, alone * 4, strict=True):
        np.testing.assert_array_equal(got, want)


def test_profile_names_the_provider(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.add_provider_for_devices([device()], {})
    case = drawn(0)
    session = ort.InferenceSession(case.model(), options)
    run(session, case.feeds())
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = {event["args"].get("provider") for event in events if event["name"].endswith("kernel_time")}
    assert PROVIDER in ran

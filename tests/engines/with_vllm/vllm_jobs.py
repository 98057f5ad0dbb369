# SPDX-License-Identifier: MIT OR Apache-2.0
"""The jobs of vLLM in these tests, the processes that do them, and the right answers."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers as tr

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("vllm_worker.py")
LENGTHS = (300, 1, 5, 17, 40, 130)
TOKENS = 8
# vLLM's kernel for CPUs does not rotate latent queries and keys as DeepSeek does, whoever computes attention:
# torch does it instead.
LATENT: dict[str, Any] = {"compilation_config": {"custom_ops": ["-rotary_embedding"]}}
POOLING = {"runner": "pooling", "max_num_batched_tokens": 512}
# Jobs by name: the model, and what the engine is told. Our kernels do them in one process, vLLM's in another.
Jobs = dict[str, tuple[str, dict[str, Any]]]
COMPARED: Jobs = {
    "llama": ("llama", {}), "qwen3": ("qwen3", {}), "gemma2": ("gemma2", {}), "gpt_oss": ("gpt_oss", {}),
    "bloom": ("bloom", {}), "deepseek": ("deepseek", LATENT), "deepseek_64": ("deepseek_64", LATENT),
    "modernbert": ("modernbert", POOLING), "llama, float16": ("llama", {"dtype": "float16"}),
}  # fmt: skip
# vLLM for CPUs refuses a cache of 8 bits where these have no AVX-512, whoever computes attention.
FP8 = "llama, fp8 cache"
if "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
    COMPARED[FP8] = ("llama", {"kv_cache_dtype": "fp8"})
# The same with two workers: each has half of the heads, or of the layers. Only our kernels do these. A stage
# of a pipeline takes its input in tensors that vLLM's warm-up makes, and vLLM for CPUs warms up only what it
# compiles. So Dynamo traces that model (mode 2), and runs what it has traced eagerly.
TENSOR: dict[str, Any] = {"tensor_parallel_size": 2}
PIPELINE: dict[str, Any] = {
    "pipeline_parallel_size": 2, "enforce_eager": False, "compilation_config": {"mode": 2, "backend": "eager"}
}  # fmt: skip
PARALLEL: Jobs = {
    "gpt_oss, tensor parallel 2": ("gpt_oss", TENSOR),
    "llama, pipeline parallel 2": ("llama", PIPELINE),
}
# The same in graphs, which vllm_graphs.py gives to vLLM for CPUs: of 2 and 8 sequences of a token, and of 128
# tokens of any mix. vLLM's passes that fuse operators of quantised models have no code for CPUs.
SIZES = (2, 8, 128)
GRAPHS: dict[str, Any] = {
    "mode": 3, "backend": "eager", "cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": SIZES,
    "pass_config": {"fuse_norm_quant": False, "fuse_act_quant": False},
}  # fmt: skip
GRAPH_JOB = {"graphs": True, "profile": False, "environment": {"VLLM_DISABLE_COMPILE_CACHE": "1"}}
CAPTURED: Jobs = {
    f"{name}, graphs": (name, {"enforce_eager": False, "compilation_config": GRAPHS | more})
    for name, more in (("gpt_oss", {}), ("deepseek_64", LATENT["compilation_config"]))
}
OF_PARALLEL = slice(None, 1, -1)  # their prompts, without the longest; and one process's answers to these
LAYOUTS = ("LBNHC", "LBHNC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
# vLLM is told these in each process, whoever computes attention.
SETTINGS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip


def prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    """Random prompts of these lengths."""
    numbers = random.Random(seed)
    return [[numbers.randrange(4, 512) for _ in range(length)] for length in lengths]


def compared(models: Path, jobs: Jobs = COMPARED) -> list[dict[str, Any]]:
    """The jobs that both do; or others of the same prompts."""
    return [
        {
            "name": name, "model": str(models / model), "prompts": [prompts(*LENGTHS)], "tokens": TOKENS,
            "encodes": options is POOLING, "options": options, "profile": True,
        }
        for name, (model, options) in jobs.items()
    ]  # fmt: skip


def ours(models: Path) -> list[dict[str, Any]]:
    """The jobs that only our kernels do: of a Llama, with two workers, and in graphs."""
    model, small = str(models / "llama"), {"block_size": 16, "max_num_seqs": 8}
    again = prompts(40, 40, seed=1)
    prefixes = [again[:1], [again[0] + again[1][:5], again[0]], [again[1], again[1]]]
    many = [prompts(*[48] * 6, seed=2)]
    squeezed = small | {"num_gpu_blocks_override": 16, "max_model_len": 128}
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    repeated = [[x * 8 for x in prompts(5, 6, seed=3)]]
    jobs: list[dict[str, Any]] = [
        {"name": f"layout {x}", "prompts": [prompts(40, 5)], "tokens": 3, "options": small,
         "environment": {"VLLM_KV_CACHE_LAYOUT": x}}
        for x in LAYOUTS
    ]  # fmt: skip
    jobs += [
        {"name": "prefixes", "prompts": prefixes, "tokens": TOKENS, "options": small},
        {"name": "roomy", "prompts": many, "tokens": 16, "options": small},
        {"name": "squeezed", "prompts": many, "tokens": 16, "options": squeezed},
        {"name": "no drafts", "prompts": repeated, "tokens": 12},
        {"name": "refused", "prompts": many, "tokens": 1, "options": {"kv_cache_dtype": "fp8_e5m2"}},
        # The last, since vLLM without Triton cannot start another engine after it.
        {"name": "drafts", "prompts": repeated, "tokens": 12, "options": {"speculative_config": drafts}},
    ]
    parallel = [job | {"prompts": [prompts(*LENGTHS)[OF_PARALLEL]]} for job in compared(models, PARALLEL)]
    captured = [job | GRAPH_JOB for job in compared(models, CAPTURED)]
    return parallel + captured + [{"model": model} | job for job in jobs]


def install_entry_point(folder: Path) -> Path:
    """Write the files that make an entry point of pyproject known, as pip would."""
    text = (ROOT / "pyproject.toml").read_text()
    (group,) = re.findall(r'^\[project\.entry-points\."(vllm\.\w+)"\]$', text, re.MULTILINE)
    (line,) = re.findall(rf'"{re.escape(group)}"\]\n(\w+ = )"(.*)"', text)
    info = folder / "pyfa_rocm-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pyfa-rocm\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{''.join(line)}\n")
    return folder


def environment(plugin: Path | None, **more: str) -> dict[str, str]:
    """The variables of a process with vLLM; with the plug-in's folder, our kernels compute its attention."""
    variables = os.environ | SETTINGS | more
    found = [os.environ.get("PYTHONPATH", ""), str(ROOT), *([] if plugin is None else [str(plugin)])]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    if plugin is not None:
        variables["PYFA_ROCM_VLLM_CPU"] = "1"
    return variables


def work(jobs: list[dict[str, Any]], folder: Path, plugin: Path | None, **more: str) -> dict[str, Any]:
    """The reports of jobs, by their names, from a process of its own."""
    folder.mkdir(exist_ok=True)
    files = folder / "jobs.json", folder / "reports.json"
    files[0].write_text(json.dumps(jobs))
    variables = environment(plugin, VLLM_ENABLE_V1_MULTIPROCESSING="0", **more)
    command = [sys.executable, str(WORKER), *map(str, files)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    reports: dict[str, Any] = json.loads(files[1].read_text())
    return reports


@dataclass(frozen=True)
class Judged:
    """How far an engine is from float64, over all tokens that it chose.

    Attributes
    ----------
    errors : list of float
        Of the log-probability of each.
    lost : list of float
        By how much float64 prefers another token, for each: 0 if it does not.
    """

    errors: list[float]
    lost: list[float]

    @property
    def most(self) -> float:
        """The largest error."""
        return max(self.errors)

    @property
    def rms(self) -> float:
        """The errors' root mean square."""
        return float((sum(x * x for x in self.errors) / len(self.errors)) ** 0.5)


def judge(model: Path, given: list[list[int]], answers: list[dict[str, Any]]) -> Judged:
    """Compare with float64, which reads the tokens that the engine chose: a tie does not lead away."""
    oracle = tr.AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    errors, lost = [], []
    for prompt, answer in zip(given, answers, strict=True):
        tokens = answer["tokens"]
        with torch.no_grad():
            logits = oracle(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1 :]
        right = logits.double().log_softmax(-1)
        for place, token, best in zip(right, tokens, answer["best"], strict=True):
            errors.append(abs(float(place[token]) - dict(map(tuple, best))[token]))
            lost.append(float(place.max() - place[token]))
    return Judged(errors, lost)


def embedded(model: Path, given: list[list[int]]) -> torch.Tensor:
    """Return an encoder's embeddings in float64: the first token's, of length 1."""
    oracle = tr.AutoModel.from_pretrained(model, dtype=torch.float64, attn_implementation="eager").eval()
    with torch.no_grad():
        first = [oracle(torch.tensor([prompt])).last_hidden_state[0, 0] for prompt in given]
    return torch.nn.functional.normalize(torch.stack(first), dim=-1)

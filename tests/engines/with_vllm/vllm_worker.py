# SPDX-License-Identifier: MIT OR Apache-2.0
"""A process with vLLM in it: it reads jobs from a file, and writes their results to another.

A job is a model and what `LLM` is to be told about it, with prompts of token numbers. It gives, for each
prompt, the tokens, and for each token the likeliest two with their log-probabilities; or an embedding. And it
says what each of vLLM's workers had, which are processes of their own if there are several.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

OURS = os.environ.get("PYFA_ROCM_VLLM_CPU") == "1"


def results(job: dict[str, Any], llm: Any) -> list[Any]:
    """Do a job; each call of the engine has a list of prompts."""
    from vllm import SamplingParams

    found: list[Any] = []
    for numbers in job["prompts"]:
        prompts = [{"prompt_token_ids": x} for x in numbers]
        if job.get("encodes"):
            found += [x.outputs.embedding for x in llm.embed(prompts, use_tqdm=False)]
            continue
        sampling = SamplingParams(temperature=0, max_tokens=job["tokens"], logprobs=2, ignore_eos=True)
        for answer in llm.generate(prompts, sampling, use_tqdm=False):
            (one,) = answer.outputs
            best = [[[token, x.logprob] for token, x in place.items()] for place in one.logprobs]
            found.append({"tokens": list(one.token_ids), "best": best, "cached": answer.num_cached_tokens})
    return found


def counted(llm: Any) -> dict[str, float]:
    """vLLM's own counters."""
    return {x.name: x.value for x in llm.get_metrics() if hasattr(x, "value")}


def begin_profile(worker: Any) -> None:
    """Let a worker note the launches that follow."""
    from contextlib import ExitStack

    from pyfa_rocm import emulator

    worker.profiles = ExitStack()
    worker.profile = worker.profiles.enter_context(emulator.profile())


def end_profile(worker: Any) -> list[str]:
    """Return the kernels that a worker has launched since."""
    worker.profiles.close()
    return sorted({launch.kernel for launch in worker.profile.launches})


def share(worker: Any) -> dict[str, Any]:
    """Return what is a worker's own: its process, the heads of its layers, and the strides of its cache."""
    runner, layers = worker.worker.model_runner, worker.worker.vllm_config.compilation_config
    impls = {name: getattr(x, "impl", None) for name, x in layers.static_forward_context.items()}
    heads = {name: [x.num_heads, x.num_kv_heads] for name, x in impls.items() if x is not None}
    return {"pid": os.getpid(), "heads": heads, "strides": [x.stride() for x in runner.kv_caches[:1]]}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Start an engine, do a job, and stop it; with graphs if the job has them."""
    if not job.get("graphs"):
        return served(job)
    graphs = importlib.import_module("vllm_graphs")  # beside this file, where Python looks

    with graphs.graphs_on_the_cpu() as counts:
        return served(job) | {"graphs": dict(counts)}


def served(job: dict[str, Any]) -> dict[str, Any]:
    """Start an engine, do a job, and stop it."""
    from vllm import LLM

    options = {
        "dtype": "bfloat16", "max_model_len": 512, "enforce_eager": True, "block_size": 32,
        "max_num_batched_tokens": 128, "max_num_seqs": 8, "seed": 0, "disable_log_stats": False,
        "kv_cache_memory_bytes": 2**30,
    }  # fmt: skip
    llm = LLM(model=job["model"], **options | job.get("options", {}))
    report: dict[str, Any] = {"kernels": [], "results": results(job, llm), "counters": counted(llm)}
    report["ranks"] = llm.collective_rpc(share)
    if OURS and job.get("profile"):
        llm.collective_rpc(begin_profile)
        # Backwards, so that the cache does not have them.
        results(job | {"prompts": [[x[::-1] for x in job["prompts"][0][:2]]], "tokens": 3}, llm)
        for rank, kernels in zip(report["ranks"], llm.collective_rpc(end_profile), strict=True):
            rank["kernels"] = kernels
            report["kernels"] = sorted({*report["kernels"], *kernels})
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    return report


def main() -> int:
    """Run the jobs of a file; one that fails has its error as its result."""
    jobs, to = (Path(x) for x in sys.argv[1:])
    reports = {}
    for job in json.loads(jobs.read_text()):
        try:
            with patch.dict(os.environ, job.get("environment", {})):
                reports[job["name"]] = run(job)
        except Exception as error:  # the test says what is right
            chain, text = error, []
            while chain is not None:
                text.append(f"{type(chain).__name__}: {chain}")
                chain = chain.__cause__ or chain.__context__  # type: ignore[assignment]
            reports[job["name"]] = {"error": "\n".join(text)}
        to.write_text(json.dumps(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())

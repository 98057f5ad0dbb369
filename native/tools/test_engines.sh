#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the fourth group of tests: engines of others that call us by a plug-in of their own, on the software device of the
# build at hand. Each engine has an environment of its own, build/engines-NAME-venv, of pinned wheels.
#
#   test_engines.sh [ENGINE...] [-- PYTEST_ARGUMENT...]
#
# ENGINE is one of the names below, all of them if none is named. PYTHON (python3) is the interpreter of the environments.
# Every engine runs even if one before it failed; the last lines say what ran, in which versions, and how long it took.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

group=engines names=(vllm vllm_first sglang onnxruntime parallel)
TORCH=tests/adapters/requirements-cpu.txt
source native/tools/environments.sh
choose "$@"

# in_engine TEST...: pytest in $venv. Our own loader finds the software device: these programs are built for CPUs, and
# load no HIP.
in_engine() {
  in_venv "$venv" "$venv/bin/pytest" -c tests/engines/pytest.ini "$@" "${arguments[@]}"
}

engine_vllm() {
  make_venv vllm "$TORCH"
  run "vLLM ($versions)" in_engine tests/engines/with_vllm
}

# The oldest vLLM that is supported, before the newest one in its environment.
engine_vllm_first() {
  make_venv vllm "$TORCH"
  unpack vllm_first
  run "vLLM ($versions)" in_venv "$venv" env PYTHONPATH="$root/build/engines/vllm_first:$root" \
    "$venv/bin/pytest" -c tests/engines/pytest.ini \
    tests/engines/with_vllm/test_vllm_backend.py tests/engines/with_vllm_first "${arguments[@]}"
}

# SGLang's classes without its server, which needs a card.
engine_sglang() {
  make_venv sglang "$TORCH"
  run "SGLang ($(sed -n 's/^sglang==/sglang /p' tests/engines/with_sglang/requirements.in))" \
    in_engine tests/engines/with_sglang
}

# The provider is off in other builds. It loads HIP as a program for ROCm does.
engine_onnxruntime() {
  make_venv onnxruntime
  cmake -S . -B build/release -DFMHA_ONNXRUNTIME=ON --log-level=WARNING
  cmake --build build/release --target fmha_onnxruntime
  run "ONNX Runtime ($versions)" on_device "$venv" -- tests/engines/with_onnxruntime
}

# Its tests start processes themselves.
engine_parallel() {
  make_venv parallel tests/adapters/requirements.txt "$TORCH"
  run "context parallel ($versions)" in_engine tests/engines/with_parallel -n 0
}

for engine in "${chosen[@]}"; do "engine_$engine"; done
finish

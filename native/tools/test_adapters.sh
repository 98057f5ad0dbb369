#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the second group of tests against a wheel, installed beside the frameworks in build/adapters-venv, and first the
# wheel by itself in a clean environment.
#
#   test_adapters.sh WHEEL [PYTEST_ARGUMENT...]
#
# PYTHON (python3) is the interpreter.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ $# -ge 1 ] && [ -f "$1" ] || { echo "test_adapters.sh: got '${1:-}', expected a wheel file" >&2; exit 2; }
wheel=$(realpath "$1")
shift
python=${PYTHON:-python3} venv=$PWD/build/adapters-venv

native/tools/wheel/check_wheel.sh "$wheel" "$python"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }
# pip fetches no dependencies: the files name them all.
locked() { pip install --no-compile --no-deps --only-binary=:all: --require-hashes -r "tests/adapters/$1"; }
locked requirements.txt
locked requirements-cpu.txt || {
  echo "test_adapters.sh: pip finds no torch for CPUs; taking that for CUDA, which serves as well and is larger"
  locked requirements-cuda.txt
}
# On all cores; pip has one. The tests take a warning for an error, and Python warns of some modules when it compiles them.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$venv/bin/python" -m compileall -qq -j 0 "$site" || true  # templates among them are no Python
pip install --quiet --force-reinstall --no-deps "$wheel"  # of the same version, but not the same file
pip check
source native/tools/kept.sh
keep_jax
export PYFA_ROCM_TEST_INSTALLED=1 PYFA_ROCM_TEST_WHEEL=$wheel
# Not `python -m pytest`, which would put this folder, and so the source tree's package, first.
time "$venv/bin/pytest" -c tests/adapters/pytest.ini tests/adapters "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the conda package with some kernels of build/release, in build/conda, against a channel of stand-ins for conda-forge's packages, and
# tests it. py-rattler-build is in build/conda-venv, pinned.
#
#   test_conda.sh [PYTEST_ARGUMENT...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD locked=native/tools/fetch/conda-requirements.txt venv=$PWD/build/conda-venv out=$PWD/build/conda

if ! cmp -s "$locked" "$venv/.requirements"; then
  [ -x "$venv/bin/python" ] || build/venv/bin/python -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes \
    --only-binary=:all: -r "$locked"
  cp "$locked" "$venv/.requirements"
fi
rm -rf "$out/dist" "$out/channel" "$out/source" "$out/linux-64" "$out/broken"
mkdir -p "$out/source/build" "$out/source/native/tools"
# As the container file has it: these scripts, and the sdist in build/dist
cp -r native/tools/wheel "$out/source/native/tools/"
build/venv/bin/python -c 'import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])' \
  "$out/source/build/dist" >/dev/null 2>&1
FMHA_VERSION=$(basename "$out"/source/build/dist/pyfa_rocm-*.tar.gz .tar.gz | cut -d- -f2)
export FMHA_VERSION FMHA_TOOLCHAIN_DIR=$root/build/toolchain RATTLER_CACHE_DIR=$out/cache
# Kernels of build/release that the package's own test may take, and a software device for this machine
define=("FMHA_KERNELS_FROM=$root/build/release" FMHA_GPU_TARGETS=gfx942 "FMHA_KERNEL_FILTER=/fmha_(fwd|bwd|merge)_")
define+=(FMHA_EMU_LEVELS=native FMHA_EMU_WAVES=64 FMHA_CACHE=ON)
SKBUILD_CMAKE_DEFINE=$(IFS=';' && echo "${define[*]}")
export SKBUILD_CMAKE_DEFINE CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
# Programs of the system only
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
rm -rf "$RATTLER_CACHE_DIR"  # it knows packages by their names, and a stand-in's stays
"$venv/bin/python" tests/conda/channel.py "$out/channel" build/venv/bin/python
"$venv/bin/python" "$out/source/native/tools/wheel/build_conda.py" "$out" "file://$out/channel/" >"$out/log.txt" 2>&1 ||
  { tail -n 60 "$out/log.txt" >&2; exit 1; }
grep '^build_conda.py: ' "$out/log.txt"
build/venv/bin/python -m pytest tests/conda -p no:cacheprovider "$@"

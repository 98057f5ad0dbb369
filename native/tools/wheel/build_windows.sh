#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Cross-compiles the library for Windows, in build/windows, and packs a wheel of it; then compares what the DLL exports and
# needs with the public header.
#
#   build_windows.sh --kernels-from BUILD [--out DIR]
#
# BUILD: a CMake build for Linux, whose kernels are taken. DIR: the wheel's folder (build/dist).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
out=$root/build/dist kernels=
while [ $# -gt 0 ]; do
  case $1 in
    --kernels-from) kernels=$(realpath "$2"); shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) echo "build_windows.sh: unknown argument $1; expected --kernels-from BUILD or --out DIR" >&2; exit 2 ;;
  esac
done
[ -n "$kernels" ] || { echo "build_windows.sh: got no --kernels-from, expected that of a build with kernels" >&2; exit 2; }

source "$root/native/tools/wheel/wheel_venv.sh"
"$root/native/tools/fetch/fetch_zstd.sh" "$root/build/toolchain/zstd"
# scikit-build-core packs what the preset builds. Nothing is fetched: the kernels are there.
define=(-Cbuild-dir="$root/build/windows" -Ccmake.args=--preset=windows -Ccmake.define.FMHA_KERNELS_FROM="$kernels")
define+=(-Ccmake.define.FMHA_CACHE=ON -Ccmake.define.FMHA_PREPARE=OFF -Ccmake.define.FMHA_WERROR=ON)
mkdir -p "$out"
rm -f "$out"/pyfa_rocm-*-win_amd64.whl
PYFA_ROCM_PLATFORM=win-amd64 PATH=$venv/bin:$PATH \
  "$venv/bin/python" -m build --wheel --no-isolation "${define[@]}" --outdir "$out" "$root"
python3 "$root/native/tools/wheel/check_dll.py" "$root/build/windows/fmha_rocm.dll" "$root/native/include/fmha_rocm.h"
wheel=$(echo "$out"/pyfa_rocm-*-win_amd64.whl)
[ -f "$wheel" ] || { echo "build_windows.sh: got $(ls "$out"), expected a wheel for win_amd64" >&2; exit 1; }
echo "build_windows.sh: $wheel ($(du -h "$wheel" | cut -f1))"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the sdist, and from the sdist the wheel, as `python -m build` does for anybody; then checks that the wheel is
# what its name says.
#
#   build_wheel.sh [--kernels-from BUILD] [--out DIR]
#
# BUILD: a CMake build whose kernels are taken; without it the wheel's are compiled, which takes an hour or more.
# DIR: the folder for both (build/dist).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
out=$root/build/dist kernels=
while [ $# -gt 0 ]; do
  case $1 in
    --kernels-from) kernels=$(realpath "$2"); shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) echo "build_wheel.sh: unknown argument $1; expected --kernels-from BUILD or --out DIR" >&2; exit 2 ;;
  esac
done

source "$root/native/tools/wheel/wheel_venv.sh"
# The folder that the wheel is built from is thrown away; what was downloaded for an earlier build is not.
define=(-Ccmake.define.FMHA_TOOLCHAIN_DIR="$root/build/toolchain")
# Seen from the build's folder all paths are those of the last wheel: what was compiled for it is found in the cache.
define+=(-Cbuild-dir=build/wheel -Ccmake.define.FMHA_CACHE=ON)
[ -z "$kernels" ] || define+=(-Ccmake.define.FMHA_KERNELS_FROM="$kernels")
mkdir -p "$out"
rm -f "$out"/pyfa_rocm-*.whl "$out"/pyfa_rocm-*.tar.gz
PATH=$venv/bin:$PATH "$venv/bin/python" -m build --no-isolation "${define[@]}" --outdir "$out" "$root"

wheel=$(echo "$out"/pyfa_rocm-*linux*.whl)
said=$("$venv/bin/auditwheel" show "$wheel")
tag=$(grep -o 'manylinux_[0-9_]*x86_64' <<<"${wheel##*/}")
# auditwheel names the oldest glibc that would do; the name may promise less.
python3 - "$tag" "$said" <<'PYTHON'
import re, sys
glibc = lambda tag: tuple(map(int, re.match(r"manylinux_(\d+)_(\d+)_", tag).groups()))
named, said = sys.argv[1:]
found = re.search(r'consistent with the following platform tag: "(manylinux_\w+)"', " ".join(said.split()))
if not found or glibc(found[1]) > glibc(named):
    print(said, file=sys.stderr)
    sys.exit(f"build_wheel.sh: the wheel is named {named}; auditwheel: {found[1] if found else 'no manylinux'}")
PYTHON
echo "build_wheel.sh: $wheel ($(du -h "$wheel" | cut -f1)) is what its name says, $tag"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs a wheel file as a user does, in a fresh virtual environment, and proves it on the software device: no
# compiler, ROCm, framework, root or source tree is used, and none is found by accident.
#
#   check_wheel.sh WHEEL [PYTHON]
#
# PYTHON (python3) is the interpreter to make the environment with; its dependencies come from pip's own index.
set -euo pipefail

[ $# -ge 1 ] && [ -f "$1" ] || { echo "check_wheel.sh: got '${1:-}', expected a wheel file" >&2; exit 2; }
wheel=$(realpath "$1") python=${2:-python3}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$python" -m venv "$place/venv"
cd "$place"
# Neither what the caller has set for this package nor a source tree on its path counts.
for name in $(env | grep -oE '^(PYFA_ROCM|FMHA)_[A-Z_]+' || true) PYTHONPATH; do unset "$name"; done
venv/bin/python -m pip install --disable-pip-version-check --quiet "$wheel"
here() { "$place/venv/bin/$@"; }

found=$(here python -c 'import pyfa_rocm; print(pyfa_rocm.__file__)')
[[ $found == "$place/venv/"* ]] || { echo "check_wheel.sh: got $found, expected the installed one" >&2; exit 1; }
echo "check_wheel.sh: $(here python --version), $(. /etc/os-release && echo "$PRETTY_NAME"), user $(id -u)"
# A wheel is redistributed: it must carry the licences of the third-party code in it.
here python - <<'PYTHON'
import importlib.metadata, sys
files = {str(path).split("third-party/")[-1]: path for path in importlib.metadata.files("pyfa-rocm") or ()}
for name in ("aiter", "composable_kernel", "hip", "nlohmann-json", "rocm-device-libs", "xla", "zstd"):
    path = files.get(f"{name}.txt")
    if path is None or ".dist-info/licenses/" not in str(path) or "Copyright" not in path.read_text():
        sys.exit(f"check_wheel.sh: the wheel has no licence of {name} in its dist-info/licenses/third-party")
PYTHON
here pyfa-rocm info
here pyfa-rocm prove
here pyfa-rocm prove --backend c
# The wheel has the software device under one name; a program may ask for another.
XDG_CACHE_HOME=$place/cache here pyfa-rocm device -- "$place/venv/bin/python" -c \
  'import ctypes; assert ctypes.CDLL("libamdhip64.so.7").hipInit(0) == 0'
echo "check_wheel.sh: passed"

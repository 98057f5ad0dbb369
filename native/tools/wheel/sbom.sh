#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Writes what a wheel consists of and depends on, as CycloneDX 1.6: sbom.sh WHEEL OUT
#
# cyclonedx-py lists an environment that has the wheel and its dependencies; add_native.py adds the code that is compiled
# in, whose licences the wheel carries.
set -euo pipefail

[ $# -eq 2 ] && [ -f "$1" ] || { echo "sbom.sh: got '${1:-}', expected a wheel file, and the file to write" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) wheel=$(realpath "$1") out=$(realpath "$2")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/tools"
python3 -m venv --without-pip "$place/wheel"  # so that the list has no pip
"$place/tools/bin/python" -m pip install --disable-pip-version-check -q --require-hashes --only-binary=:all: \
  -r "$here/../fetch/sbom-requirements.txt"
"$place/tools/bin/python" -m pip --python "$place/wheel/bin/python" install --disable-pip-version-check -q "$wheel"
"$place/tools/bin/cyclonedx-py" environment --output-reproducible --sv 1.6 -o "$place/python.json" "$place/wheel/bin/python"
"$place/tools/bin/python" "$here/add_native.py" "$wheel" "$place/python.json" "$out"

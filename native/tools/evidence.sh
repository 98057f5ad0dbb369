#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Writes build/evidence/index.html, the page of evidence, for the build at hand, and looks at it in a browser.
#
#   evidence.sh [MEASURED]
#
# MEASURED is what `pyfa-rocm first-day` wrote on a card: the page shows its times beside the clock's.
# It collects in build/venv, draws in build/evidence-venv, whose wheels are pinned, and tests in build/venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
locked=native/tools/fetch/evidence-requirements.txt venv=$PWD/build/evidence-venv page=build/evidence

if ! cmp -s "$locked" "$venv/.requirements"; then
  [ -x "$venv/bin/python" ] || build/venv/bin/python -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes \
    --only-binary=:all: -r "$locked"
  cp "$locked" "$venv/.requirements"
fi
PYTHONPATH=tests:tests/support:native/tools/catalogue build/venv/bin/python -m benchmarks.evidence.collect \
  --errors "${ERRORS:-build/release/errors}" --out "$page/evidence.json" ${1:+--measured "$1"}
"$venv/bin/python" -m benchmarks.evidence.render "$page/evidence.json" "$page/index.html"
build/venv/bin/python -m pytest tests/evidence -p no:cacheprovider
echo "evidence: $page/index.html, $(wc -c <"$page/index.html") bytes"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes build/site/html, the documentation as a site, and looks at it in a browser.
#
# Sphinx runs in build/site-venv, whose wheels are pinned, and the tests in build/venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
locked=native/tools/fetch/site-requirements.txt venv=$PWD/build/site-venv site=build/site

if ! cmp -s "$locked" "$venv/.requirements"; then
  [ -x "$venv/bin/python" ] || build/venv/bin/python -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes \
    --only-binary=:all: -r "$locked"
  cp "$locked" "$venv/.requirements"
fi
"$venv/bin/python" native/tools/site/stage.py "$site/pages"
# -n, -W: a link to nothing is an error. -E: nothing is left of a page that was removed.
"$venv/bin/python" -m sphinx -n -W -E --keep-going -q -b html -c native/tools/site -d "$site/doctrees" "$site/pages" "$site/html"
build/venv/bin/python -m pytest tests/site -p no:cacheprovider
echo "site: $site/html/index.html, $(find "$site/html" -name '*.html' | wc -l) pages"

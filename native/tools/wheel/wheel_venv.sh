# SPDX-License-Identifier: MIT OR Apache-2.0
# $venv, an environment of the tools that build wheels, for scripts that have set $root. The tools are pinned by hash, so that
# a build does not fetch them into an environment of its own.
locked=$root/native/tools/fetch/wheel-requirements.txt venv=$root/build/wheel-venv
cmp -s "$locked" "$venv/.requirements" || {
  python3 -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --disable-pip-version-check -q --require-hashes --only-binary=:all: -r "$locked"
  cp "$locked" "$venv/.requirements"
}

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the library and the wheel for Windows, with the kernels of build/release, and tests them beside the library for Linux.
# Wine runs the DLL, with a HIP of our own that runs nothing.
#
#   test_windows.sh [PYTEST_ARGUMENT...]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
native/tools/wheel/build_windows.sh --kernels-from build/release
source native/tools/kept.sh
PYFA_ROCM_WINE=$(native/tools/fetch/fetch_wine.sh "$(kept wine)") || {
  [ -z "${CI:-}" ] || exit 1
  echo "test_windows.sh: there is no Wine: the tests that run the DLL will be skipped"
}
export PYFA_ROCM_WINE
build/venv/bin/python -m pytest tests/windows "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fails unless a tag is the version that the header states: check_tag.sh v1.2.3
set -euo pipefail
header=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../include" && pwd)/fmha_rocm.h
version=v$(grep -oP '#define FMHA_VERSION_(MAJOR|MINOR|PATCH) \K\d+' "$header" | paste -sd.)
[ "${1:-}" = "$version" ] || { echo "check_tag.sh: got '${1:-}', expected $version as in $header" >&2; exit 1; }

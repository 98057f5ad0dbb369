#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unpacks the sources of zstd 1.5.7 into FOLDER: `fetch_zstd.sh FOLDER`. They come from Debian 13, and are known by hash.
set -euo pipefail

[ $# -eq 1 ] || { echo "fetch_zstd.sh: got $# arguments, expected FOLDER" >&2; exit 2; }
[ ! -e "$1/LICENSE" ] || exit 0
sha256=0c092ef267edce57ba7f3f2645c861f72eaf5e76273c6c3632869423464b90a5
mkdir -p "$(dirname "$1")"
scratch=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial" "$scratch/new"
uri=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 || true)
[ -n "$uri" ] || { echo "fetch_zstd.sh: no Debian source in /etc/apt; unpack zstd 1.5.7 as $1" >&2; exit 1; }
printf 'Types: deb-src\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: %s\n' "$uri" \
  /usr/share/keyrings/debian-archive-keyring.gpg >"$scratch/zstd.sources"
options=(-o "Dir::Etc::sourcelist=$scratch/zstd.sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$scratch/lists"
  -o "Dir::Cache=$scratch/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none)
apt-get "${options[@]}" -qq update
(cd "$scratch" && apt-get "${options[@]}" -qq source --download-only --tar-only libzstd=1.5.7+dfsg-1)
sha256sum --check --quiet <<<"$sha256  $(echo "$scratch"/libzstd_*.orig.tar.xz)"
tar -xf "$scratch"/libzstd_*.orig.tar.xz -C "$scratch/new" --strip-components=1
mv "$scratch/new" "$1"

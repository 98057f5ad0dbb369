#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unpacks the part of Debian's Wine that runs console programs: `fetch_wine.sh FOLDER`. It needs no root, installs nothing,
# and prints the path of the program. The 110 MB that it downloads are of this machine's Debian; 60 MB stay.
set -euo pipefail

[ $# -eq 1 ] || { echo "fetch_wine.sh: got $# arguments, expected FOLDER" >&2; exit 2; }
wine=$1/usr/lib/wine/wine64
[ ! -x "$wine" ] || { echo "$wine"; exit 0; }
die() { echo "fetch_wine.sh: $*" >&2; exit 1; }
command -v apt-get >/dev/null || die "got no apt-get, expected that of Debian"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
packages=(libwine wine64 libz-mingw-w64)
download() { (cd "$scratch" && apt-get -qq -o APT::Sandbox::User=root "$@" download "${packages[@]}"); }
# A machine that has never read the lists of its packages gets lists of its own for this.
lists=(-o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch/cache" -o Acquire::Languages=none)
download 2>/dev/null || {
  mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial"
  apt-get -qq "${lists[@]}" -o APT::Sandbox::User=root update
  download "${lists[@]}"
}
# DLLs that Wine's own first program needs, and those of a console program
parts=(wineboot.exe apisetschema.dll)
for name in advapi32 combase gdi32 kernel32 kernelbase msvcrt ntdll ole32 rpcrt4 sechost setupapi shcore shell32 shlwapi ucrtbase \
  user32 userenv version win32u ws2_32; do
  parts+=("$name.dll")
done
library=./usr/lib/x86_64-linux-gnu/wine
dpkg-deb --fsys-tarfile "$scratch"/libwine_*.deb | tar -x -C "$scratch" "${parts[@]/#/$library/x86_64-windows/}" \
  "$library"/x86_64-unix/{ntdll,win32u,ws2_32}.so ./usr/share/wine/nls ./usr/share/doc/libwine/copyright
dpkg-deb --fsys-tarfile "$scratch"/wine64_*.deb | tar -x -C "$scratch" ./usr/lib/wine/{wine64,wineserver64}
dpkg-deb --fsys-tarfile "$scratch"/libz-mingw-w64_*.deb | tar -x -C "$scratch" ./usr/x86_64-w64-mingw32/lib/zlib1.dll
mv "$scratch/usr/x86_64-w64-mingw32/lib/zlib1.dll" "$scratch/$library/x86_64-windows"
ln -s wineserver64 "$scratch/usr/lib/wine/wineserver"
rm -rf "$1/usr"
mkdir -p "$1"
mv "$scratch/usr" "$1"
echo "$wine"

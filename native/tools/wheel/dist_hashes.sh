#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Prints the files of a folder with their SHA-256, in one line, and fails unless they are the files that are expected.
#
#   dist_hashes.sh FOLDER [EXPECTED]
#
# EXPECTED is what it printed where the files were made. So what is tested and published is what was built, though
# programs that nobody has pinned run in the jobs between.
set -euo pipefail

[ $# -ge 1 ] && [ -d "$1" ] || { echo "dist_hashes.sh: got '${1:-}', expected a folder" >&2; exit 2; }
cd "$1"
found=
for file in *; do
  [ -f "$file" ] || { echo "dist_hashes.sh: got '$file' in $1, expected only files, and one or more" >&2; exit 1; }
  found+="$(sha256sum <"$file" | cut -d' ' -f1):$file "
done
found=${found% }
echo "$found"
[ $# -lt 2 ] || [ "$found" = "$2" ] ||
  { printf 'dist_hashes.sh: %s has these files, expected:\n%s\n' "$1" "$2" >&2; exit 1; }

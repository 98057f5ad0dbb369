#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Names the containers of the workflows by their digest, since a tag may move.
#
#   pin_images.sh [FILE...]           writes the digest that each tag has now: needs docker with buildx, and a registry
#   pin_images.sh --check [FILE...]   fails if an image has no digest; the workflow runs this for a release
#
# FILE: a workflow (all of them).
set -euo pipefail

check=
[ "${1:-}" != --check ] || { check=1; shift; }
[ $# -gt 0 ] || set -- "$(dirname "${BASH_SOURCE[0]}")"/../../../.github/workflows/*.yml
digest='sha256:[0-9a-f]{64}'
die() { echo "pin_images.sh: $*" >&2; exit 1; }

# An expression such as ${{ matrix.image }} is no image.
images=$(sed -nE 's/^[^#]*\b(container|image): "?([a-z0-9][^" ,}]*).*/\2/p' "$@" | sort -u)
[ -n "$images" ] || die "got no image in $*, expected one or more"
for image in $images; do
  tag=${image%@*}
  if [ -n "$check" ]; then
    [[ $image =~ @$digest$ ]] || die "got $image, expected $tag@sha256:...: run native/tools/wheel/pin_images.sh"
    continue
  fi
  found=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$tag") || die "docker knows no $tag"
  [[ $found =~ ^$digest$ ]] || die "got digest '$found' of $tag, expected sha256:..."
  sed -i -E "s/(: \"?)${tag//[.\/]/\\&}(@$digest)?([\" ,}]|\$)/\1${tag//\//\\/}@$found\3/" "$@"
  echo "pin_images.sh: $tag@$found"
done

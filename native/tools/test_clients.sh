#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the third group of tests: programs that others built for ROCm, on the software device of the build at hand. Each
# client has an environment of its own, build/clients-NAME-venv, of pinned wheels; or the build's, and only the client's
# own wheels, unpacked in build/clients/NAME.
#
#   test_clients.sh [CLIENT...] [-- PYTEST_ARGUMENT...]
#
# CLIENT is one of CLIENTS below, all of them if none is named. PYTHON (python3) is the interpreter of the environments.
# Every client runs even if one before it failed; the last lines say what ran, in which versions, and how long it took.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

CLIENTS=(objects bitsandbytes pennylane triton cupy tinygrad jax)
ARCHS=(gfx942 gfx90a gfx1100 gfx1201)  # of Triton, which compiles for each
BITSANDBYTES_ARCHS=(gfx942 gfx1100)  # of bitsandbytes, whose library has code for each
list=${CLIENTS[*]}
root=$PWD python=${PYTHON:-python3} report=() failed=() chosen=() arguments=()

while [ $# -gt 0 ]; do
  case $1 in
    --) shift; arguments=("$@"); break ;;
    *)
      [[ " ${CLIENTS[*]} " == *" $1 "* ]] ||
        { echo "test_clients.sh: got '$1', expected one of ${list// /, }, or -- and pytest's arguments" >&2; exit 2; }
      chosen+=("$1"); shift ;;
  esac
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${CLIENTS[@]}")
[ -e build/release/emulator/libamdhip64.so.6 ] || { echo "test_clients.sh: no build/release: run \`make build\`" >&2; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "test_clients.sh: $python is $("$python" --version), expected 3.11 or later: set PYTHON" >&2; exit 2; }

# versions_of NAME: what its requirements name, to print.
versions_of() {
  sed -n 's/^\([a-z0-9-]*\)==\(.*\)/\1 \2/p' "tests/clients/with_$1/requirements.in" | paste -sd, | sed 's/,/, /g'
}

# make_venv NAME: $venv, as tests/clients/with_NAME/requirements.txt and the client's own program set it up. The stamp is the
# file that it was made from.
make_venv() {
  venv=$root/build/clients-$1-venv
  local locked=tests/clients/with_$1/requirements.txt setup=tests/clients/with_$1/$1_setup.py begin=$SECONDS
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  if ! cmp -s "$locked" "$venv/.requirements"; then
    "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes --only-binary=:all: -r "$locked"
    cp "$locked" "$venv/.requirements"
  fi
  [ ! -e "$setup" ] || "$venv/bin/python" "$setup"
  versions=$(versions_of "$1")
  echo "$1: environment ready in $((SECONDS - begin)) s"
}

# download LOCKED: the wheels of a file of requirements, and nothing that they ask for, in a new folder $wheels.
download() {
  wheels=$(mktemp -d build/.wheels.XXXXXX)
  build/venv/bin/python -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -r "$1" -d "$wheels"
}

# unpack NAME: the wheels of tests/clients/with_NAME/requirements.txt, in build/clients/NAME.
unpack() {
  local locked=tests/clients/with_$1/requirements.txt folder=build/clients/$1 wheels wheel
  versions=$(versions_of "$1")
  ! cmp -s "$locked" "$folder/.requirements" || return 0
  download "$locked"
  rm -rf "$folder"
  for wheel in "$wheels"/*.whl; do build/venv/bin/python -m zipfile --extract "$wheel" "$folder"; done
  cp "$locked" "$folder/.requirements"
  rm -rf "$wheels"
}

# run WHAT COMMAND...: runs a client's tests and notes how that went, in pytest's own words.
run() {
  local what=$1 begin=$SECONDS log status=0
  shift
  log=$(mktemp)
  echo "=== $what"
  "$@" 2>&1 | tee "$log" || status=$?
  report+=("$what: $(sed -n 's/^=* *\([0-9].* in [0-9.]*s\).*/\1/p' "$log" | tail -1), $((SECONDS - begin)) s in all")
  rm -f "$log"
  [ $status -eq 0 ] || failed+=("$what")
}

# on_device VENV [OPTION...] -- ARGUMENT...: pytest in that environment, on the software device.
on_device() {
  local venv=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  env PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv" PYTHONPATH="$root" "$venv/bin/python" -m pyfa_rocm device \
    "${options[@]}" -- "$venv/bin/pytest" -c tests/clients/pytest.ini "$@" "${arguments[@]}"
}

# kept NAME: a folder in the user's cache for what a client compiles, emptied when it is large; without one, a new folder.
kept() {
  local folder=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/pyfa_rocm/clients/$1
  [ ! -d "$folder" ] || [ "$(du -sm "$folder" | cut -f1)" -lt 1000 ] || rm -rf "$folder"
  if mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ]; then echo "$folder"; else mktemp -d "$root/build/.kept.XXXXXX"; fi
}

# The code objects of the wheel that Composable Kernel comes from, once, in build/clients/objects.
unpack_objects() {
  local locked=native/tools/fetch/ck-requirements.txt folder=build/clients/objects wheels
  ! cmp -s "$locked" "$folder/.requirements" || return 0
  download "$locked"
  mkdir -p build/clients
  build/venv/bin/python native/tools/fetch/unpack_objects.py "$wheels"/*.whl "$folder"
  cp "$locked" "$folder/.requirements"
  rm -rf "$wheels"
}

# The stubs' own tests, and code objects that others publish; all need no more than the build's environment.
client_objects() {
  local tests=(tests/clients/test_stubs.py tests/clients/test_hiprtc.py)
  [ ! -d tests/clients/objects ] || { unpack_objects; tests+=(tests/clients/objects); }
  run "stubs and public code objects" on_device "$root/build/venv" -- "${tests[@]}"
}

# As on a card, a kernel may read behind an array up to its page's end: two load scales that no lane uses.
client_bitsandbytes() {
  unpack bitsandbytes
  local -x FMHA_EMU_BOUNDS=page
  local arch
  for arch in "${BITSANDBYTES_ARCHS[@]}"; do
    run "bitsandbytes on $arch ($versions)" on_device "$root/build/venv" --arch "$arch" -- \
      tests/clients/with_bitsandbytes
  done
}

client_pennylane() {
  unpack pennylane
  run "PennyLane ($versions)" on_device "$root/build/venv" -- tests/clients/with_pennylane
}

client_triton() {
  make_venv triton
  local -x TRITON_CACHE_DIR
  TRITON_CACHE_DIR=$(kept triton)
  local arch
  for arch in "${ARCHS[@]}"; do
    run "Triton on $arch ($versions)" on_device "$venv" --arch "$arch" -- tests/clients/with_triton
  done
}

client_cupy() {
  make_venv cupy
  local -x ROCM_HOME=$venv/rocm LD_LIBRARY_PATH=$venv/rocm/lib CUPY_CACHE_DIR
  CUPY_CACHE_DIR=$(kept cupy)
  run "CuPy ($versions)" on_device "$venv" -- tests/clients/with_cupy
}

client_tinygrad() {
  make_venv tinygrad
  run "tinygrad ($versions)" on_device "$venv" -- tests/clients/with_tinygrad
}

client_jax() {
  make_venv jax
  local -x JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 JAX_COMPILATION_CACHE_DIR
  JAX_COMPILATION_CACHE_DIR=$(kept jax)
  run "JAX ($versions)" on_device "$venv" -- tests/clients/with_jax tests/adapters/with_jax
}

for client in "${chosen[@]}"; do "client_$client"; done
echo
echo "test_clients.sh: on the software device, in $SECONDS s"
printf '  %s\n' "${report[@]}"
[ ${#failed[@]} -eq 0 ] || { printf 'test_clients.sh: FAILED: %s\n' "${failed[@]}" >&2; exit 1; }

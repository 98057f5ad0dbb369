#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the third group of tests: programs that others built for ROCm, on the software device of the build at hand. Each
# client has an environment of its own, build/clients-NAME-venv, of pinned wheels; or the build's, and only the client's
# own wheels, unpacked in build/clients/NAME.
#
#   test_clients.sh [CLIENT...] [-- PYTEST_ARGUMENT...]
#
# CLIENT is one of the names below, all of them if none is named. PYTHON (python3) is the interpreter of the environments.
# Every client runs even if one before it failed; the last lines say what ran, in which versions, and how long it took.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

group=clients names=(objects bitsandbytes pennylane iree openmm triton cupy tinygrad jax)
ARCHS=(gfx942 gfx90a gfx1100 gfx1201)  # of Triton, which compiles for each
BITSANDBYTES_ARCHS=(gfx942 gfx1100)  # of bitsandbytes, whose library has code for each
IREE_ARCHS=(gfx942 gfx1201)  # of IREE, whose compiler has another instruction set for each
source native/tools/environments.sh
source native/tools/kept.sh
choose "$@"

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

client_iree() {
  unpack iree
  local arch
  for arch in "${IREE_ARCHS[@]}"; do
    run "IREE on $arch ($versions)" on_device "$root/build/venv" --arch "$arch" -- tests/clients/with_iree
  done
}

# It compiles its kernels by hiprtc, and keeps them in the folder for temporary files. The checks that are off find what
# docs/software-device.md says of its kernels.
client_openmm() {
  unpack openmm
  local folder=$root/build/clients/openmm-hiprtc
  rm -rf "$folder"
  PYTHONPATH=tests build/venv/bin/python -m clients.hiprtc_setup "$folder"
  mkdir "$folder/tmp"
  local -x PATH=$folder/bin:$PATH LD_LIBRARY_PATH=$folder/lib TMPDIR=$folder/tmp
  local -x FMHA_EMU_CHECKS=-global-race,-global-drain,-lds-race,-lds-unwritten
  run "OpenMM ($versions)" on_device "$root/build/venv" -- tests/clients/with_openmm
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
  keep_jax
  run "JAX ($versions)" on_device "$venv" -- tests/clients/with_jax tests/adapters/with_jax
}

for client in "${chosen[@]}"; do "client_$client"; done
finish

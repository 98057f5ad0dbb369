# SPDX-License-Identifier: MIT OR Apache-2.0
# Keeps what frameworks compile, and Wine, in the user's cache folder, for test_adapters.sh, test_clients.sh and test_windows.sh.

# kept NAME: a folder there, emptied when it is large; without a cache folder, a new one.
kept() {
  local folder=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/pyfa_rocm/clients/$1
  [ ! -d "$folder" ] || [ "$(du -sm "$folder" | cut -f1)" -lt 1000 ] || rm -rf "$folder"
  if mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ]; then echo "$folder"; else mktemp -d "$PWD/build/.kept.XXXXXX"; fi
}

# keep_jax: JAX traces and lowers each function anew, and asks XLA to compile only what it has not kept.
keep_jax() {
  JAX_COMPILATION_CACHE_DIR=$(kept jax)
  export JAX_COMPILATION_CACHE_DIR JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
}

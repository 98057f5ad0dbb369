#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fuzzes the C entries of each family with libFuzzer, ASan and UBSan, on the software device with its checks on:
# run.sh [MINUTES] [fwd|bwd|decode|append|merge|quantize], 10 by default for each, and all of them. Kernels and software
# device are those of the release build ($RELEASE, by default build/release: run `make build` first). Exits with 1 if
# something was found; the input that shows it is then in build/fuzz/findings_PASS, and
# `build/fuzz/tests/c_abi/fuzz_PASS FILE` repeats it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
minutes=${1:-10}
passes=${2:-fwd bwd decode append merge quantize}
release=$(realpath -m "${RELEASE:-$root/build/release}")
build=${FUZZ_BUILD:-$root/build/fuzz}
llvm=19
emulator=$release/emulator/libamdhip64.so.6

die() { echo "fuzz: $*" >&2; exit 2; }
[[ $minutes =~ ^[0-9]+$ ]] && [ "$minutes" -gt 0 ] || die "MINUTES: got '$minutes', expected a whole number above 0"
for pass in $passes; do
  [[ $pass =~ ^(fwd|bwd|decode|append|merge|quantize)$ ]] || die "PASS: got '$pass', expected fwd, bwd, decode, append, merge or quantize"
done
[ -e "$emulator" ] || die "no $emulator: run \`make build\` first, or set RELEASE to a build folder"
command -v "clang++-$llvm" >/dev/null || die "no clang++-$llvm: run \`make toolchain\` first"
echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
  "clang++-$llvm" -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null ||
  die "clang++-$llvm cannot link for libFuzzer: as root, apt-get install libclang-rt-$llvm-dev"

cache() { sed -n "s/^$1:[A-Z]*=//p" "$release/CMakeCache.txt"; }
options=()
for name in FMHA_TOOLCHAIN_DIR Python3_EXECUTABLE; do
  value=$(cache "$name")
  [ -z "$value" ] || options+=("-D$name=$value")
done

echo "fuzz: building in $build"
cmake -S "$root" -B "$build" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_C_COMPILER="clang-$llvm" -DCMAKE_CXX_COMPILER="clang++-$llvm" -DFMHA_SANITIZE=address -DFMHA_FUZZ=ON \
  -DFMHA_EMULATOR=OFF -DFMHA_KERNELS_FROM="$release" "${options[@]}"
read -ra names <<<"$passes"
cmake --build "$build" --target "${names[@]/#/fuzz_}" --parallel "${JOBS:-$(nproc)}"

export FMHA_HIP_RUNTIME=$emulator FMHA_EMU_DEVICES=2 FMHA_EMU_THREADS=1
export UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=${ASAN_OPTIONS:-}

fuzz() {
  local pass=$1 findings=$build/findings_$1 corpus=$build/corpus_$1
  mkdir -p "$findings" "$corpus"
  echo "fuzz: $pass, $minutes minutes; $(find "$corpus" -type f | wc -l) inputs of earlier runs"
  local status=0  # of the fuzzer: grep always has lines to print
  nice -n 10 "$build/tests/c_abi/fuzz_$pass" -max_total_time=$((minutes * 60)) -max_len=512 -len_control=0 \
    -timeout=120 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$findings/" "$corpus" 2>&1 |
    grep --line-buffered -v -E '^#[0-9]+\s+(NEW|REDUCE|RELOAD) ' || status=$?
  if [ "$status" -ne 0 ]; then
    echo "fuzz: FOUND something, see above; the input is in $findings" >&2
    exit 1
  fi
  echo "fuzz: nothing found in $minutes minutes of $pass"
}

for pass in "${names[@]}"; do fuzz "$pass"; done

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# All style and static checks: lint.sh LLVM_VERSION [SINCE]. It runs every check, then fails if one of them failed. With
# SINCE, a commit, clang-tidy is for the C++ files that differ from it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
llvm=$1 since=${2:-} bin=build/venv/bin failed=()

check() {  # name, command...
  local name=$1
  shift
  echo "lint: $name"
  "$@" || failed+=("$name")
}
files() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [ -e "$f" ] && echo "$f"; done; }

# Files that people edit stay short, and name their licence. A public header is a manual, and one file for its users.
file_rules() {
  local file lines most ok=0
  while read -r file; do
    lines=$(wc -l <"$file")
    case $file in native/include/*) most=800 ;; *) most=500 ;; esac
    [ "$lines" -le "$most" ] || { echo "$file: $lines lines, expected at most $most"; ok=1; }
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: MIT OR Apache-2.0' ||
      { echo "$file: no SPDX-License-Identifier in the first three lines"; ok=1; }
  done < <(files '*.py' '*.cc' '*.c' '*.h' '*.hpp' '*.hip' '*.sh' '*.cmake' '*CMakeLists.txt' '*.rs' Makefile)
  return $ok
}

prose() {
  local sources
  mapfile -t sources < <(files '*.py' '*.cc' '*.c' '*.h' '*.hpp' '*.hip' '*.rs' '*.md' '*.sh' '*.cmake' '*CMakeLists.txt' \
    '*.toml' '*.yml' Makefile)
  "$bin/python" native/tools/lint/prose.py "${sources[@]}"
}

# clang-tidy needs a compile command for each file, and generated headers: a build that is configured for that, and not
# built. The software device's instructions are compiled once for each x86-64 level; tidy_commands.py keeps one of them.
tidy() {
  local sources commands=build/lint
  cmake --preset release -B "$commands" -DFMHA_BATCHES=OFF -DFMHA_EMU_LEVELS=v3 -DFMHA_GPU_TARGETS=gfx942 \
    -DFMHA_KERNEL_SET=ci -DFMHA_KERNEL_FILTER=merge -DFMHA_ONNXRUNTIME=ON -DBUILD_TESTING=OFF --log-level=WARNING >/dev/null || return 1
  mapfile -t sources < <(files 'native/host/*.cc' 'native/emulator/*.cc' 'native/jax/*.cc' \
    'native/onnxruntime/*.cc' | grep -vx native/host/platform/windows.cc)  # needs the headers of Windows
  mkdir -p "$commands/tidy"
  "$bin/python" native/tools/lint/tidy_commands.py "$commands/compile_commands.json" "$commands/tidy/compile_commands.json" \
    "${sources[@]}" || return 1
  if [ -n "$since" ]; then
    mapfile -t sources < <(comm -12 <(git diff --name-only "$since" | sort) <(printf '%s\n' "${sources[@]}" | sort))
    [ ${#sources[@]} -gt 0 ] || return 0
  fi
  "$bin/python" native/tools/lint/tidy.py --commands "$commands/tidy" --clang-tidy "clang-tidy-$llvm" "${sources[@]}"
}

mapfile -t cxx < <(files 'native/host/*' 'native/emulator/*' 'native/jax/*' 'native/onnxruntime/*' \
  'native/kernels/*' 'native/include/*.hpp' 'tests/c_abi/*' 'tests/clients/*' 'tests/engines/*' 'examples/*' | grep -E '\.(cc|h|hpp|hip|c)$')
check "file length and licence" file_rules
check "prose" prose
check "ruff check" "$bin/ruff" check -q .
check "ruff format" "$bin/ruff" format -q --check .
check "mypy" "$bin/mypy" --no-error-summary
check "mypy of the build's programs" env MYPYPATH=native/tools/catalogue:native/tools/fetch:native/tools/site "$bin/mypy" \
  --no-error-summary --strict --python-version 3.11 $(files 'native/tools/*.py')
check "support table" "$bin/python" native/tools/catalogue/support_table.py --check native/kernels/catalogue README.md
check "clang-format" "clang-format-$llvm" --dry-run --Werror "${cxx[@]}"
check "clang-tidy" tidy
if cargo fmt --version >/dev/null 2>&1; then  # rustfmt is not in Debian's cargo
  check "cargo fmt" cargo fmt --all --check --manifest-path examples/rust/Cargo.toml
fi

[ ${#failed[@]} -eq 0 ] || { printf 'lint: FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
echo "lint: all clean"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Prepares what a build needs and this machine lacks; run by `make toolchain`.
#
#   toolchain.sh [--prefix DIR] [--venv DIR] [--targets LIST] [--demo] [--lint] [--tests] [--adapters] [--onnxruntime]
#                [--evidence] [--site]
#   toolchain.sh --cmake [--prefix DIR] [--targets LIST]
#                                           as CMake runs it for a wheel, which brings its own build tools, compiler
#                                           of the host side and Python environment
#
# From the system: compiler and build tools, installed with apt (as root). Under DIR (build/toolchain): HIP headers,
# device bitcode, nlohmann/json, doctest, Composable Kernel and XLA's C header, downloaded and unpacked, never
# installed. A Python environment (build/venv). LIST is FMHA_GPU_TARGETS: a clang 20 is fetched too, by its wheel, if
# an arch in it needs that one. With --onnxruntime or --lint the C headers of ONNX Runtime too, and with --evidence the browser
# that looks at the page of evidence. With --site only that browser and the Python environment: a site of the documentation
# needs no compiler. A ROCm in $ROCM_PATH or /opt/rocm is used as it is, for all it has. With --demo it leaves
# out what only tests need.
# With everything there it does nothing, in well under a second. With $PYFA_ROCM_EXACT_PACKAGES set, a package of another
# version than in debian-packages.txt is an error.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
prefix=$root/build/toolchain venv=$root/build/venv targets= demo= lint= tests= adapters= onnxruntime= evidence= site= for_cmake=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=$2; shift 2 ;;
    --venv) venv=$2; shift 2 ;;
    --targets) targets=${2//,/;}; shift 2 ;;
    --demo) demo=1; shift ;;
    --lint) lint=1; shift ;;
    --tests) tests=1; shift ;;
    --adapters) tests=1 adapters=1; shift ;;
    --onnxruntime) onnxruntime=1; shift ;;
    --evidence) evidence=1; shift ;;
    --site) evidence=1 site=1; shift ;;
    --cmake) for_cmake=1; shift ;;
    *)
      echo "toolchain.sh: unknown argument $1; expected --prefix DIR, --venv DIR, --targets LIST, --demo, --lint," \
        "--tests, --adapters, --onnxruntime, --evidence, --site or --cmake" >&2
      exit 2
      ;;
  esac
done
[ -z "$for_cmake" ] || venv=$prefix/venv  # for its pip
unset _PYTHON_HOST_PLATFORM  # a wheel's build names its platform by it, which pip would take for this machine's

llvm=19        # Debian 12 and 13 both have it, with the AMDGPU target
kfd=/sys/class/kfd/kfd/topology/nodes
suite=trixie   # has HIP headers new enough for CK
newest=sid     # has an ONNX Runtime whose execution providers are plug-ins
say() { echo "toolchain: $*"; }
die() { printf 'toolchain: %s\n' "$@" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

find_rocm() {
  local candidate
  for candidate in "${ROCM_PATH:-}" /opt/rocm; do
    if [ -n "$candidate" ] && [ -e "$candidate/include/hip/hip_runtime.h" ] &&
      { [ -x "$candidate/bin/amdclang++" ] || [ -x "$candidate/llvm/bin/clang++" ]; }; then
      echo "$candidate"
      return
    fi
  done
}

# Missing pieces: names of system packages, and of parts to unpack.
rocm=$(find_rocm)
packages=() parts=()
need_command() { has "$1" || packages+=("$2"); }  # command, package that has it

need_venv() {
  [ -x "$venv/bin/python" ] || python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv)
}

has_header() { echo "#include <$1>" | gcc -E - >/dev/null 2>&1 || [ -e "/usr/include/$1" ]; }

check_system() {
  [ -z "$evidence" ] || need_command "${PYFA_ROCM_BROWSER:-chromium}" chromium
  [ -n "$for_cmake" ] || need_venv
  [ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
  [ -z "$site" ] || return 0
  if [ -z "$rocm" ]; then
    need_command "clang++-$llvm" "clang-$llvm"
    need_command "ld.lld-$llvm" "lld-$llvm"
    need_command "llvm-objdump-$llvm" "llvm-$llvm"
  fi
  if [ -n "$lint" ]; then
    need_command "clang-format-$llvm" "clang-format-$llvm"
    need_command "clang-tidy-$llvm" "clang-tidy-$llvm"
  fi
  [ -z "$tests" ] || need_for_tests
  if [ -z "$for_cmake" ]; then
    need_command cmake cmake
    need_command ninja ninja-build
    need_command gcc gcc
    need_command g++ g++
    need_command python3 python3
  fi
  [ -n "$for_cmake" ] || need_command ccache ccache
  need_command zstd zstd  # packs the kernels; the library unpacks them
  has_header zstd.h || packages+=(libzstd-dev)
}

# If these cannot be installed, it goes on: the tests that need them say that they were skipped.
need_for_tests() {
  local pair missing=()
  for pair in abidw:abigail-tools pkg-config:pkgconf cargo:cargo; do
    has "${pair%%:*}" || missing+=("${pair#*:}")
  done
  # torch.compile builds modules of Python's.
  [ -z "$adapters" ] || [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
    missing+=(python3-dev)
  [ ${#missing[@]} -gt 0 ] || return 0
  if has apt-get && [ "$(id -u)" -eq 0 ]; then
    packages+=("${missing[@]}")
  else
    say "tests that need ${missing[*]} will be skipped"
  fi
}

# Succeeds if all objects of native/kernels/prebuilt are unpacked.
has_objects() {
  local path
  [ -e "$prefix/ck/objects/LICENSE" ] || return
  for path in $(sed -n 's/^object = "\(.*\)"$/\1/p' "$here"/../kernels/prebuilt/*.toml) \
    $(grep -v '^#' "$here/../kernels/prebuilt/timed.txt"); do
    [ -e "$prefix/ck/objects/$path" ] || return
  done
}

# Succeeds if a target has least_clang = 20 (native/archs.toml); the target `native` stands for this machine's cards.
needs_clang20() {
  [ -z "$rocm" ] || return 1  # has its own compiler
  case ";$targets;" in
    *";all;"* | *";distinct;"* | *";instinct;"* | *";radeon;"* | *";gfx950;"* | *";gfx1153;"* | *";gfx12"*) return ;;
    ";native;") ! grep -qsh 'gfx_target_version [1-9]' "$kfd"/*/properties ||
      grep -qshE 'gfx_target_version (90500|110503|12000[01])$' "$kfd"/*/properties ;;
    *) return 1 ;;
  esac
}

check_parts() {
  if [ -z "$rocm" ]; then
    [ -e "$prefix/hip/include/hip/hip_runtime.h" ] && [ -e "$prefix/hip/copyright" ] || parts+=(hip)
    [ -e "$prefix/bitcode/oclc_isa_version_1201.bc" ] && [ -e "$prefix/bitcode/copyright" ] || parts+=(bitcode)
  fi
  [ -e /usr/include/nlohmann/json.hpp ] ||
    { [ -e "$prefix/json/include/nlohmann/json.hpp" ] && [ -e "$prefix/json/copyright" ]; } || parts+=(json)
  if [ -z "${CK_ROOT:-}" ] && { [ -z "$rocm" ] || [ ! -e "$rocm/include/ck_tile/ops/fmha.hpp" ]; }; then
    { [ -e "$prefix/ck/SOURCE" ] && has_objects; } || parts+=(ck)
  fi
  [ -n "$demo" ] || [ -e "$prefix/xla_ffi/LICENSE" ] || parts+=(xla_ffi)
  [ -n "$demo$for_cmake" ] || [ -e /usr/include/doctest/doctest.h ] ||
    [ -e "$prefix/doctest/include/doctest/doctest.h" ] || parts+=(doctest)
  [ -z "$onnxruntime$lint" ] || [ -e "$prefix/onnxruntime/copyright" ] || parts+=(onnxruntime)
  ! needs_clang20 || [ -e "$prefix/clang20/SOURCE" ] || parts+=(clang20)
  if [ -n "$for_cmake" ] && [[ " ${parts[*]} " =~ " "(ck|xla_ffi|clang20)" " ]]; then
    need_venv  # fetch_wheel needs its pip
  fi
}

# One message with all of it, before anything is begun.
check_possible() {
  local install="apt-get update && apt-get install --no-install-recommends ${packages[*]}"
  if ! has apt-get; then
    [ ${#packages[@]} -eq 0 ] && [ ${#parts[@]} -eq 0 ] && return
    die "this machine has no apt-get, and lacks: ${packages[*]} ${parts[*]}" \
      "Install these programs by your distribution's means. With a ROCm (set ROCM_PATH) the compiler, the HIP" \
      "headers and the bitcode come from it; Composable Kernel can be given as CK_ROOT."
  fi
  [ ${#packages[@]} -eq 0 ] || [ "$(id -u)" -eq 0 ] || die \
    "this needs system packages that only root can install. As root, run" "" "    $install" "" \
    "and then \`make toolchain\` again as yourself. It will then do the rest without root, under $prefix and" \
    "$venv: ${parts[*]:-} and a Python environment. Or point ROCM_PATH at a ROCm, which brings the compiler."
}

install_packages() {
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}"
}

# Prints "URI<TAB>keyring" of the machine's own Debian source: the first one that offers this release's main
# archive, in either of apt's formats.
debian_source() {
  local codename files=() file
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ -e "$file" ] && files+=("$file")
  done
  [ ${#files[@]} -eq 0 ] || awk -v codename="$codename" '
    function found(uri, keyring) { if (!done++) print uri "\t" keyring }
    function has_word(list, word,   words, n, i) {
      n = split(list, words, /[ \t]+/)
      for (i = 1; i <= n; i++) if (words[i] == word) return 1
      return 0
    }
    function end_stanza() {
      if (has_word(f["types"], "deb") && has_word(f["components"], "main") && tolower(f["enabled"]) != "no" &&
          (has_word(f["suites"], codename) || has_word(f["suites"], "stable"))) {
        split(f["uris"], uris, /[ \t]+/)
        found(uris[1], f["signed-by"])
      }
      delete f
    }
    FNR == 1 { end_stanza() }
    /^[ \t]*#/ { next }
    FILENAME ~ /\.sources$/ {
      if ($0 ~ /^[ \t]*$/) { end_stanza(); next }
      if (match($0, /^[A-Za-z-]+:[ \t]*/)) {
        key = tolower(substr($0, 1, index($0, ":") - 1))
        f[key] = substr($0, RLENGTH + 1)
      }
      next
    }
    $1 == "deb" {
      line = $0; keyring = ""
      if (match(line, /\[[^]]*\]/)) {
        options = substr(line, RSTART + 1, RLENGTH - 2)
        line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
        if (match(options, /signed-by=[^ \t]+/)) keyring = substr(options, RSTART + 10, RLENGTH - 10)
      }
      n = split(line, words, /[ \t]+/)
      main = 0
      for (i = 4; i <= n; i++) if (words[i] == "main") main = 1
      if (main && (words[3] == codename || words[3] == "stable")) found(words[2], keyring)
    }
    END { end_stanza() }' "${files[@]}"
}

# download_debs FOLDER SUITE PACKAGE...: with its own source list and state: the machine's apt is not touched.
download_debs() {
  local folder=$1 suite=$2 source uri keyring
  shift 2
  source=$(debian_source)
  uri=${source%%$'\t'*} keyring=${source#*$'\t'}
  keyring=${keyring:-/usr/share/keyrings/debian-archive-keyring.gpg}
  [ -n "$uri" ] || die "no Debian source with this release's main archive in /etc/apt, to fetch $* of $suite from." \
    "Use a ROCm (ROCM_PATH), or unpack those packages under $prefix: hip/include, bitcode/*.bc, json/include."
  mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
  printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$uri" "$suite" "$keyring" \
    >"$folder/$suite.sources"
  local options=(-o "Dir::Etc::sourcelist=$folder/$suite.sources" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o "APT::Default-Release=")
  apt-get "${options[@]}" -qq update
  (cd "$folder" && apt-get "${options[@]}" -q download "$@")
  local package
  for package in "$@"; do check_version "$package" "$folder/$package"_*.deb; done
}

# check_version PACKAGE DEB: whether it is the version that releases are made with
check_version() {
  local expected got
  expected=$(sed -n "s/^$1=//p" "$here/fetch/debian-packages.txt")
  got=$(dpkg-deb -f "$2" Version)
  [ "$got" != "$expected" ] || return 0
  [ -z "${PYFA_ROCM_EXACT_PACKAGES:-}" ] ||
    die "$1: got version $got of $suite, expected $expected: change native/tools/fetch/debian-packages.txt if that is right"
  say "$1 is version $got; releases are made with $expected"
}

# unpack_deb FOLDER PACKAGE PATH PART: what PACKAGE has under PATH becomes $prefix/PART
unpack_deb() {
  dpkg -x "$1/$2"_*.deb "$1/$2"
  local found=("$1/$2"/$3)
  [ -d "${found[0]}" ] || die "package $2 of $suite has no $3 any more"
  mkdir -p "$(dirname "$prefix/$4")"
  rm -rf "${prefix:?}/$4"
  mv "${found[0]}" "$prefix/$4"
}

# keep_copyright FOLDER PACKAGE PART: a build carries along the licence of what it has from PACKAGE
keep_copyright() { cp "$1/$2/usr/share/doc/$2/copyright" "$prefix/$3/copyright"; }

fetch_debs() {
  local folder=$1 part names=()
  for part in "${parts[@]}"; do
    case $part in
      hip) names+=(libamdhip64-dev) ;;
      bitcode) names+=(rocm-device-libs-17) ;;
      json) names+=(nlohmann-json3-dev) ;;
      doctest) names+=(doctest-dev) ;;
    esac
  done
  [ ${#names[@]} -eq 0 ] && return
  download_debs "$folder" "$suite" "${names[@]}"
  for part in "${parts[@]}"; do
    case $part in
      hip)
        unpack_deb "$folder" libamdhip64-dev usr/share/hip hip/share/hip
        unpack_deb "$folder" libamdhip64-dev usr/include hip/include
        keep_copyright "$folder" libamdhip64-dev hip
        ;;
      bitcode)
        unpack_deb "$folder" rocm-device-libs-17 'usr/lib/llvm-*/lib/clang/*/amdgcn/bitcode' bitcode
        keep_copyright "$folder" rocm-device-libs-17 bitcode
        await packages
        python3 "$here/fetch/add_bitcode.py" "$prefix/bitcode" --clang "$(command -v "clang++-$llvm")"
        ;;
      json)
        unpack_deb "$folder" nlohmann-json3-dev usr/include json/include
        keep_copyright "$folder" nlohmann-json3-dev json
        ;;
      doctest) unpack_deb "$folder" doctest-dev usr/include doctest/include ;;
    esac
  done
}

# fetch_wheel REQUIREMENTS FOLDER [pip's options]: downloads a wheel whose hash is known
fetch_wheel() {
  local requirements=$1 folder=$2
  shift 2
  "$venv/bin/python" -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -r "$here/fetch/$requirements" -d "$folder" "$@"
}

fetch_ck() {
  fetch_wheel ck-requirements.txt "$1/ck-wheel"
  "$venv/bin/python" "$here/fetch/unpack_ck.py" "$1"/ck-wheel/*.whl "$1/ck"
  rm -rf "${prefix:?}/ck"
  mv "$1/ck" "$prefix/ck"
}

# Any version's headers do from 1.23 on: the library asks for what that version had.
fetch_onnxruntime() {
  local folder=$1/onnxruntime
  download_debs "$folder" "$newest" libonnxruntime-dev
  unpack_deb "$folder" libonnxruntime-dev usr/include/onnxruntime onnxruntime/include
  keep_copyright "$folder" libonnxruntime-dev onnxruntime
}

# The wheels for all versions of Python have the same headers: any one will do.
fetch_xla_ffi() {
  fetch_wheel xla-requirements.txt "$1/xla-wheel" \
    --python-version 311 --implementation cp --abi cp311 --platform manylinux_2_27_x86_64
  "$venv/bin/python" "$here/fetch/unpack_xla.py" "$1"/xla-wheel/*.whl "$1/xla_ffi"
  rm -rf "${prefix:?}/xla_ffi"
  mv "$1/xla_ffi" "$prefix/xla_ffi"
}

# Proven by a kernel, before it is put in its place.
fetch_clang20() {
  fetch_wheel clang20-requirements.txt "$1/clang20-wheel"
  await packages
  await debs  # its bitcode and headers
  "$venv/bin/python" "$here/fetch/unpack_clang20.py" "$1"/clang20-wheel/*.whl "$1/clang20" \
    --clang "$(command -v "clang++-$llvm")" --bitcode "$prefix/bitcode"
  "$1/clang20/bin/clang++" -x hip --offload-arch=gfx950 -O3 --cuda-device-only --no-gpu-bundle-output \
    --rocm-path="$prefix/hip" --hip-path="$prefix/hip" --rocm-device-lib-path="$1/clang20/bitcode" \
    -Wall -Werror -c "$here/fetch/clang20_trial.hip" -o "$1/trial.co" ||
    die "the clang 20 that was made of ziglang compiles no kernel for gfx950; its message is above"
  rm -rf "${prefix:?}/clang20"
  mv "$1/clang20" "$prefix/clang20"
}

# For the demo build/venv has what the package imports, otherwise also what tests and checks import. The stamps are the files
# that it was made from.
install_python_packages() {
  local locked=$here/fetch/venv-requirements.txt stamp=$venv/.requirements
  [ -z "$demo" ] || locked=$here/fetch/demo-requirements.txt stamp=$venv/.demo-requirements
  "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes --only-binary=:all: -r "$locked"
  cp "$locked" "$stamp"
}

has_python_packages() {
  cmp -s "$here/fetch/venv-requirements.txt" "$venv/.requirements" ||
    { [ -n "$demo" ] && cmp -s "$here/fetch/demo-requirements.txt" "$venv/.demo-requirements"; }
}

# The package is used where it stands: `import pyfa_rocm` from any folder, and the command pyfa-rocm.
link_package() {
  local site=("$venv"/lib/python3*/site-packages)
  echo "$root" | write_if_changed "${site[0]}/pyfa_rocm.pth"
  printf '#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/python" -m pyfa_rocm "$@"\n' |
    write_if_changed "$venv/bin/pyfa-rocm"
  chmod +x "$venv/bin/pyfa-rocm"
}

write_if_changed() {  # file; its content on stdin
  local content
  content=$(cat)
  [ -e "$1" ] && [ "$(<"$1")" = "$content" ] || echo "$content" >"$1"
}

# Jobs run side by side, since most of their time is a server's. begin NAME TEXT COMMAND...: starts one, which TEXT describes.
jobs=() texts=()
begin() {
  local name=$1
  jobs+=("$name") texts+=("$2")
  shift 2
  (
    status=0
    trap 'echo $status >"$scratch/$name.status.new"; mv "$scratch/$name.status.new" "$scratch/$name.status"' EXIT
    status=1  # unless it ends well
    "$@"
    status=0
  ) >"$scratch/$name.log" 2>&1 &
}

# await NAME: returns when that job has ended well, or if there is none; fails if it failed.
await() {
  [ -e "$scratch/$1.log" ] || return 0
  while [ ! -e "$scratch/$1.status" ]; do sleep 0.1; done
  [ "$(<"$scratch/$1.status")" = 0 ]
}

# A line for each job that ends; every ten seconds, what is still being waited for.
await_all() {
  local left=("${!jobs[@]}") still i done=0 began=$SECONDS told=$SECONDS
  while [ ${#left[@]} -gt 0 ]; do
    still=()
    for i in "${left[@]}"; do
      if [ ! -e "$scratch/${jobs[i]}.status" ]; then
        still+=("$i")
      elif ! await "${jobs[i]}"; then
        cat "$scratch/${jobs[i]}.log" >&2
        die "${texts[i]}: failed; its output is above"
      else
        say "${texts[i]}: done after $((SECONDS - began)) s ($((++done)) of ${#jobs[@]})"
        told=$SECONDS
      fi
    done
    left=("${still[@]}")
    [ ${#left[@]} -gt 0 ] || break
    if [ $((SECONDS - told)) -ge 10 ]; then
      say "still at work after $((SECONDS - began)) s: $(for i in "${left[@]}"; do echo "${texts[i]}"; done | paste -sd, | sed 's/,/, /g')"
      told=$SECONDS
    fi
    sleep 0.2
  done
}

begin_jobs() {
  local list=" ${parts[*]} "
  if [ ${#packages[@]} -gt 0 ]; then
    begin packages "system packages (${packages[*]})" install_packages
    # Without these the other jobs cannot begin.
    case " ${packages[*]} " in
      *" python3"* | *" ca-certificates "*) say "installing ${packages[*]}"; await packages || await_all ;;
    esac
  fi
  if [ -z "$for_cmake" ] || [[ $list =~ " "(ck|xla_ffi|clang20)" " ]]; then
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  fi
  [ -n "$for_cmake" ] || has_python_packages || begin python "Python packages" install_python_packages
  [[ ! $list =~ " "(hip|bitcode|json|doctest)" " ]] ||
    begin debs "headers of HIP, JSON and doctest, device bitcode" fetch_debs "$scratch"
  [[ $list != *" ck "* ]] || begin ck "Composable Kernel and AITER (40 MB)" fetch_ck "$scratch"
  [[ $list != *" xla_ffi "* ]] || begin xla_ffi "XLA's FFI headers (80 MB)" fetch_xla_ffi "$scratch"
  [[ $list != *" onnxruntime "* ]] ||
    begin onnxruntime "ONNX Runtime's headers" fetch_onnxruntime "$scratch"
  [[ $list != *" clang20 "* ]] || begin clang20 "clang 20 (90 MB)" fetch_clang20 "$scratch"
}

check_system
[ -n "$site" ] || check_parts
check_possible
mkdir -p "$prefix"
scratch=$(mktemp -d "$prefix/.fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
begin_jobs
await_all
# A device library that an earlier version of this program unpacked lacks the archs that have come since.
for folder in "$prefix/bitcode" "$prefix/clang20/bitcode"; do
  [ -n "$rocm$site" ] || [ ! -d "$folder" ] ||
    python3 "$here/fetch/add_bitcode.py" "$folder" --clang "$(command -v "clang++-$llvm")"
done
[ -n "$for_cmake" ] || link_package
say "ready${rocm:+, with ROCm in $rocm}"

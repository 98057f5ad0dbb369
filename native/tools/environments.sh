# SPDX-License-Identifier: MIT OR Apache-2.0
# Environments of pinned wheels, and tests that run in them, for test_clients.sh and test_engines.sh. The script that
# sources this file has set
#
#   group      clients or engines: of tests/, and of build/GROUP-NAME-venv
#   names      all there are; a function of each runs its tests
#   chosen     those to run
#   arguments  pytest's
#
# Every one runs even if one before it failed; the last lines say what ran, in which versions, and how long it took.
root=$PWD python=${PYTHON:-python3} report=() failed=() chosen=() arguments=()
script=$(basename "$0")

# choose ARGUMENT...: reads the command line.
choose() {
  local list=${names[*]}
  while [ $# -gt 0 ]; do
    case $1 in
      --) shift; arguments=("$@"); break ;;
      *)
        [[ " ${names[*]} " == *" $1 "* ]] ||
          { echo "$script: got '$1', expected one of ${list// /, }, or -- and pytest's arguments" >&2; exit 2; }
        chosen+=("$1"); shift ;;
    esac
  done
  [ ${#chosen[@]} -gt 0 ] || chosen=("${names[@]}")
  [ -e build/release/emulator/libamdhip64.so.6 ] || { echo "$script: no build/release: run \`make build\`" >&2; exit 2; }
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { echo "$script: $python is $("$python" --version), expected 3.11 or later: set PYTHON" >&2; exit 2; }
}

# versions_of NAME: what its requirements name, to print.
versions_of() {
  sed -n 's/^\([a-z0-9-]*\)==\(.*\)/\1 \2/p' "tests/$group/with_$1/requirements.in" | paste -sd, | sed 's/,/, /g'
}

# make_venv NAME [LOCKED...]: $venv, as tests/GROUP/with_NAME/requirements.txt, more such files and the program of its own
# set it up. The stamp is what it was made from. Python compiles a module when a test first imports it: one in five of the
# 21,500 in vLLM's environment. pip would compile all of them on one core, for a minute.
make_venv() {
  local name=$1 begin=$SECONDS locked
  shift
  local files=("tests/$group/with_$name/requirements.txt" "$@") setup=tests/$group/with_$name/${name}_setup.py
  venv=$root/build/$group-$name-venv
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  if ! cat "${files[@]}" | cmp -s - "$venv/.requirements"; then
    for locked in "${files[@]}"; do
      "$venv/bin/python" -m pip install --disable-pip-version-check --no-compile --no-deps --require-hashes \
        --only-binary=:all: -r "$locked"
    done
    cat "${files[@]}" >"$venv/.requirements"
  fi
  [ ! -e "$setup" ] || PYTHONPATH=tests "$venv/bin/python" -m "$group.with_$name.${name}_setup"
  versions=$(versions_of "$name")
  echo "$name: environment ready in $((SECONDS - begin)) s"
}

# download LOCKED: the wheels of a file of requirements, and nothing that they ask for, in a new folder $wheels.
download() {
  wheels=$(mktemp -d build/.wheels.XXXXXX)
  build/venv/bin/python -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -r "$1" -d "$wheels"
}

# unpack NAME: the wheels of tests/GROUP/with_NAME/requirements.txt, in build/GROUP/NAME.
unpack() {
  local locked=tests/$group/with_$1/requirements.txt folder=build/$group/$1 wheels wheel
  versions=$(versions_of "$1")
  ! cmp -s "$locked" "$folder/.requirements" || return 0
  download "$locked"
  rm -rf "$folder"
  for wheel in "$wheels"/*.whl; do build/venv/bin/python -m zipfile --extract "$wheel" "$folder"; done
  cp "$locked" "$folder/.requirements"
  rm -rf "$wheels"
}

# run WHAT COMMAND...: runs tests and notes how that went, in pytest's own words.
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

# in_venv VENV COMMAND...: a command that finds the environment's programs, and this checkout's package. Python keeps what
# it compiles, whatever the caller's environment says: each process of vLLM would compile 4,300 modules, for half a minute.
in_venv() {
  local venv=$1
  shift
  env -u PYTHONDONTWRITEBYTECODE PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv" PYTHONPATH="$root" "$@"
}

# on_device VENV [OPTION...] -- ARGUMENT...: pytest in that environment, on the software device.
on_device() {
  local venv=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  in_venv "$venv" "$venv/bin/python" -m pyfa_rocm device "${options[@]}" -- \
    "$venv/bin/pytest" -c "tests/$group/pytest.ini" "$@" "${arguments[@]}"
}

# finish: says how it went.
finish() {
  echo
  echo "$script: on the software device, in $SECONDS s"
  printf '  %s\n' "${report[@]}"
  [ ${#failed[@]} -eq 0 ] || { printf "$script: FAILED: %s\n" "${failed[@]}" >&2; exit 1; }
}

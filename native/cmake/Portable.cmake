# SPDX-License-Identifier: MIT OR Apache-2.0
# The preset `windows` builds the library for Windows with zig too: CMAKE_SYSTEM_NAME=Windows asks for it.
#
# A host side that runs on every Linux since glibc 2.28, whatever this machine has: what a wheel needs. zig (`pip
# install ziglang`) brings a clang, the symbols of any glibc, and a static libc++. Included before project(), since
# it chooses the compilers; CC and CXX count only without it, because scikit-build-core always sets them.

set(FMHA_GLIBC 2.28)
set(_default OFF)
if(SKBUILD)
  set(_default ON)
endif()
option(FMHA_PORTABLE "Build the host side with zig for glibc ${FMHA_GLIBC}; on in a wheel" ${_default})
set(FMHA_ZIG "" CACHE FILEPATH "zig; empty: that of the Python package ziglang, or in PATH")

if(NOT FMHA_PORTABLE)
  if(SKBUILD AND "$ENV{_PYTHON_HOST_PLATFORM}" MATCHES "manylinux")
    message(FATAL_ERROR "FMHA_PORTABLE is off, and the wheel's platform is $ENV{_PYTHON_HOST_PLATFORM}; expected that "
                        "of this machine only: set PYFA_ROCM_PLATFORM=linux-x86_64 in the environment")
  endif()
  return()
endif()

# Looked for anew each time: an isolated build has it in a folder of that build.
function(_fmha_find_zig variable)
  foreach(python IN ITEMS "${Python3_EXECUTABLE}" python3)
    if(python)
      execute_process(
        COMMAND "${python}" -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name('zig'))"
        OUTPUT_VARIABLE zig ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(EXISTS "${zig}")
        set(${variable} "${zig}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
  find_program(zig zig NO_CACHE)
  if(NOT zig)
    message(FATAL_ERROR "zig not found, with which FMHA_PORTABLE builds for glibc ${FMHA_GLIBC}: `pip install "
                        "ziglang`, name it (-DFMHA_ZIG=), or build for this machine only (-DFMHA_PORTABLE=OFF; for "
                        "a wheel: -Ccmake.define.FMHA_PORTABLE=OFF and PYFA_ROCM_PLATFORM=linux-x86_64)")
  endif()
  set(${variable} "${zig}" PARENT_SCOPE)
endfunction()

set(_triple x86_64-linux-gnu.${FMHA_GLIBC})
if(CMAKE_SYSTEM_NAME STREQUAL "Windows")
  set(_triple x86_64-windows-gnu)
endif()
set(_zig "${FMHA_ZIG}")
if(NOT _zig)
  _fmha_find_zig(_zig)
endif()

# zig compiles its C and C++ libraries when a program first needs them, for four minutes of CPU time. They stay in the user's
# cache folder, and so does a link to zig's own folder: zig finds only what it compiled when that had the same path. The build
# folder keeps what zig compiles of this project.
set(_folder "${CMAKE_BINARY_DIR}/zig")
set(_kept "$ENV{ZIG_GLOBAL_CACHE_DIR}")
set(_lib "$ENV{ZIG_LIB_DIR}")
if(NOT _kept)
  include("${CMAKE_CURRENT_LIST_DIR}/CacheFolder.cmake")
  fmha_cache_folder(_kept zig)
  execute_process(COMMAND sh -c "mkdir -p \"$1\" && [ -w \"$1\" ] && du -sm \"$1\"" sh "${_kept}" OUTPUT_VARIABLE _size
                  ERROR_QUIET RESULT_VARIABLE _failed)
  if(_failed)
    set(_kept "${_folder}/libraries")
  elseif(_size MATCHES "^[0-9][0-9][0-9][0-9]")  # 1000 MB are those of several versions of zig
    file(REMOVE_RECURSE "${_kept}")
  endif()
endif()
file(MAKE_DIRECTORY "${_folder}")
execute_process(COMMAND "${_zig}" env WORKING_DIRECTORY "${_folder}" OUTPUT_VARIABLE _said ERROR_QUIET)
set(_link)
if(NOT _lib AND _said MATCHES "lib_dir[\" =:]+\"([^\"]+)\"")
  file(REAL_PATH "${CMAKE_MATCH_1}" _own BASE_DIRECTORY "${_folder}")
  if(_said MATCHES "version[\" =:]+\"([^\"]+)\"")
    set(_lib "${_kept}/lib-${CMAKE_MATCH_1}")
    set(_link "[ -e '${_lib}/std' ] || { mkdir -p '${_kept}' && ln -sfn '${_own}' '${_lib}'; }\n")
  endif()
endif()
if(_lib)
  string(APPEND _link "export ZIG_LIB_DIR='${_lib}'\n")
endif()

# A program for each language, at a place that stays when zig's own changes, as in an isolated build. zig spells the
# levels of x86-64 in its own way. With -O2 and -s, which a release has anyway, CMake's trials of the compiler need the same
# libraries of zig's as the release. Without -s zig's libc++ has debug information, ten times the size of the code.
foreach(language IN ITEMS cc c++)
  file(WRITE "${_folder}/${language}.new" "#!/bin/sh
for word do
  shift
  case $word in -march=x86-64-v?) word=-march=x86_64_v\${word#-march=x86-64-v} ;; esac
  set -- \"$@\" \"$word\"
done
${_link}export ZIG_GLOBAL_CACHE_DIR='${_kept}' ZIG_LOCAL_CACHE_DIR='${_folder}/cache'
exec '${_zig}' ${language} -target ${_triple} -O2 -s \"$@\"
")
  file(CHMOD "${_folder}/${language}.new" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  file(RENAME "${_folder}/${language}.new" "${_folder}/${language}")
endforeach()
set(CMAKE_C_COMPILER "${_folder}/cc")
set(CMAKE_CXX_COMPILER "${_folder}/c++")
set(CMAKE_ASM_COMPILER "${_folder}/cc")
if(CMAKE_SYSTEM_NAME STREQUAL "Windows")  # CMake asks for one; there are no resources
  file(WRITE "${_folder}/rc" "#!/bin/sh\nexec '${_zig}' rc \"$@\"\n")
  file(CHMOD "${_folder}/rc" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(CMAKE_RC_COMPILER "${_folder}/rc")
endif()
message(STATUS "Host side for ${_triple}, with ${_zig}")

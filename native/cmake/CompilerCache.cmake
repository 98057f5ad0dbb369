# SPDX-License-Identifier: MIT OR Apache-2.0
# ccache keeps what was compiled in the user's cache folder, so that another clone compiles only what differs.
# Sets FMHA_COMPILER_CACHE, the command in front of a compiler: empty if there is no ccache.
#
# A result is found again by the preprocessed source, the flags, the compiler's version (its package's revision
# included) and, for kernels, the device bitcode that is linked into them. Paths below this project count as relative.
# $CCACHE_DIR chooses another folder, $CCACHE_MAXSIZE another limit, and $CCACHE_DISABLE=1 none at all.
include_guard(GLOBAL)
set(_cache ON)
if(SKBUILD)
  set(_cache OFF)
endif()
option(FMHA_CACHE "Keep compiled kernels and objects in the user's cache folder, if ccache is installed; off in a wheel"
       ${_cache})
set(FMHA_CACHE_SIZE 3G)  # the objects of `ci` and of the tests in two versions
set(FMHA_COMPILER_CACHE)

find_program(FMHA_CCACHE ccache)
if(NOT FMHA_CACHE OR NOT FMHA_CCACHE)
  return()
endif()
set(_folder "$ENV{CCACHE_DIR}")
if(NOT _folder)
  include("${CMAKE_CURRENT_LIST_DIR}/CacheFolder.cmake")
  fmha_cache_folder(_folder ccache)
endif()
if(NOT _folder)
  message(STATUS "Compiler cache: none, there is neither XDG_CACHE_HOME nor a home")
  return()
endif()
set(_size "${FMHA_CACHE_SIZE}")
if(DEFINED ENV{CCACHE_MAXSIZE})
  set(_size "$ENV{CCACHE_MAXSIZE}")
endif()

# fmha_cache_program(<variable> <name> [<folder>]): a program that goes in front of a compiler, and its options, which
# leave a user's own ccache as it is. Where the compiler reads files of <folder> without including them, as device
# bitcode, what is in them counts too.
function(fmha_cache_program variable name)
  set(extra)
  if(ARGN)
    file(GLOB extra "${ARGN}/*")
    list(JOIN extra ":" extra)
    set(extra "extra_files_to_hash = ${extra}\n")
  endif()
  set(program "${CMAKE_BINARY_DIR}/ccache/${name}")
  file(CONFIGURE OUTPUT "${program}.conf" CONTENT "cache_dir = ${_folder}
max_size = ${_size}
base_dir = ${CMAKE_SOURCE_DIR}
hash_dir = false
compiler_check = ${program}.version %compiler%
${extra}" @ONLY)
  file(CONFIGURE OUTPUT "${program}" CONTENT "#!/bin/sh
# Without a folder that can be written ccache would fail; the compiler does not.
folder='${_folder}/tmp'
[ -d \"$folder\" ] || mkdir -p \"$folder\" 2>/dev/null
[ -w \"$folder\" ] || exec \"$@\"
CCACHE_CONFIGPATH='${program}.conf' exec '${FMHA_CCACHE}' \"$@\"
" @ONLY)
  # A compiler below this project says where it lies, which is no part of its version.
  file(CONFIGURE OUTPUT "${program}.version" CONTENT "#!/bin/sh
\"$1\" --version | sed 's#${CMAKE_SOURCE_DIR}##g'
" @ONLY)
  file(CHMOD "${program}" "${program}.version" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(${variable} "${program}" PARENT_SCOPE)
endfunction()

fmha_cache_program(FMHA_COMPILER_CACHE host)
foreach(language C CXX)
  set(CMAKE_${language}_COMPILER_LAUNCHER "${FMHA_COMPILER_CACHE}")
endforeach()
message(STATUS "Compiler cache: ${_folder}, at most ${_size}")

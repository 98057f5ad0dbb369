# SPDX-License-Identifier: MIT OR Apache-2.0
# fmha_use_zstd(<target>): the target may include zstd.h, and has libzstd in it. The static one, if there is one, so
# that the target needs only libc; of a portable build always. A build for another system than this compiles the
# decoder from zstd's sources.
include("${CMAKE_CURRENT_LIST_DIR}/Borrow.cmake")

if(CMAKE_CROSSCOMPILING)
  set(_zstd "${FMHA_TOOLCHAIN_DIR}/zstd")
  file(GLOB _sources "${_zstd}/lib/common/*.c" "${_zstd}/lib/decompress/*.c")
  if(NOT _sources)
    message(FATAL_ERROR "no sources of zstd in ${_zstd}: native/tools/fetch/fetch_zstd.sh (`make windows`) fetches them")
  endif()
  add_library(fmha_zstd OBJECT ${_sources})
  target_include_directories(fmha_zstd SYSTEM PUBLIC "${_zstd}/lib")
  target_compile_definitions(fmha_zstd PRIVATE ZSTD_DISABLE_ASM=1 "ZSTDLIB_VISIBLE=" "ZSTDERRORLIB_VISIBLE=")
  target_compile_options(fmha_zstd PRIVATE -w)
  function(fmha_use_zstd target)
    target_link_libraries(${target} PRIVATE fmha_zstd)
  endfunction()
  return()
endif()

set(_zstd_names libzstd.a)
if(NOT FMHA_PORTABLE)
  list(APPEND _zstd_names zstd)
endif()
find_path(FMHA_ZSTD_INCLUDE zstd.h REQUIRED)
find_library(FMHA_ZSTD_LIBRARY NAMES ${_zstd_names} PATH_SUFFIXES x86_64-linux-gnu REQUIRED)

function(fmha_use_zstd target)
  fmha_borrow_header(${target} "${FMHA_ZSTD_INCLUDE}" zstd.h)
  fmha_borrow_header(${target} "${FMHA_ZSTD_INCLUDE}" zstd_errors.h)  # which zstd.h includes since zstd 1.5.6
  target_link_libraries(${target} PRIVATE "${FMHA_ZSTD_LIBRARY}")
endfunction()

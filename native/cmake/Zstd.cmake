# SPDX-License-Identifier: MIT OR Apache-2.0
# fmha_use_zstd(<target>): the target may include zstd.h, and has libzstd in it. The static one, if there is one, so
# that the target needs only libc; of a portable build always.
include("${CMAKE_CURRENT_LIST_DIR}/Borrow.cmake")

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

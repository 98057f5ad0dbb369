# SPDX-License-Identifier: MIT OR Apache-2.0
# `pip wheel .` and its like have no `make toolchain` before them: there CMake itself prepares what a build needs and
# this machine lacks, or says what to install.
set(_prepare OFF)
if(SKBUILD)
  set(_prepare ON)
endif()
option(FMHA_PREPARE "Fetch what is missing for a build, as `make toolchain` does; on in a wheel" ${_prepare})
set(FMHA_TOOLCHAIN_DIR "${PROJECT_SOURCE_DIR}/build/toolchain" CACHE PATH
    "What `make toolchain` prepared: hip, bitcode, ck, clang20, json, doctest, xla_ffi")

if(FMHA_PREPARE)
  execute_process(
    COMMAND "${PROJECT_SOURCE_DIR}/native/tools/toolchain.sh" --cmake --prefix "${FMHA_TOOLCHAIN_DIR}"
            --targets "${FMHA_GPU_TARGETS}"
    RESULT_VARIABLE _failed)
  if(_failed)
    message(FATAL_ERROR "This machine lacks what a build needs; the lines above say what, and what to do "
                        "(native/tools/toolchain.sh --cmake)")
  endif()
endif()

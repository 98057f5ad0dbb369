# SPDX-License-Identifier: MIT OR Apache-2.0
# Finds what compiles kernels, in this order: what the user names; ROCm ($ROCM_PATH, /opt/rocm); a clang >= 17 with
# the AMDGPU target, and HIP headers, bitcode and CK from packages, as `make toolchain` lays them out.
#
# An arch that it does not know, or compiles wrong (least_clang in native/archs.toml), is compiled with the clang 20 that
# `make toolchain` makes for such archs. Without that one an arch that the user did not name is left out, with a message.
#
# Sets FMHA_DEVICE_COMPILER, FMHA_OBJDUMP, FMHA_HIP_PATH, FMHA_BITCODE, CK_INCLUDE, FMHA_CK_VERSION and
# FMHA_DEVICE_COMPILER_ID; for each of FMHA_GPU_TARGETS FMHA_COMPILER_<arch>, FMHA_BITCODE_<arch>, whether no
# disassembler comes with that compiler, FMHA_BY_ASSEMBLY_<arch>, and whether it leaves out waits that the build then adds,
# FMHA_ADD_WAITS_<arch>.

set(CK_ROOT "" CACHE PATH "Composable Kernel: a folder with include/ck_tile")
set(FMHA_DEVICE_COMPILER "" CACHE FILEPATH "clang++ that compiles the kernels")

set(_rocm "")
foreach(candidate IN ITEMS "$ENV{ROCM_PATH}" /opt/rocm)
  if(candidate AND NOT _rocm AND EXISTS "${candidate}/include/hip/hip_runtime.h")
    set(_rocm "${candidate}")
  endif()
endforeach()

function(_fmha_need variable what)
  if(NOT ${variable})
    message(FATAL_ERROR "${what} not found. `make toolchain` prepares what a build without ROCm needs; with ROCm, "
                        "set ROCM_PATH. (${variable})")
  endif()
endfunction()

if(NOT FMHA_DEVICE_COMPILER)
  find_program(_fmha_clang NAMES amdclang++ clang++ HINTS ${_rocm}/bin ${_rocm}/llvm/bin NO_DEFAULT_PATH NO_CACHE)
  if(NOT _rocm OR NOT _fmha_clang)
    unset(_fmha_clang)
    find_program(_fmha_clang NAMES clang++-19 clang++-20 clang++-18 clang++-17 clang++ NO_CACHE)
  endif()
  _fmha_need(_fmha_clang "A clang for the kernels")
  set(FMHA_DEVICE_COMPILER "${_fmha_clang}" CACHE FILEPATH "clang++ that compiles the kernels" FORCE)
endif()
execute_process(COMMAND ${FMHA_DEVICE_COMPILER} --version OUTPUT_VARIABLE _version RESULT_VARIABLE _failed)
execute_process(COMMAND ${FMHA_DEVICE_COMPILER} --print-targets OUTPUT_VARIABLE _targets ERROR_QUIET)
if(_failed OR NOT _version MATCHES "clang version ([0-9]+)" OR CMAKE_MATCH_1 LESS 17
   OR (_targets AND NOT _targets MATCHES "amdgcn"))
  message(FATAL_ERROR "FMHA_DEVICE_COMPILER is ${FMHA_DEVICE_COMPILER}; expected a clang >= 17 with the AMDGPU "
                      "target, got: ${_version}")
endif()
string(REGEX MATCH "clang version ([0-9]+)" _clang_major "${_version}")
set(_clang_major "${CMAKE_MATCH_1}")
string(REGEX MATCH "^[^\n]*" FMHA_DEVICE_COMPILER_ID "${_version}")
get_filename_component(_clang_real "${FMHA_DEVICE_COMPILER}" REALPATH)
get_filename_component(_clang_bin "${_clang_real}" DIRECTORY)
find_program(FMHA_OBJDUMP NAMES llvm-objdump HINTS "${_clang_bin}" ${_rocm}/llvm/bin NO_DEFAULT_PATH)
_fmha_need(FMHA_OBJDUMP "llvm-objdump beside ${FMHA_DEVICE_COMPILER}")

# Parts of this toolchain are for the kernels, and none of the system for which the host side is compiled: a toolchain that
# confines CMake to that system's folders, as conda's does, does not count for them.
find_path(FMHA_HIP_PATH include/hip/hip_runtime.h HINTS ${_rocm} "${FMHA_TOOLCHAIN_DIR}/hip" NO_DEFAULT_PATH
          NO_CMAKE_FIND_ROOT_PATH)
if(NOT FMHA_HIP_PATH)
  find_path(FMHA_HIP_PATH include/hip/hip_runtime.h PATHS /usr NO_CMAKE_FIND_ROOT_PATH)
endif()
_fmha_need(FMHA_HIP_PATH "HIP headers")
file(STRINGS "${FMHA_HIP_PATH}/include/hip/hip_version.h" _hip REGEX "define HIP_VERSION_(MAJOR|MINOR) ")
string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]*([0-9]+).*" "\\1.\\2" _hip "${_hip}")
if(_hip VERSION_LESS 5.7)
  message(FATAL_ERROR "FMHA_HIP_PATH is ${FMHA_HIP_PATH}, HIP ${_hip}; CK needs the headers of 5.7 or newer. "
                      "`make toolchain` fetches them.")
endif()
find_path(FMHA_BITCODE ocml.bc HINTS "${_rocm}/amdgcn/bitcode" "${FMHA_TOOLCHAIN_DIR}/bitcode"
          /usr/lib/llvm-17/lib/clang/17/amdgcn/bitcode NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
_fmha_need(FMHA_BITCODE "AMD device bitcode (ocml.bc)")

if(CK_ROOT)
  find_path(CK_INCLUDE ck_tile/ops/fmha.hpp HINTS "${CK_ROOT}/include" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
else()
  find_path(CK_INCLUDE ck_tile/ops/fmha.hpp HINTS ${_rocm}/include "${FMHA_TOOLCHAIN_DIR}/ck/include" NO_DEFAULT_PATH
            NO_CMAKE_FIND_ROOT_PATH)
endif()
_fmha_need(CK_INCLUDE "Composable Kernel (ck_tile/ops/fmha.hpp; CK_ROOT=\"${CK_ROOT}\")")

# CK states its version in ck/version.h of an installed copy, otherwise in its CMakeLists.txt.
set(FMHA_CK_VERSION unknown)
if(EXISTS "${CK_INCLUDE}/ck/version.h")
  file(STRINGS "${CK_INCLUDE}/ck/version.h" _ck REGEX "CK_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]*([0-9]+)[^0-9]*([0-9]+).*" "\\1.\\2.\\3" FMHA_CK_VERSION "${_ck}")
elseif(EXISTS "${CK_INCLUDE}/../CMakeLists.txt")
  file(STRINGS "${CK_INCLUDE}/../CMakeLists.txt" _ck REGEX "^set\\(version [0-9.]+\\)")
  string(REGEX REPLACE "[^0-9]*([0-9.]+).*" "\\1" FMHA_CK_VERSION "${_ck}")
endif()
if(EXISTS "${CK_INCLUDE}/../SOURCE")  # written by `make toolchain`: which package it came in
  file(READ "${CK_INCLUDE}/../SOURCE" _ck_source)
  string(STRIP "${_ck_source}" _ck_source)
  string(APPEND FMHA_CK_VERSION " (${_ck_source})")
endif()

# Each compiler is tried once on each arch: clangs do not list the archs that they know.
function(_fmha_knows variable compiler arch)
  string(MD5 key "${compiler} ${arch}")
  set(known "FMHA_KNOWS_${key}")
  if(NOT DEFINED ${known})
    set(folder "${CMAKE_BINARY_DIR}/knows")
    file(WRITE "${folder}/empty.hip" "")
    execute_process(
      COMMAND "${compiler}" -x hip --offload-arch=${arch} -nogpuinc -nogpulib --cuda-device-only --no-gpu-bundle-output
              -c "${folder}/empty.hip" -o "${folder}/empty.co"
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
      return()  # not kept: another compiler may take its place
    endif()
    set(${known} TRUE CACHE INTERNAL "${compiler} knows ${arch}")
  endif()
  set(${variable} TRUE PARENT_SCOPE)
endfunction()

set(_clang20 "${FMHA_TOOLCHAIN_DIR}/clang20")
set(_compiled)
foreach(arch IN LISTS FMHA_GPU_TARGETS)
  if(NOT arch IN_LIST FMHA_ALL_GPU_TARGETS)
    list(APPEND _compiled ${arch})  # catalogue.py says what is wrong
    continue()
  endif()
  set(_knows FALSE)
  set(FMHA_COMPILER_${arch} "${FMHA_DEVICE_COMPILER}")
  set(FMHA_BITCODE_${arch} "${FMHA_BITCODE}")
  set(FMHA_BY_ASSEMBLY_${arch} FALSE)
  set(FMHA_ADD_WAITS_${arch} FALSE)
  if(FMHA_LATE_SCALARS_${arch} AND NOT _rocm AND _clang_major LESS 21)
    set(FMHA_ADD_WAITS_${arch} TRUE)  # the clang 20 below is no newer
  endif()
  _fmha_knows(_knows "${FMHA_DEVICE_COMPILER}" ${arch})
  set(_too_old FALSE)
  if(_knows AND NOT _rocm AND _clang_major LESS FMHA_LEAST_CLANG_${arch})  # ROCm's has its own fixes
    set(_too_old TRUE)
    set(_knows FALSE)
  endif()
  if(NOT _knows AND EXISTS "${_clang20}/SOURCE")
    _fmha_knows(_knows "${_clang20}/bin/clang++" ${arch})
    set(FMHA_COMPILER_${arch} "${_clang20}/bin/clang++")
    if(NOT _too_old)
      set(FMHA_BITCODE_${arch} "${_clang20}/bitcode")
      set(FMHA_BY_ASSEMBLY_${arch} TRUE)
    endif()
    file(READ "${_clang20}/SOURCE" _source)
    string(STRIP "${_source}" _source)
    string(APPEND FMHA_DEVICE_COMPILER_ID "; ${arch}: clang of ${_source}")
  endif()
  if(_knows OR FMHA_KERNELS_FROM)
    list(APPEND _compiled ${arch})
  elseif(arch IN_LIST FMHA_GPU_TARGETS_NAMED)
    message(FATAL_ERROR "FMHA_GPU_TARGETS has ${arch}, which ${FMHA_DEVICE_COMPILER} does not compile for without a mistake. `make "
                        "toolchain GPU_TARGETS=${arch}` makes a clang that does, where there is no ROCm")
  else()
    message(STATUS "Left out: ${arch}, which ${FMHA_DEVICE_COMPILER} does not compile for (`make toolchain`)")
  endif()
endforeach()
set(FMHA_GPU_TARGETS "${_compiled}")

message(STATUS "Device compiler: ${FMHA_DEVICE_COMPILER} (${FMHA_DEVICE_COMPILER_ID})")
message(STATUS "HIP ${_hip}: ${FMHA_HIP_PATH}; bitcode: ${FMHA_BITCODE}")
message(STATUS "Composable Kernel ${FMHA_CK_VERSION}: ${CK_INCLUDE}")

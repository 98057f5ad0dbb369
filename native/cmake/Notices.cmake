# SPDX-License-Identifier: MIT OR Apache-2.0
# The licences of third-party code in a build: collected from the packages that it came in, and installed beside our
# own. A wheel is redistributed, so it is not built without any of them.
set(FMHA_NOTICES "${PROJECT_BINARY_DIR}/third-party")
file(REMOVE_RECURSE "${FMHA_NOTICES}")

# fmha_notice(<name> <file>...): the first of the files that there is becomes the notice of that name.
function(fmha_notice name)
  foreach(file IN LISTS ARGN)
    if(EXISTS "${file}")
      configure_file("${file}" "${FMHA_NOTICES}/${name}.txt" COPYONLY)
      return()
    endif()
  endforeach()
  list(JOIN ARGN ", " places)
  set(message "no licence of ${name}, which is part of what is built; looked for ${places}. `make toolchain` fetches "
              "what this machine lacks.")
  if(SKBUILD)
    message(FATAL_ERROR ${message})
  endif()
  message(WARNING ${message})
endfunction()

set(_rocm_doc "${FMHA_HIP_PATH}/share/doc")  # of a whole ROCm
fmha_notice(composable_kernel "${CK_INCLUDE}/../LICENSE" "${_rocm_doc}/composable_kernel/LICENSE"
            "${_rocm_doc}/composablekernel/LICENSE")
if(EXISTS "${CK_INCLUDE}/../objects/LICENSE")  # native/kernels/prebuilt
  fmha_notice(aiter "${CK_INCLUDE}/../objects/LICENSE")
endif()
# Inlined into every kernel.
fmha_notice(rocm-device-libs "${FMHA_BITCODE}/copyright" "${_rocm_doc}/rocm-device-libs/LICENSE.TXT"
            "${_rocm_doc}/ROCm-Device-Libs/LICENSE.TXT" /usr/share/doc/rocm-device-libs-17/copyright)
fmha_notice(hip "${FMHA_HIP_PATH}/copyright" "${_rocm_doc}/hip/LICENSE.txt" "${_rocm_doc}/hip/LICENSE.md"
            /usr/share/doc/libamdhip64-dev/copyright)
# The library and the software device contain it.
set(_zstd_licence)
if(CMAKE_CROSSCOMPILING)  # which compiles its sources
  set(_zstd_licence "${FMHA_TOOLCHAIN_DIR}/zstd/LICENSE")
endif()
fmha_notice(zstd ${_zstd_licence} /usr/share/doc/libzstd-dev/copyright /usr/share/licenses/libzstd-static/LICENSE
            /usr/share/licenses/libzstd/LICENSE /usr/share/licenses/zstd/LICENSE)
if(TARGET amdhip64_emu)
  fmha_notice(nlohmann-json "${FMHA_JSON_INCLUDE_DIR}/../copyright" /usr/share/doc/nlohmann-json3-dev/copyright
              /usr/share/licenses/json-devel/LICENSE.MIT /usr/share/licenses/nlohmann-json/LICENSE.MIT)
endif()
if(TARGET fmha_rocm_jax)
  fmha_notice(xla "${FMHA_XLA_INCLUDE}/../LICENSE")
endif()

if(SKBUILD)
  install(DIRECTORY "${FMHA_NOTICES}" DESTINATION "${SKBUILD_METADATA_DIR}/licenses")
else()
  install(DIRECTORY "${FMHA_NOTICES}" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT fmha_rocm_runtime)
endif()

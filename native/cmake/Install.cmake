# SPDX-License-Identifier: MIT OR Apache-2.0
# `cmake --install` lays this out, below any prefix and movable with it:
#
#   include/fmha_rocm.h, fmha_rocm.hpp
#   lib/libfmha_rocm.so -> .so.0 -> .so.0.x.y        on Windows bin/fmha_rocm.dll and lib/fmha_rocm.lib
#   lib/cmake/fmha_rocm/              find_package(fmha_rocm): the target fmha_rocm::fmha_rocm
#   lib/pkgconfig/fmha_rocm.pc        the same for pkg-config
#   lib/fmha_rocm/emulator/           the software device
#   share/doc/fmha_rocm/              licences, and in third-party/ those of others (Notices.cmake)
#
# A wheel (SKBUILD) holds no links: there the library's file is .so.0, the .so beside it is a linker script that names
# it, and the software device has one name. A wheel for Windows has the DLL in lib.
#
# The components fmha_rocm_runtime, fmha_rocm_development and fmha_rocm_emulator can each be installed separately.
include(CMakePackageConfigHelpers)

set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/fmha_rocm")
set(FMHA_INSTALL_EMULATOR_DIR "${CMAKE_INSTALL_LIBDIR}/fmha_rocm/emulator")

set(_dll "${CMAKE_INSTALL_BINDIR}")
if(SKBUILD AND WIN32)
  set(_dll "${CMAKE_INSTALL_LIBDIR}")  # where the package looks
elseif(SKBUILD)
  set(_namelink NAMELINK_SKIP)
  set(_emulator_names "libamdhip64.so.6")
  file(WRITE "${PROJECT_BINARY_DIR}/linker_script/libfmha_rocm.so" "INPUT(libfmha_rocm.so.${PROJECT_VERSION_MAJOR})\n")
  install(FILES "${PROJECT_BINARY_DIR}/linker_script/libfmha_rocm.so" DESTINATION "${CMAKE_INSTALL_LIBDIR}"
          COMPONENT fmha_rocm_development)
else()
  set(_namelink NAMELINK_COMPONENT fmha_rocm_development)
  set(_emulator_names "libamdhip64.so*")
endif()
install(TARGETS fmha_rocm EXPORT fmha_rocm
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT fmha_rocm_runtime ${_namelink}
        RUNTIME DESTINATION "${_dll}" COMPONENT fmha_rocm_runtime
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT fmha_rocm_development
        PUBLIC_HEADER DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT fmha_rocm_development
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT fmha_rocm NAMESPACE fmha_rocm:: FILE fmha_rocm-targets.cmake DESTINATION "${_package}"
        COMPONENT fmha_rocm_development)
# Structs only grow and symbols stay within a major version, so a newer minor one serves.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/fmha_rocm-config-version.cmake"
                                 COMPATIBILITY SameMajorVersion)
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/fmha_rocm-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/fmha_rocm-config.cmake" INSTALL_DESTINATION "${_package}"
                              PATH_VARS FMHA_INSTALL_EMULATOR_DIR)
install(FILES "${PROJECT_BINARY_DIR}/fmha_rocm-config.cmake" "${PROJECT_BINARY_DIR}/fmha_rocm-config-version.cmake"
        DESTINATION "${_package}" COMPONENT fmha_rocm_development)

# The .pc file's paths are relative to itself, unless the folders were given as absolute paths.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(FMHA_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
else()
  string(REGEX REPLACE "[^/]+" ".." _up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  set(FMHA_PC_PREFIX "\${pcfiledir}/${_up}")
endif()
foreach(folder LIBDIR INCLUDEDIR)
  set(FMHA_PC_${folder} "${CMAKE_INSTALL_${folder}}")
  if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    string(PREPEND FMHA_PC_${folder} "\${prefix}/")
  endif()
endforeach()
configure_file("${CMAKE_CURRENT_LIST_DIR}/fmha_rocm.pc.in" "${PROJECT_BINARY_DIR}/fmha_rocm.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/fmha_rocm.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT fmha_rocm_development)

# It has its own folder, so that no loader takes it for the machine's HIP unless told to.
if(TARGET amdhip64_emu)
  install(DIRECTORY "${PROJECT_BINARY_DIR}/emulator/" DESTINATION "${FMHA_INSTALL_EMULATOR_DIR}"
          COMPONENT fmha_rocm_emulator USE_SOURCE_PERMISSIONS FILES_MATCHING PATTERN "${_emulator_names}")
endif()

if(NOT SKBUILD)  # a wheel has them among its metadata
  install(FILES LICENSE LICENSE-APACHE LICENSE-MIT DESTINATION "${CMAKE_INSTALL_DOCDIR}"
          COMPONENT fmha_rocm_runtime)
endif()

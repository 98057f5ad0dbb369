# SPDX-License-Identifier: MIT OR Apache-2.0
# The numbers of native/estimates.toml as C++, for the library's host side.
include_guard(GLOBAL)
include(Archs)

set(_estimates "${PROJECT_SOURCE_DIR}/native/estimates.toml")
set(_estimates_program "${PROJECT_SOURCE_DIR}/native/tools/catalogue/estimates.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_estimates}" "${_estimates_program}")
execute_process(COMMAND ${Python3_EXECUTABLE} "${_estimates_program}" "${_estimates}"
                        --out "${FMHA_GENERATED}/host/catalogue/estimates.h" COMMAND_ERROR_IS_FATAL ANY)

# SPDX-License-Identifier: MIT OR Apache-2.0
# The facts of native/archs.toml about each arch, as C++ for the library and for the software device, and as CMake's
# FMHA_ALL_GPU_TARGETS. Sets FMHA_GENERATED, the folder of generated code. Included by the project and, for builds of
# the software device by itself, by native/emulator.
include_guard(GLOBAL)
find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
# pyenv puts a script in front of the interpreter that takes longer than most programs run by this build.
execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sys; print(sys.executable)" OUTPUT_VARIABLE Python3_EXECUTABLE
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

set(FMHA_ARCHS "${CMAKE_CURRENT_LIST_DIR}/../archs.toml")
set(FMHA_GENERATED "${PROJECT_BINARY_DIR}/generated")
set(_archs_program "${CMAKE_CURRENT_LIST_DIR}/../tools/catalogue/archs.py")
cmake_path(NORMAL_PATH FMHA_ARCHS)
cmake_path(NORMAL_PATH _archs_program)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${FMHA_ARCHS}" "${_archs_program}")
execute_process(COMMAND ${Python3_EXECUTABLE} "${_archs_program}" "${FMHA_ARCHS}" --out "${FMHA_GENERATED}"
                COMMAND_ERROR_IS_FATAL ANY)
include("${FMHA_GENERATED}/archs.cmake")

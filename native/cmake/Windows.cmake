# SPDX-License-Identifier: MIT OR Apache-2.0
# fmha_make_dll(<target> <exports.map>): the target becomes a DLL of that name without `lib`, which exports what the map
# lists and has the C++ library in it. Any linker takes the import library.
function(fmha_make_dll target exports)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${exports}")
  file(STRINGS "${exports}" lines REGEX "^ +fmha_[a-z_]+;$")
  list(TRANSFORM lines REPLACE " *(.*);" "  \\1\n")
  string(CONCAT content "LIBRARY fmha_rocm\nEXPORTS\n" ${lines})
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/fmha_rocm.def" CONTENT "${content}" @ONLY)
  target_sources(${target} PRIVATE "${PROJECT_BINARY_DIR}/fmha_rocm.def")
  set_target_properties(${target} PROPERTIES PREFIX "" IMPORT_PREFIX "" IMPORT_SUFFIX ".lib")
endfunction()

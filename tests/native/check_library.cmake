# SPDX-License-Identifier: MIT OR Apache-2.0
# What the shared library shows the linker: exports nothing but the functions of fmha_rocm.h, needs no HIP.
#   cmake -DLIBRARY=… -DHEADER=… -DNM=… -DREADELF=… -DSANITIZED=… -P check_library.cmake

function(run output)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN} failed: ${result}")
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

run(defined ${NM} -D --defined-only ${LIBRARY})
string(REGEX MATCHALL "[^ \n]+(\n|$)" exported "${defined}")
list(TRANSFORM exported STRIP)
list(SORT exported)

# Functions are declared at the start of a line.
file(STRINGS ${HEADER} declarations REGEX "^(fmha_status |const char ?\\* ?)fmha_[a-z_]+\\(")
list(TRANSFORM declarations REPLACE "^.*(fmha_[a-z_]+)\\(.*$" "\\1")
list(SORT declarations)
if(NOT exported STREQUAL declarations)
  message(FATAL_ERROR "exported: ${exported}\nexpected the functions of fmha_rocm.h: ${declarations}")
endif()

run(undefined ${NM} -D --undefined-only ${LIBRARY})
string(TOLOWER "${undefined}" undefined)
if(undefined MATCHES "hip[a-z]*")
  message(FATAL_ERROR "the library wants HIP at link time:\n${undefined}")
endif()

run(dynamic ${READELF} -d ${LIBRARY})
string(REGEX MATCHALL "NEEDED[^\n]*" needed "${dynamic}")
foreach(entry IN LISTS needed)
  if(NOT entry MATCHES "\\[(libc|libm|libdl|libpthread|libgcc_s|libstdc\\+\\+|ld-linux-[a-z0-9-]+)\\.so" AND
     NOT (SANITIZED AND entry MATCHES "\\[lib(a|ub)san\\.so"))
    message(FATAL_ERROR "the library needs more than the C and C++ run time: ${entry}")
  endif()
endforeach()
if(dynamic MATCHES "TEXTREL")
  message(FATAL_ERROR "the library has text relocations")
endif()
list(LENGTH exported count)
message(STATUS "${count} functions exported; ${needed}")

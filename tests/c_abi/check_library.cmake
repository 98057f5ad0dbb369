# SPDX-License-Identifier: MIT OR Apache-2.0
# Checks that a shared library exports its own functions and nothing else, and needs only the C and C++ run time.
#   cmake -DLIBRARY=… -DNM=… -DREADELF=… -DSANITIZED=… -DHEADER=… -P check_library.cmake   exports what HEADER declares
#   cmake -DLIBRARY=… -DNM=… -DREADELF=… -DSANITIZED=… -DEXPORTS=… -P check_library.cmake  exports what the regex matches

function(run output)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN} failed: ${result}")
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

run(defined ${NM} -D --defined-only ${LIBRARY})
string(REGEX REPLACE "[^\n]* A FMHA_ROCM_[0-9.]+\n" "" defined "${defined}")  # the names of versions
string(REGEX MATCHALL "[^ \n]+(\n|$)" exported "${defined}")
list(TRANSFORM exported STRIP)
list(SORT exported)
list(LENGTH exported count)

if(HEADER)
  # Functions are declared at the start of a line.
  file(STRINGS ${HEADER} declarations REGEX "^(fmha_status |const char ?\\* ?)fmha_[a-z_]+\\(")
  list(TRANSFORM declarations REPLACE "^.*(fmha_[a-z_]+)\\(.*$" "\\1")
  list(SORT declarations)
  set(unversioned "${exported}")
  list(FILTER unversioned EXCLUDE REGEX "@@FMHA_ROCM_[0-9.]+$")
  if(unversioned)
    message(FATAL_ERROR "exported without a version: ${unversioned}")
  endif()
  list(TRANSFORM exported REPLACE "@@.*$" "")
  list(SORT exported)
  if(NOT exported STREQUAL declarations)
    message(FATAL_ERROR "exported: ${exported}\nexpected the functions of fmha_rocm.h: ${declarations}")
  endif()
else()
  set(others "${exported}")
  list(FILTER others EXCLUDE REGEX "${EXPORTS}")
  if(others OR count EQUAL 0)
    message(FATAL_ERROR "exported: ${exported}\nof which do not match ${EXPORTS}: ${others}")
  endif()
endif()

run(undefined ${NM} -D --undefined-only ${LIBRARY})
string(TOLOWER "${undefined}" undefined)
if(undefined MATCHES "hip[a-z]*")
  message(FATAL_ERROR "the library wants HIP at link time:\n${undefined}")
endif()

if(undefined MATCHES " getenv(@|\n)")
  message(FATAL_ERROR "the library reads its environment by getenv; expected secure_getenv, which sees nothing in a "
                      "setuid program")
endif()

run(dynamic ${READELF} -d ${LIBRARY})
string(REGEX MATCHALL "NEEDED[^\n]*" needed "${dynamic}")
foreach(entry IN LISTS needed)
  if(NOT entry MATCHES "\\[(libc|libm|libdl|libpthread|libgcc_s|libstdc\\+\\+|ld-linux-[a-z0-9-]+)\\.so" AND
     NOT (SANITIZED AND entry MATCHES "\\[lib(a|t|ub)san\\.so"))
    message(FATAL_ERROR "the library needs more than the C and C++ run time: ${entry}")
  endif()
endforeach()
if(dynamic MATCHES "TEXTREL")
  message(FATAL_ERROR "the library has text relocations")
endif()
# A program linked against a library of another version of the same name must still load (libamdhip64.map).
if(EXPORTS AND dynamic MATCHES "VERDEF")
  message(FATAL_ERROR "the library's symbols have versions")
endif()
message(STATUS "${count} functions exported; ${needed}")

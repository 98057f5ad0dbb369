# SPDX-License-Identifier: MIT OR Apache-2.0
# fmha_host_level(<variable>): the highest x86-64 level of this machine's CPU, v2, v3 or v4, by what Linux lists.
include_guard(GLOBAL)

function(fmha_host_level variable)
  file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
  string(REGEX MATCHALL "[a-z0-9_]+" flags "${flags}")
  set(best v2)
  foreach(step IN ITEMS "v3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave" "v4 avx512f avx512bw avx512cd avx512dq avx512vl")
    separate_arguments(needed UNIX_COMMAND "${step}")
    list(POP_FRONT needed level)
    list(REMOVE_ITEM needed ${flags})
    if(needed)
      break()
    endif()
    set(best ${level})
  endforeach()
  set(${variable} ${best} PARENT_SCOPE)
endfunction()

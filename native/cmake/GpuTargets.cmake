# SPDX-License-Identifier: MIT OR Apache-2.0
# FMHA_GPU_TARGETS=all: every architecture in native/archs.toml; the name of a family of cards there: every one of it.
# FMHA_GPU_TARGETS=distinct: those that are like no other one.
# FMHA_GPU_TARGETS=native: those of this machine's cards, as the kernel driver (KFD) lists them in sysfs, which needs no
# ROCm; if it lists none that we have kernels for, all, and a message. Input: FMHA_ALL_GPU_TARGETS and the families';
# FMHA_SYSTEM_ROOT (/), which has sys, for tests. Sets FMHA_GPU_TARGETS_NAMED, those that the user named one by one.

# gfx_target_version is MMmmss in decimal; the name has the stepping in hexadecimal: 90010 is gfx90a. A CPU has 0.
function(_fmha_native_targets variable)
  set(found)
  file(GLOB nodes "${FMHA_SYSTEM_ROOT}/sys/class/kfd/kfd/topology/nodes/*/properties")
  foreach(node IN LISTS nodes)
    file(READ "${node}" text)
    if(text MATCHES "gfx_target_version ([1-9][0-9]*)")
      set(number "${CMAKE_MATCH_1}")
      math(EXPR major "${number} / 10000")
      math(EXPR minor "${number} / 100 % 100")
      math(EXPR stepping "${number} % 100" OUTPUT_FORMAT HEXADECIMAL)
      string(REPLACE 0x "" stepping "${stepping}")
      list(APPEND found "gfx${major}${minor}${stepping}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

# `all` and families, replaced by their archs. Commas separate as semicolons do, which shells want quoted.
function(_fmha_expand_targets variable)
  set(expanded)
  set(named)
  string(REPLACE "," ";" names "${FMHA_GPU_TARGETS}")
  foreach(name IN LISTS names)
    if(name STREQUAL "all")
      list(APPEND expanded ${FMHA_ALL_GPU_TARGETS})
    elseif(NOT name IN_LIST FMHA_GPU_FAMILIES)
      list(APPEND expanded "${name}")
      list(APPEND named "${name}")
    else()
      list(APPEND expanded ${FMHA_GPU_TARGETS_${name}})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES expanded)
  set(${variable} "${expanded}" PARENT_SCOPE)
  set(FMHA_GPU_TARGETS_NAMED "${named}" PARENT_SCOPE)
endfunction()

if(FMHA_GPU_TARGETS STREQUAL "native")
  _fmha_native_targets(_found)
  set(_built)
  foreach(arch IN LISTS _found)
    if(arch IN_LIST FMHA_ALL_GPU_TARGETS)
      list(APPEND _built "${arch}")
    endif()
  endforeach()
  if(_built)
    message(STATUS "FMHA_GPU_TARGETS=native: ${_built} (of this machine's cards: ${_found})")
  else()
    set(_built "${FMHA_ALL_GPU_TARGETS}")
    if(NOT _found)
      set(_found "none")
    endif()
    message(STATUS "FMHA_GPU_TARGETS=native: cards of this machine: ${_found}; so for all that there are kernels "
                   "for: ${_built}")
  endif()
else()
  _fmha_expand_targets(_built)
endif()
set(FMHA_GPU_TARGETS "${_built}")  # hides the cache's, which stays what the user said

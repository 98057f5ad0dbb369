# SPDX-License-Identifier: MIT OR Apache-2.0
# fmha_cache_folder(<variable> <name>): a folder in the user's cache folder, for all clones; "" without a user's folder.
include_guard(GLOBAL)
function(fmha_cache_folder variable name)
  set(folder)
  if(IS_ABSOLUTE "$ENV{XDG_CACHE_HOME}")
    set(folder "$ENV{XDG_CACHE_HOME}/pyfa_rocm/${name}")
  elseif(IS_DIRECTORY "$ENV{HOME}")
    set(folder "$ENV{HOME}/.cache/pyfa_rocm/${name}")
  endif()
  set(${variable} "${folder}" PARENT_SCOPE)
endfunction()

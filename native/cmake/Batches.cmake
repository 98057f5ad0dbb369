# SPDX-License-Identifier: MIT OR Apache-2.0
# fmha_in_batches(<target> [<source>...]): compiles the target's files some at a time, since reading headers is three
# quarters of compiling one: a third of the work from nothing, and two seconds more after an edit. Not the files named.
include_guard(GLOBAL)
option(FMHA_BATCHES "Compile files of the host side some at a time; off for a compile command a file" ON)

function(fmha_in_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FMHA_BATCHES} UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

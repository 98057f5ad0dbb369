# SPDX-License-Identifier: MIT OR Apache-2.0
# fmha_borrow_header(<target> <folder> <name>): <name>, a header or a folder of them, without what stands beside it.
# In /usr/include that is this machine's libc, which a compiler for another libc (zig) must not see.
function(fmha_borrow_header target folder name)
  set(borrowed "${CMAKE_BINARY_DIR}/borrowed")
  file(MAKE_DIRECTORY "${borrowed}")
  file(CREATE_LINK "${folder}/${name}" "${borrowed}/${name}" SYMBOLIC)
  target_include_directories(${target} SYSTEM PRIVATE "${borrowed}")
endfunction()

# SPDX-License-Identifier: MIT OR Apache-2.0
# fmha_borrow_header(<target> <folder> <name>): <name>, a header or a folder of them, without what stands beside it.
# In /usr/include that is this machine's libc, which has to stay apart from that of a compiler for another one (zig).
function(fmha_borrow_header target folder name)
  set(borrowed "${CMAKE_BINARY_DIR}/borrowed")
  file(MAKE_DIRECTORY "${borrowed}")
  file(CREATE_LINK "${folder}/${name}" "${borrowed}/${name}" SYMBOLIC)
  target_include_directories(${target} SYSTEM PRIVATE "${borrowed}")
endfunction()

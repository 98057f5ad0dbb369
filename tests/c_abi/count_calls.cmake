# SPDX-License-Identifier: MIT OR Apache-2.0
# How many instructions a call takes, HIP's own look-ups included, by callgrind: of COUNT, the program, of the KIND of
# calls; at most MOST. Unlike times, it is the same at every run. VALGRIND: the program.
function(instructions calls result)
  execute_process(COMMAND "${VALGRIND}" --tool=callgrind --callgrind-out-file=/dev/null "${COUNT}" ${KIND} ${calls}
                  RESULT_VARIABLE code ERROR_VARIABLE said)
  if(code EQUAL 77)
    message(FATAL_ERROR "skipped: ${said}")
  endif()
  if(NOT code EQUAL 0 OR NOT said MATCHES "Collected : ([0-9]+)")
    message(FATAL_ERROR "${COUNT} ${KIND} ${calls} under ${VALGRIND}: ${code}\n${said}")
  endif()
  set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# The first calls load the kernel.
instructions(10 few)
instructions(1010 many)
math(EXPR each "(${many} - ${few}) / 1000")
message(STATUS "${KIND}: ${each} instructions a call; at most ${MOST}")
if(each GREATER MOST)
  message(FATAL_ERROR "a call of ${KIND} takes ${each} instructions, expected at most ${MOST}")
endif()

# Runs PROGRAM: fails unless it exits with 0 and prints something that matches EXPECTED.
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE CODE OUTPUT_VARIABLE OUTPUT ERROR_VARIABLE ERRORS)
message("${OUTPUT}${ERRORS}")
if(NOT CODE EQUAL 0)
  message(FATAL_ERROR "exit code ${CODE}")
endif()
if(NOT OUTPUT MATCHES "${EXPECTED}")
  message(FATAL_ERROR "no match of \"${EXPECTED}\" in what it printed")
endif()

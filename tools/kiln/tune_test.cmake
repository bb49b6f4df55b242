# kiln tune PROGRAM settles a program; kiln cache warm fills a cache once; a bundle carries both.
set(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tune_test)
file(REMOVE_RECURSE ${DIRECTORY})
file(MAKE_DIRECTORY ${DIRECTORY})
file(CHMOD ${DIRECTORY} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

# Runs a command with a cache; its output, stderr included, in OUTPUT.
macro(run CACHE)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env KILN_CACHE=rw KILN_CACHE_DIR=${DIRECTORY}/${CACHE} ${ARGN}
                  RESULT_VARIABLE CODE OUTPUT_VARIABLE OUTPUT ERROR_VARIABLE OUTPUT)
  if(NOT CODE EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${CODE}: ${OUTPUT}")
  endif()
endmacro()
macro(expect PATTERN)
  if(NOT OUTPUT MATCHES "${PATTERN}")
    message(FATAL_ERROR "no '${PATTERN}' in: ${OUTPUT}")
  endif()
endmacro()

run(first ${TOOL} tune ${PROGRAM})
expect("[1-9][0-9]* variants tried, [0-9]+ taken")
run(first ${TOOL} tune ${PROGRAM})  # nothing is left
expect("\n?0 variants tried, 0 taken")
run(first ${TOOL} cache ls)
expect("verdict ")
run(first ${TOOL} cache export ${DIRECTORY}/bundle)
run(second ${TOOL} cache import ${DIRECTORY}/bundle)
run(second ${TOOL} tune ${PROGRAM})
expect("0 variants tried, 0 taken")
run(second ${CMAKE_COMMAND} -E env KILN_ADAPT=kept ${PROGRAM})

run(third ${TOOL} cache warm norms --threads 2)
expect("[1-9][0-9]* kernels compiled, 0 were there")
run(third ${TOOL} cache warm norms --threads 2)
expect(" 0 kernels compiled, [1-9][0-9]* were there")

execute_process(COMMAND ${TOOL} tune /nonexistent/program RESULT_VARIABLE CODE ERROR_VARIABLE OUTPUT)
if(CODE EQUAL 0)
  message(FATAL_ERROR "a program that is not there was tuned")
endif()
expect("No such file")
file(REMOVE_RECURSE ${DIRECTORY})

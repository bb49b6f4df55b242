# Builds and runs tests/package/consumer; WAY says how it gets Kiln. The subdirectory's build tree is kept between
# runs and goes through the compiler cache, so that only the first run compiles anything.
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE CODE OUTPUT_VARIABLE OUTPUT ERROR_VARIABLE OUTPUT)
  if(NOT CODE EQUAL 0)
    string(REPLACE ";" " " COMMAND "${ARGN}")
    message(FATAL_ERROR "${COMMAND}\nexit code ${CODE}\n${OUTPUT}")
  endif()
endfunction()

if(WAY STREQUAL "find_package")
  file(REMOVE_RECURSE ${WORK})
  step(${CMAKE_COMMAND} --install ${BUILD} --component kiln --prefix ${WORK}/prefix)
  # Moved, so that an absolute path into the first prefix would show.
  file(RENAME ${WORK}/prefix ${WORK}/moved)
  set(FROM -DKILN_FROM=package -DCMAKE_PREFIX_PATH=${WORK}/moved)
else()
  set(FROM -DKILN_FROM=${SOURCE})
endif()

step(${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${WORK}/build -G ${GENERATOR} ${FROM}
     -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_BUILD_TYPE=${TYPE} -DBUILD_SHARED_LIBS=${SHARED}
     -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
step(${CMAKE_COMMAND} --build ${WORK}/build --target consumer --parallel 2)
step(${WORK}/build/consumer)

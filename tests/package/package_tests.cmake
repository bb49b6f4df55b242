# Kiln as others take it: installed and found, and as a subdirectory. Both build the consumer and run it.
get_property(KILN_LAUNCHER TARGET kiln PROPERTY CXX_COMPILER_LAUNCHER)
foreach(WAY find_package add_subdirectory)
  add_test(NAME Package.${WAY}
    COMMAND ${CMAKE_COMMAND} -DWAY=${WAY} -DSOURCE=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
            -DWORK=${PROJECT_BINARY_DIR}/package_tests/${WAY} -DGENERATOR=${CMAKE_GENERATOR}
            -DCXX=${CMAKE_CXX_COMPILER} -DFLAGS=${CMAKE_CXX_FLAGS} -DTYPE=${CMAKE_BUILD_TYPE}
            -DSHARED=${BUILD_SHARED_LIBS} -DLAUNCHER=${KILN_LAUNCHER}
            -P ${PROJECT_SOURCE_DIR}/tests/package/build_consumer.cmake)
  set_tests_properties(Package.${WAY} PROPERTIES TIMEOUT 1200 ENVIRONMENT "KILN_CACHE=off")
endforeach()
if(NOT KILN_INSTALL)
  set_tests_properties(Package.find_package PROPERTIES DISABLED TRUE)
endif()

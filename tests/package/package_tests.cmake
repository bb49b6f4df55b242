# Kiln as others take it: installed and found by CMake or pkg-config, packaged for Debian, as a subdirectory, static and
# shared; and its headers, as others' compilers and warnings see them.
get_property(KILN_LAUNCHER TARGET kiln PROPERTY CXX_COMPILER_LAUNCHER)
function(kiln_package_test WAY)
  add_test(NAME Package.${WAY}
    COMMAND ${CMAKE_COMMAND} -DWAY=${WAY} -DSOURCE=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
            -DWORK=${PROJECT_BINARY_DIR}/package_tests/${WAY} -DGENERATOR=${CMAKE_GENERATOR}
            -DCXX=${CMAKE_CXX_COMPILER} -DFLAGS=${CMAKE_CXX_FLAGS} -DTYPE=${CMAKE_BUILD_TYPE}
            -DSHARED=${BUILD_SHARED_LIBS} -DLAUNCHER=${KILN_LAUNCHER} -DCPACK=${CMAKE_CPACK_COMMAND}
            -DVERSION=${PROJECT_VERSION} -DABI=${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
            -DCOMPILERS=${KILN_COMPILERS} -DSLOW=${KILN_SLOW_TESTS}
            -P ${PROJECT_SOURCE_DIR}/tests/package/build_consumer.cmake)
  set_tests_properties(Package.${WAY} PROPERTIES TIMEOUT 1200 COST 50 ENVIRONMENT "KILN_CACHE=off" ${ARGN})
endfunction()

find_program(KILN_DPKG dpkg)
find_program(KILN_PKG_CONFIG pkg-config)
kiln_package_test(add_subdirectory)
if(KILN_INSTALL)
  kiln_package_test(find_package)
  if(TARGET kiln_tool)
    kiln_package_test(tool)
  endif()
  if(KILN_PKG_CONFIG)
    kiln_package_test(pkg_config)
  endif()
  if(KILN_DPKG AND KILN_PKG_CONFIG AND TARGET kiln_tool)
    kiln_package_test(deb)
    # It builds all of Kiln once more: minutes.
    option(KILN_TEST_SHARED_PACKAGE "Test the packages of a shared Kiln too" OFF)
    if(KILN_TEST_SHARED_PACKAGE AND NOT BUILD_SHARED_LIBS AND NOT KILN_STATIC_LLVM)
      kiln_package_test(shared)
    endif()
  endif()
endif()

# Any version of Clang from 16 on that is installed, besides the compiler of this build.
find_program(KILN_CHECK_CLANG NAMES clang++-21 clang++-20 clang++-19 clang++-18 clang++-17 clang++-16)
find_program(KILN_OLD_CLANG NAMES clang++-15 clang++-14 clang++-13)
set(KILN_HEADER_COMPILERS ${CMAKE_CXX_COMPILER} ${KILN_CHECK_CLANG})
set(KILN_OLD_COMPILERS "")
if(KILN_OLD_CLANG)
  set(KILN_OLD_COMPILERS ${KILN_OLD_CLANG})
endif()
list(REMOVE_ITEM KILN_HEADER_COMPILERS KILN_CHECK_CLANG-NOTFOUND)
foreach(CHECK clean alone refused)
  add_test(NAME Headers.${CHECK}
    COMMAND ${CMAKE_COMMAND} -DCHECK=${CHECK} -DSOURCE=${PROJECT_SOURCE_DIR} "-DCOMPILERS=${KILN_HEADER_COMPILERS}"
            "-DOLD=${KILN_OLD_COMPILERS}" -DWORK=${PROJECT_BINARY_DIR}/package_tests/headers
            -P ${PROJECT_SOURCE_DIR}/tests/package/headers.cmake)
  set_tests_properties(Headers.${CHECK} PROPERTIES TIMEOUT 600 COST 50)
endforeach()

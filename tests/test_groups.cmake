# Writes ENTRIES, which ctest reads: an entry for every few tests of a suite, from PROGRAM's own list. A process for each
# test would compile what many tests begin with, ranges and casts, 3,000 times. Suites in LONG have an entry for each
# test, and start first.
cmake_minimum_required(VERSION 3.25)
set(MOST 8)  # tests of an entry: other cores wait for the last one

# Adds the entry of GROUP's tests to TEXT, and empties GROUP.
macro(write_group)
  if(GROUP)
    if(SUITE IN_LIST LONG)
      list(GET GROUP 0 NAME)
      set(COST 100)
    else()
      set(NAME ${SUITE}.${PART})
      set(COST 0)
    endif()
    list(JOIN GROUP ":" FILTER)
    string(APPEND TEXT
      "add_test([==[${NAME}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${FILTER}]==])\n"
      "set_tests_properties([==[${NAME}]==] PROPERTIES ENVIRONMENT KILN_CACHE=off\\;KILN_CHECK=key TIMEOUT 1200\n"
      "  COST ${COST} SKIP_REGULAR_EXPRESSION [==[PASSED  . 0 tests[.]\n(.  SKIPPED [^\n]*\n)+$]==])\n")
    math(EXPR PART "${PART} + 1")
    set(GROUP "")
  endif()
endmacro()

execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE LIST COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "[ \t]*#[^\n]*" "" LIST "${LIST}")  # what parameters are, in any signs
string(REGEX REPLACE "\n+" ";" LIST "${LIST}")
set(TEXT "")
set(GROUP "")
foreach(LINE IN LISTS LIST)
  if(LINE MATCHES "^([A-Za-z0-9_/]+)[.]$")
    set(NEXT ${CMAKE_MATCH_1})
    write_group()
    set(SUITE ${NEXT})
    set(PART 0)
  elseif(LINE MATCHES "^  (.+)$")
    list(APPEND GROUP ${SUITE}.${CMAKE_MATCH_1})
    list(LENGTH GROUP COUNT)
    if(COUNT EQUAL MOST OR SUITE IN_LIST LONG)
      write_group()
    endif()
  endif()
endforeach()
write_group()
file(WRITE ${ENTRIES} "${TEXT}")

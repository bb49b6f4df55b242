# Everything that can change a generated kernel goes into one hash; a kernel cached by other sources is a miss.
file(GLOB_RECURSE KILN_GENERATOR_SOURCES CONFIGURE_DEPENDS
     ${CMAKE_CURRENT_SOURCE_DIR}/include/kiln/* ${CMAKE_CURRENT_SOURCE_DIR}/src/support/*
     ${CMAKE_CURRENT_SOURCE_DIR}/src/ir/* ${CMAKE_CURRENT_SOURCE_DIR}/src/record/*
     ${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/* ${CMAKE_CURRENT_SOURCE_DIR}/src/schedule/*
     ${CMAKE_CURRENT_SOURCE_DIR}/src/plan/* ${CMAKE_CURRENT_SOURCE_DIR}/src/math/* ${CMAKE_CURRENT_SOURCE_DIR}/src/lower/*
     ${CMAKE_CURRENT_SOURCE_DIR}/src/codegen/* ${CMAKE_CURRENT_SOURCE_DIR}/src/device/* ${CMAKE_CURRENT_SOURCE_DIR}/src/library/*
     ${CMAKE_CURRENT_SOURCE_DIR}/src/cache/* ${CMAKE_CURRENT_SOURCE_DIR}/kernels_templates/*)
list(SORT KILN_GENERATOR_SOURCES)
set(KILN_HASH_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/write_generator_hash.cmake)
set(KILN_HASH_HEADER ${CMAKE_CURRENT_BINARY_DIR}/generated/generator_hash.h)
string(REPLACE ";" "\n" KILN_HASH_LIST "${KILN_GENERATOR_SOURCES}")
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generator_sources.txt CONTENT "${KILN_HASH_LIST}")
add_custom_command(
  OUTPUT ${KILN_HASH_HEADER}
  COMMAND ${CMAKE_COMMAND} -DLIST=${CMAKE_CURRENT_BINARY_DIR}/generator_sources.txt -DOUT=${KILN_HASH_HEADER}
          -P ${KILN_HASH_SCRIPT}
  DEPENDS ${KILN_GENERATOR_SOURCES} ${KILN_HASH_SCRIPT} COMMENT "Hashing the code generator")
add_custom_target(kiln_generator_hash DEPENDS ${KILN_HASH_HEADER})

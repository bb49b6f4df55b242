# kiln.pc. Of a shared Kiln it names libkiln.so alone; of a static one everything that must be linked with it, whether or
# not pkg-config is asked for --static. It finds its prefix from where it lies, so that a moved tree works.
set(KILN_PC_REQUIRES "")
set(KILN_PC_LIBS "")
if(KILN_LIBRARY_TYPE STREQUAL "STATIC_LIBRARY")
  set(KILN_PC_REQUIRES "libxxhash libzip spdlog")
  set(KILN_PC_LIBS "$<TARGET_LINKER_FILE:TBB::tbb> -lpthread -ldl")
  if(KILN_COMPILERS AND KILN_STATIC_LLVM)
    execute_process(COMMAND ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static --ldflags --libs --system-libs
                            orcjit passes native nativecodegen
                    OUTPUT_VARIABLE KILN_PC_LLVM OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "\n" " " KILN_PC_LLVM "${KILN_PC_LLVM}")
    string(PREPEND KILN_PC_LIBS "${KILN_PC_LLVM} ")
  elseif(KILN_COMPILERS)
    string(PREPEND KILN_PC_LIBS "$<TARGET_LINKER_FILE:LLVM> ")
  endif()
endif()
file(RELATIVE_PATH KILN_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" KILN_PC_PREFIX "${KILN_PC_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/kiln.pc.in ${PROJECT_BINARY_DIR}/kiln.pc.in @ONLY)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/kiln.pc INPUT ${PROJECT_BINARY_DIR}/kiln.pc.in)
install(FILES ${PROJECT_BINARY_DIR}/kiln.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# The third-party parts Kiln stands on (Debian packages; tools/install_deps.sh names them).
find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(TBB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19/lib/cmake/llvm)
add_library(kiln_llvm INTERFACE)
target_include_directories(kiln_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_compile_definitions(kiln_llvm INTERFACE ${LLVM_DEFINITIONS})
if(KILN_STATIC_LLVM)
  llvm_map_components_to_libnames(KILN_LLVM_LIBS orcjit passes native nativecodegen)
  target_link_libraries(kiln_llvm INTERFACE ${KILN_LLVM_LIBS} -Wl,--exclude-libs,ALL)
else()
  target_link_libraries(kiln_llvm INTERFACE LLVM)
endif()

# Single-threaded OpenBLAS: Kiln splits the work over its own threads, so there is one pool in the process.
find_path(KILN_CBLAS_INCLUDE cblas.h PATHS /usr/include/x86_64-linux-gnu/openblas-serial
          /usr/include/aarch64-linux-gnu/openblas-serial REQUIRED)
find_library(KILN_OPENBLAS openblas PATHS /usr/lib/x86_64-linux-gnu/openblas-serial
             /usr/lib/aarch64-linux-gnu/openblas-serial NO_DEFAULT_PATH REQUIRED)

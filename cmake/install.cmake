# What `cmake --install` lays down (components: runtime, development), what find_package(kiln) and pkg-config find, and
# Debian packages (cpack). A parent project that takes Kiln by add_subdirectory decides for itself (KILN_INSTALL).
option(KILN_INSTALL "Install the library, its headers, its package files and the tool" ${PROJECT_IS_TOP_LEVEL})

if(KILN_INSTALL)
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  set(KILN_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)

  get_target_property(KILN_LIBRARY_TYPE kiln TYPE)
  set(KILN_EXPORTED kiln)
  if(KILN_LIBRARY_TYPE STREQUAL "STATIC_LIBRARY")
    # Whoever links a static Kiln links its private parts: the package file finds them.
    if(KILN_COMPILERS)
      list(APPEND KILN_EXPORTED kiln_llvm)
    endif()
  endif()
  install(TARGETS ${KILN_EXPORTED} EXPORT kilnTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION ${KILN_PACKAGE_DIR} COMPONENT development)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kiln DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN "*.def")

  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kilnConfig.cmake.in
    ${PROJECT_BINARY_DIR}/kilnConfig.cmake INSTALL_DESTINATION ${KILN_PACKAGE_DIR})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/kilnConfig.cmake ${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake
          DESTINATION ${KILN_PACKAGE_DIR} COMPONENT development)
  include(${PROJECT_SOURCE_DIR}/cmake/pkg_config.cmake)

  if(TARGET kiln_tool)
    # It finds a shared library beside itself, wherever the tree was moved.
    file(RELATIVE_PATH KILN_LIB_FROM_BIN ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
    set_target_properties(kiln_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${KILN_LIB_FROM_BIN}")
    install(TARGETS kiln_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/data DESTINATION ${CMAKE_INSTALL_DATADIR}/kiln COMPONENT runtime)
  endif()
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT runtime)
  if(PROJECT_IS_TOP_LEVEL)
    include(${PROJECT_SOURCE_DIR}/cmake/debian.cmake)
  endif()
endif()

if(KILN_BUILD_TESTS)
  include(${PROJECT_SOURCE_DIR}/tests/package/package_tests.cmake)
endif()

# What `cmake --install` lays down and find_package(kiln) finds. A parent project that takes Kiln by
# add_subdirectory decides for itself (KILN_INSTALL).
option(KILN_INSTALL "Install the library, its headers and its package file" ${PROJECT_IS_TOP_LEVEL})

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
  install(TARGETS ${KILN_EXPORTED} EXPORT kilnTargets COMPONENT kiln
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION ${KILN_PACKAGE_DIR} COMPONENT kiln)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kiln DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT kiln
          FILES_MATCHING PATTERN "*.h" PATTERN "*.def")

  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kilnConfig.cmake.in
    ${PROJECT_BINARY_DIR}/kilnConfig.cmake INSTALL_DESTINATION ${KILN_PACKAGE_DIR})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/kilnConfig.cmake ${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake
          DESTINATION ${KILN_PACKAGE_DIR} COMPONENT kiln)
endif()

if(KILN_BUILD_TESTS)
  include(${PROJECT_SOURCE_DIR}/tests/package/package_tests.cmake)
endif()

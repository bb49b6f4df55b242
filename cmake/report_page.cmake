# src/inspect/page.html as a string constant: kiln::engine::page::page.
set(KILN_PAGE ${CMAKE_CURRENT_SOURCE_DIR}/src/inspect/page.html)
set(KILN_PAGE_HEADER ${CMAKE_CURRENT_BINARY_DIR}/generated/report_page_text.h)
add_custom_command(
  OUTPUT ${KILN_PAGE_HEADER}
  COMMAND ${CMAKE_COMMAND} "-DLIST=${KILN_PAGE}" -DOUT=${KILN_PAGE_HEADER} -DNAMESPACE=kiln::engine::page
          -P ${CMAKE_CURRENT_LIST_DIR}/write_kernels_templates.cmake
  DEPENDS ${KILN_PAGE} ${CMAKE_CURRENT_LIST_DIR}/write_kernels_templates.cmake
  COMMENT "Embedding the page of reports" VERBATIM)
add_custom_target(kiln_report_page DEPENDS ${KILN_PAGE_HEADER})

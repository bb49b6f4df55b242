# kernels_templates/*.cuh as string constants: kiln::codegen::templates::<name>.
file(GLOB KILN_TEMPLATES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels_templates/*.cuh)
set(KILN_TEMPLATES_HEADER ${CMAKE_CURRENT_BINARY_DIR}/generated/kernels_templates.h)
string(REPLACE ";" "|" KILN_TEMPLATES_LIST "${KILN_TEMPLATES}")
add_custom_command(
  OUTPUT ${KILN_TEMPLATES_HEADER}
  COMMAND ${CMAKE_COMMAND} "-DLIST=${KILN_TEMPLATES_LIST}" -DOUT=${KILN_TEMPLATES_HEADER}
          -P ${CMAKE_CURRENT_LIST_DIR}/write_kernels_templates.cmake
  DEPENDS ${KILN_TEMPLATES} ${CMAKE_CURRENT_LIST_DIR}/write_kernels_templates.cmake
  COMMENT "Embedding the kernel templates" VERBATIM)
add_custom_target(kiln_kernels_templates DEPENDS ${KILN_TEMPLATES_HEADER})

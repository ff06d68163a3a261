# The installed package: libfocus, its headers under include/focus, the command line, and what find_package(Focus) needs.
include(CMakePackageConfigHelpers)
set(FOCUS_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Focus)
set_target_properties(focus PROPERTIES INSTALL_RPATH "${FOCUS_TORCH_LIB_DIR}")
install(TARGETS focus EXPORT FocusTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET focus_cli_main)
  set_target_properties(focus_cli_main PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${FOCUS_TORCH_LIB_DIR}")
  install(TARGETS focus_cli_main RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/focus
  FILES_MATCHING PATTERN "*.h" PATTERN "testing.h" EXCLUDE)
install(EXPORT FocusTargets NAMESPACE Focus:: DESTINATION ${FOCUS_PACKAGE_DIR})

get_filename_component(FOCUS_TORCH_ROOT "${FOCUS_TORCH_LIB_DIR}" DIRECTORY)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/FocusConfig.cmake.in ${CMAKE_BINARY_DIR}/FocusConfig.cmake
  INSTALL_DESTINATION ${FOCUS_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/FocusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/FocusConfig.cmake ${CMAKE_BINARY_DIR}/FocusConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/cmake/FocusTorch.cmake DESTINATION ${FOCUS_PACKAGE_DIR})

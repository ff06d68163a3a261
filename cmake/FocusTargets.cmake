# Compile settings and the helpers by which every folder under src/ declares its sources and tests.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(_ccache ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      # Paths relative to the source tree: a second checkout finds what the first has compiled.
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_ccache})
endif()

add_library(focus_settings INTERFACE)
target_compile_options(focus_settings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  -fopenmp  # Without it at::parallel_for runs everything on one thread.
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
target_include_directories(focus_settings INTERFACE ${CMAKE_SOURCE_DIR}/src)
# In every target, since a precompiled header is only used under the same definitions.
target_link_libraries(focus_settings INTERFACE fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json)
if(FOCUS_SANITIZE)
  target_compile_options(focus_settings INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer -Wno-maybe-uninitialized)  # GCC reports LibTorch's optionals once they are instrumented.
  target_link_options(focus_settings INTERFACE -fsanitize=address,undefined)
endif()

# Two precompiled headers: one of the standard library for the folders that know nothing of tensors, one with LibTorch.
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/pch/plain.cpp CONTENT "\n")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/pch/torch.cpp CONTENT "\n")
add_library(focus_pch_plain OBJECT ${CMAKE_BINARY_DIR}/pch/plain.cpp)
target_link_libraries(focus_pch_plain PRIVATE focus_settings)
target_precompile_headers(focus_pch_plain PRIVATE
  <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string> <string_view> <unordered_map>
  <vector> <fmt/format.h> <nlohmann/json.hpp>)
add_library(focus_pch_torch OBJECT ${CMAKE_BINARY_DIR}/pch/torch.cpp)
target_link_libraries(focus_pch_torch PRIVATE focus_settings Focus::torch)
target_precompile_headers(focus_pch_torch PRIVATE
  <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <string> <string_view> <vector>
  <fmt/format.h> <nlohmann/json.hpp> <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>
  <torch/csrc/autograd/autograd.h> <torch/library.h>)

# focus_layer(<name> [TORCH] SOURCES <files...> [LIBRARIES <targets...>]): one folder of the library.
function(focus_layer name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(focus_${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(focus_${name} PRIVATE focus_settings ${ARG_LIBRARIES})
  if(ARG_TORCH)
    target_link_libraries(focus_${name} PRIVATE Focus::torch)
    target_precompile_headers(focus_${name} REUSE_FROM focus_pch_torch)
  else()
    target_precompile_headers(focus_${name} REUSE_FROM focus_pch_plain)
  endif()
  target_sources(focus PRIVATE $<TARGET_OBJECTS:focus_${name}>)
  target_link_libraries(focus PRIVATE ${ARG_LIBRARIES})
endfunction()

# A precompiled header serves only targets with its own code model, and CMake compiles executables as -fPIE.
function(focus_executable target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()

# focus_tests(<name> [TORCH] SOURCES <files...> [LABELS <labels...>] [TIMEOUT <seconds>]): one test program of a folder.
function(focus_tests name)
  if(NOT FOCUS_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT" "SOURCES;LABELS;LIBRARIES" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES})
  focus_executable(${name}_test)
  target_link_libraries(${name}_test PRIVATE focus_settings focus GTest::gtest
    GTest::gmock GTest::gtest_main rapidcheck ${ARG_LIBRARIES})
  target_compile_definitions(${name}_test PRIVATE FOCUS_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name}_test PRIVATE Focus::torch)
  if(ARG_TORCH)
    target_precompile_headers(${name}_test REUSE_FROM focus_pch_torch)
  else()
    target_precompile_headers(${name}_test REUSE_FROM focus_pch_plain)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  # Passive: tests run side by side, and threads that wait would keep the others' from running.
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "OMP_WAIT_POLICY=passive;ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1;UBSAN_OPTIONS=print_stacktrace=1")
endfunction()

# focus_assets(<result> HEADER <header> FILES <files...>): writes a source file that defines, for every file, its text as a
# std::string_view (page.css: kPageCss), all declared in the header, and sets <result> to its path. CMake runs again when
# a file changes.
function(focus_assets result)
  cmake_parse_arguments(ARG "" "HEADER" "FILES" ${ARGN})
  set(_text "#include \"${ARG_HEADER}\"\n\nnamespace focus {\n\n")
  foreach(_file ${ARG_FILES})
    set(_path ${CMAKE_CURRENT_SOURCE_DIR}/${_file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_path})
    get_filename_component(_base ${_file} NAME)
    string(REGEX REPLACE "[._]" ";" _words ${_base})
    set(_name k)
    foreach(_word ${_words})
      string(SUBSTRING ${_word} 0 1 _first)
      string(SUBSTRING ${_word} 1 -1 _rest)
      string(TOUPPER ${_first} _first)
      string(APPEND _name ${_first}${_rest})
    endforeach()
    file(READ ${_path} _content)
    string(APPEND _text "const std::string_view ${_name} = R\"focus_asset(${_content})focus_asset\";\n")
  endforeach()
  string(APPEND _text "\n}  // namespace focus\n")
  set(_out ${CMAKE_CURRENT_BINARY_DIR}/assets.cpp)
  file(CONFIGURE OUTPUT ${_out} CONTENT "@_text@" @ONLY)
  set(${result} ${_out} PARENT_SCOPE)
endfunction()

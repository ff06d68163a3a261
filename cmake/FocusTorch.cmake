# Finds LibTorch inside an installed Python wheel, without needing a CUDA toolkit, and defines the imported
# target Focus::torch. Looks, in this order, at FOCUS_TORCH_DIR (the folder that holds include/ and lib/), the virtual
# environment of the project, and the first python3 on the path.
#
# Only libtorch_cpu and libc10 are linked: CUDA is loaded at run time when a CUDA device is asked for, so that a
# run on the CPU does not pay for loading it.
set(FOCUS_TORCH_DIR "" CACHE PATH "Folder of the torch package that holds include/ and lib/")
set(_focus_torch_dir "${FOCUS_TORCH_DIR}")
if(NOT _focus_torch_dir)
  foreach(_python "${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python" python3)
    execute_process(
      COMMAND ${_python} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE _focus_torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _result)
    if(_result EQUAL 0)
      break()
    endif()
    set(_focus_torch_dir "")
  endforeach()
endif()
if(NOT EXISTS "${_focus_torch_dir}/include/ATen/ATen.h" OR NOT EXISTS "${_focus_torch_dir}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found. Install it with 'pip install torch==2.11.0' into .venv, "
                      "or pass -DFOCUS_TORCH_DIR=<site-packages>/torch (looked in '${_focus_torch_dir}').")
endif()
file(STRINGS "${_focus_torch_dir}/version.py" _torch_version REGEX "^__version__")
file(STRINGS "${_focus_torch_dir}/version.py" _torch_cuda REGEX "^cuda")
string(REGEX REPLACE ".*'(.*)'.*" "\\1" FOCUS_TORCH_VERSION "${_torch_version}")
string(REGEX REPLACE ".*'(.*)'.*" "\\1" FOCUS_TORCH_CUDA "${_torch_cuda}")
if(FOCUS_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${FOCUS_TORCH_VERSION} at ${_focus_torch_dir} is too old: 2.11 or newer is needed.")
endif()
message(STATUS "LibTorch ${FOCUS_TORCH_VERSION} (CUDA ${FOCUS_TORCH_CUDA}, C++11 ABI) at ${_focus_torch_dir}")

# LibTorch's own OpenMP runtime: a second one would have threads of its own that at::set_num_threads does not know.
file(GLOB _focus_openmp "${_focus_torch_dir}/lib/libgomp*.so*")
if(_focus_openmp)
  list(GET _focus_openmp 0 _focus_openmp)
else()
  set(_focus_openmp gomp)
endif()

# The wheel carries copies of fmt and others; -idirafter keeps the system's own first, so that headers match libraries.
if(NOT TARGET Focus::torch)
  add_library(Focus::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(Focus::torch PROPERTIES
    INTERFACE_COMPILE_OPTIONS
      "SHELL:-idirafter ${_focus_torch_dir}/include;SHELL:-idirafter ${_focus_torch_dir}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${_focus_torch_dir}/lib/libtorch_cpu.so;${_focus_torch_dir}/lib/libc10.so;${_focus_openmp}"
    INTERFACE_LINK_OPTIONS "-Wl,-rpath,${_focus_torch_dir}/lib;-Wl,--disable-new-dtags;-Wl,--allow-shlib-undefined")
endif()
set(FOCUS_TORCH_LIB_DIR "${_focus_torch_dir}/lib")

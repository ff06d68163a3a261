# Run at every build (cmake -DSOURCE_DIR=... -DOUTPUT=... -P): writes the commit of the sources into a header, which is
# touched only when the commit changed.
execute_process(
  COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE _commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _result)
if(NOT _result EQUAL 0)
  set(_commit unknown)
endif()
set(_content "#define FOCUS_BUILD_COMMIT \"${_commit}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} _former)
endif()
if(NOT "${_former}" STREQUAL "${_content}")
  file(WRITE ${OUTPUT} "${_content}")
endif()

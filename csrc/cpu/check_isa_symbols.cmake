# Fails if the objects of a level define a shared (weak) symbol that does not belong to the level's own namespace; see
# the top of CMakeLists.txt. Arguments: NM, LEVEL, OBJECTS, STAMP.
separate_arguments(OBJECTS)
execute_process(COMMAND ${NM} -C --defined-only ${OBJECTS} OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${NM} failed on the objects of the ${LEVEL} kernels")
endif()
string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]*" shared "${symbols}")
foreach(symbol IN LISTS shared)
  if(NOT symbol MATCHES "bunting::${LEVEL}::")
    message(FATAL_ERROR "The ${LEVEL} kernels define a symbol that other code may share: ${symbol}\n"
                        "Machine code for ${LEVEL} must stay in bunting::${LEVEL} (see csrc/CMakeLists.txt).")
  endif()
endforeach()
file(WRITE ${STAMP} "")

# ONNX Runtime's library from its Python wheel, which names it by its whole version. Linkers look for
# libonnxruntime.so and programs for libonnxruntime.so.1, so both are links in the build's folder; an
# installation gets a copy of what they lead to, and needs neither Python nor the build afterwards.
find_program(python3 python3 NO_CACHE)  # that of PATH today: find_package would keep the first one
if(NOT python3)
  return()
endif()
execute_process(
  COMMAND "${python3}" -c
    "from importlib.util import find_spec; print(find_spec('onnxruntime').submodule_search_locations[0])"
  OUTPUT_VARIABLE wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
# The library of the wheel onnxruntime-ep-webgpu, which lies beside it, goes where ONNX Runtime's is.
file(GLOB shared "${wheel}/capi/libonnxruntime*.so*"
  "${wheel}/../onnxruntime_ep_webgpu/libonnxruntime*.so*")
set(links "${CMAKE_CURRENT_BINARY_DIR}/onnxruntime")
file(MAKE_DIRECTORY "${links}")
foreach(file IN LISTS shared)
  get_filename_component(name "${file}" NAME)
  file(CREATE_LINK "${file}" "${links}/${name}" SYMBOLIC)
  install(PROGRAMS "${file}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  if(name MATCHES "^libonnxruntime\\.so\\.[0-9]")
    foreach(link libonnxruntime.so.1 libonnxruntime.so)
      file(CREATE_LINK "${name}" "${links}/${link}" SYMBOLIC)
      install(PROGRAMS "${links}/${link}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    endforeach()
    set(ONNXRuntime_LIBRARY "${links}/libonnxruntime.so")  # not cached: found anew each time
    message(STATUS "ONNX Runtime is that of the wheel in ${wheel}")
  endif()
endforeach()

// Checks an ONNX file before a runtime loads it, because graphs are foreign. A graph is refused if
// it keeps tensors in other files, which no hash covers, if it has nodes that may run without end,
// or if its inputs and outputs are not those of the manifest. Python: mrcfa/bundle/graph_file.py.
#pragma once

#include <filesystem>
#include <string_view>

#include "manifest.hpp"

namespace mrcfa {

/// Throws an Error unless the ONNX file is harmless and has the tensors of the manifest's graph.
void check_graph(std::string_view content, const std::filesystem::path& path,
                 const Graph& expected);

}  // namespace mrcfa

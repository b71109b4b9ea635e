// Looks into an ONNX file before a runtime may load it. A graph comes from elsewhere: it is refused
// if it keeps tensors in other files, whose content no hash covers, if it has nodes that may run
// without end, or if its ends are not what the manifest says. Python: mrcfa/graph_file.py.
#pragma once

#include <filesystem>
#include <string_view>

#include "manifest.hpp"

namespace mrcfa {

/// An Error unless the ONNX file is harmless and has the ends of the manifest's graph.
void check_graph(std::string_view content, const std::filesystem::path& path,
                 const Graph& expected);

}  // namespace mrcfa

// Limits for the contents of a foreign file, checked before anything is allocated for them. Python
// has the same table (mrcfa/bounds.py), and tests/golden/manifests.json tries it in both languages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace mrcfa::bounds {

constexpr std::size_t kManifestBytes = std::size_t{4} << 20;
constexpr int kDepth = 32;  ///< Levels of nested objects and lists.
constexpr std::size_t kText = 4096;
constexpr std::size_t kEntries = std::size_t{1} << 16;
/// Numbers must lie between this and its negative, both excluded.
constexpr double kNumber = 9223372036854775808.0;

constexpr std::int64_t kFewestClasses = 2;
constexpr std::int64_t kMostClasses = 255;
constexpr std::int64_t kStreams = 32;
constexpr std::int64_t kSide = 1 << 14;
constexpr std::int64_t kElements = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kAxes = 8;
constexpr std::size_t kTensors = 32;  ///< Tensors at one end of a graph.
constexpr std::size_t kVariants = 32;
constexpr std::size_t kEngines = 256;
constexpr std::size_t kFiles = 1024;

constexpr std::size_t kFields = std::size_t{1}
                                << 22;  ///< Fields of an ONNX file, as protobuf counts.
constexpr std::size_t kNodes = std::size_t{1}
                               << 20;  ///< Nodes of a graph with its functions inlined.
constexpr int kBodies = 8;             ///< Levels of nested graphs.

}  // namespace mrcfa::bounds

// The part of a bundle's manifest that running needs, read as mrcfa/bundle/manifest.py reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mrcfa.hpp"

namespace mrcfa {

/// What is wrong with a file from elsewhere; its reader makes it a sentence that names the file.
class Damage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Size {
  int height, width;
};

/// Of the four types that graphs have at their ends, and of less than 2^31 elements.
struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::string shown() const;  ///< `float32 [1, 240, 64]`
};

enum class Device : std::uint8_t { cpu, gpu };

struct Graph {
  std::string file;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

/// Both graphs, laid out for a kind of device.
struct Variant {
  std::string name;
  std::string precision;
  Device device;
  Graph encoder;
  Graph decoder;
};

/// Two TensorRT plans and what they were built for.
struct Engine {
  std::string flavour;
  std::string tensorrt;
  std::vector<int> compute_capabilities;
  std::string precision;
  std::string variant;  ///< Whose graphs it was built from.
  std::optional<std::string> plugin;
  std::string encoder;
  std::string decoder;
  bool version_compatible;  ///< Whether other versions of the same major TensorRT load it too.
};

struct FileEntry {
  std::string sha256;
  std::uintmax_t bytes = 0;
};

/// Fields of the file that are not here are not looked at.
struct Manifest {
  std::string dataset;
  std::string backbone;
  std::int64_t class_count;
  Size size;   ///< Of the network's input.
  Size frame;  ///< Of the frames that the graphs take.
  std::string output;
  int streams;                    ///< The first axis of every tensor.
  std::vector<Variant> variants;  ///< At least one, in the order of their names.
  std::vector<std::string> classes;  ///< As many as `class_count`, and as many colours.
  std::vector<Colour> palette;
  bool random_weights;
  std::map<std::string, FileEntry> files;
  std::vector<Engine> engines;
  std::string method;

  static Manifest read(const std::filesystem::path& path);
  /// Every mistake in the text is an Error that names the file.
  static Manifest parse(const std::string& text, const std::filesystem::path& path);
};

/// What the decoder reads, and what it writes for the next frame to read. A model without memory
/// has the frame's number alone.
inline constexpr std::array<std::pair<const char*, const char*>, 2> kState = {
    {{"memory", "memory_out"}, {"frame", "frame_out"}}};

/// The pairs of `kState` whose first is among these tensors.
std::vector<std::pair<std::string, std::string>> state_of(const std::vector<TensorSpec>& specs);

/// The tensor of that name; an Error that the bundle is damaged if there is none.
const TensorSpec& named(const std::vector<TensorSpec>& specs, const std::string& name);

}  // namespace mrcfa

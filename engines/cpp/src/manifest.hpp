// The parts of a bundle's manifest that running needs. Python: mrcfa/bundle/manifest.py.
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

/// A fault in a foreign file. The reader turns it into a sentence that names the file.
class Damage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Size {
  int height, width;
};

/// A tensor at one end of a graph: one of four types, and fewer than 2^31 elements.
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

/// Both graphs in one precision, laid out for a kind of device.
struct Variant {
  std::string name;
  std::string precision;
  Device device;
  Graph encoder;
  Graph decoder;
};

/// Two TensorRT plans, and the machine that they were built for.
struct Engine {
  std::string flavour;
  std::string tensorrt;
  std::vector<int> compute_capabilities;
  std::string precision;
  std::string variant;  ///< The variant whose graphs it was built from.
  std::optional<std::string> plugin;
  std::string encoder;
  std::string decoder;
  bool version_compatible;  ///< True if any TensorRT of the same major version loads it.
  std::optional<std::string> gpu;  ///< The GPU that TensorRT chose kernels on, if it did.
};

/// How the pixels of a frame lie in memory. Python: mrcfa/model/input_format.py.
struct InputFormat {
  Layout layout = Layout::rgb;
  std::string matrix;  ///< Empty, and so is the range, unless the layout is NV12.
  std::string range;

  /// The shape of a frame of this size.
  [[nodiscard]] std::vector<std::int64_t> shape(Size size) const;
};

struct FileEntry {
  std::string sha256;
  std::uintmax_t bytes = 0;
};

/// A bundle's manifest. Other fields of the file are ignored.
struct Manifest {
  std::string dataset;
  std::string backbone;
  std::int64_t class_count;
  Size size;   ///< The size of the network's input.
  Size frame;  ///< The size of the frames that the graphs take.
  std::string output;
  int streams;                       ///< The first axis of every tensor.
  std::vector<Variant> variants;     ///< At least one, in the order of their names.
  std::vector<std::string> classes;  ///< As many as `class_count`, and as many colours.
  std::vector<Colour> palette;
  bool random_weights;
  std::map<std::string, FileEntry> files;
  std::vector<Engine> engines;
  std::string method;
  InputFormat input;

  static Manifest read(const std::filesystem::path& path);
  /// Reads the text; every fault in it is an Error that names the file.
  static Manifest parse(const std::string& text, const std::filesystem::path& path);
};

/// The decoder's state: the tensors that it reads, and those that it writes for the next frame. A
/// model without memory has the frame's number alone.
inline constexpr std::array<std::pair<const char*, const char*>, 2> kState = {
    {{"memory", "memory_out"}, {"frame", "frame_out"}}};

/// The pairs of `kState` whose first tensor is among these.
std::vector<std::pair<std::string, std::string>> state_of(const std::vector<TensorSpec>& specs);

/// The tensor of that name; if there is none, an Error that the bundle is damaged.
const TensorSpec& named(const std::vector<TensorSpec>& specs, const std::string& name);

}  // namespace mrcfa

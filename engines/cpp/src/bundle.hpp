// The bundle: a directory of graphs and engines under one manifest, read as mrcfa/bundle.py reads
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mrcfa.hpp"

namespace mrcfa {

struct Size {
  int height, width;
};

/// Of the four types that graphs have at their ends, and of less than 2^31 elements.
struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::size_t bytes() const;
};

struct Graph {
  std::string file;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

struct Graphs {
  std::string precision;
  Graph encoder;
  Graph decoder;
};

/// Two TensorRT plans and what they were built for.
struct Engine {
  std::string flavour;
  std::string tensorrt;
  std::vector<int> compute_capabilities;
  std::string precision;
  std::optional<std::string> plugin;
  std::string encoder;
  std::string decoder;
  bool version_compatible;  ///< Whether other versions of the same major TensorRT load it too.
};

struct FileEntry {
  std::string sha256;
  std::uintmax_t bytes = 0;
};

/// The part of the manifest that running needs; other fields are not looked at.
struct Manifest {
  std::string dataset;
  std::string backbone;
  Size size;   ///< Of the network's input.
  Size frame;  ///< Of the frames that the graphs take.
  std::string output;
  std::vector<Graphs> graphs;  ///< At least one.
  std::vector<std::string> classes;
  std::vector<Colour> palette;
  bool random_weights;
  std::map<std::string, FileEntry> files;
  std::vector<Engine> engines;

  /// Every mistake in the text is an Error that names the file.
  static Manifest parse(const std::string& text, const std::filesystem::path& path);
};

/// A bundle on disk. Opening reads the manifest alone; `read` checks each file when asked.
class Bundle {
 public:
  static Bundle open(std::filesystem::path path);
  /// Checks that no file of the manifest lies elsewhere.
  Bundle(std::filesystem::path path, Manifest manifest);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const Graphs& graphs(const std::string& precision) const;

  /// The content of one of the bundle's files, once its size and hash are as the manifest says.
  /// What was checked is what is returned, so a file that changes meanwhile cannot slip through.
  [[nodiscard]] std::string read(const std::string& name) const;

 private:
  [[nodiscard]] std::filesystem::path inside(const std::string& name) const;

  std::filesystem::path path_;
  Manifest manifest_;
};

/// The tensor of that name; an Error that the bundle is damaged if there is none.
const TensorSpec& named(const std::vector<TensorSpec>& specs, const std::string& name);

/// `'name'`, as Python quotes a string in its messages; control characters are escaped.
std::string in_quotes(const std::string& text);

/// `a, b, c`.
std::string listed(const std::vector<std::string>& names);

}  // namespace mrcfa

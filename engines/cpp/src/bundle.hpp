// The bundle: a directory of graphs and engines under one manifest.
#pragma once

#include <filesystem>
#include <string>

#include "manifest.hpp"

namespace mrcfa {

/// A backend that cannot run this bundle on this machine; `auto` goes on to the next one.
class Unfit : public Error {
 public:
  using Error::Error;
};

/// The same, for a machine without a GPU: nothing was skipped then.
class NoGpu : public Unfit {
 public:
  using Unfit::Unfit;
};

/// A bundle on disk. Opening reads the manifest alone; `read` checks each file when asked.
class Bundle {
 public:
  static Bundle open(std::filesystem::path path);
  /// Checks that no file of the manifest lies elsewhere.
  Bundle(std::filesystem::path path, Manifest manifest);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// What runs best on such a device, of that precision unless it is empty; null if nothing does. A
  /// CPU also runs what was laid out for GPUs, but no GPU runs what was laid out for CPUs.
  [[nodiscard]] const Variant* find_variant(const std::string& precision, Device device) const;
  /// The same, but Unfit if nothing does.
  [[nodiscard]] const Variant& variant(const std::string& precision, Device device) const;

  /// The content of one of the bundle's files, once its size and hash are as the manifest says.
  /// What was checked is what is returned, so a file that changes meanwhile cannot slip through.
  [[nodiscard]] std::string read(const std::string& name) const;
  /// An ONNX file that is whole in itself and has the ends that the manifest names.
  [[nodiscard]] std::string read_graph(const Graph& graph) const;

 private:
  [[nodiscard]] std::filesystem::path inside(const std::string& name) const;

  std::filesystem::path path_;
  Manifest manifest_;
};

}  // namespace mrcfa

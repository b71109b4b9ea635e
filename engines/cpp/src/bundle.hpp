// The bundle: a directory of graphs and engines under one manifest.
#pragma once

#include <filesystem>
#include <string>

#include "manifest.hpp"

namespace mrcfa {

/// An engine or a backend cannot run this bundle on this machine; another one may.
class Unfit : public Error {
 public:
  using Error::Error;
};

/// A bundle on disk. Opening reads the manifest alone; `read` checks each file when asked.
class Bundle {
 public:
  static Bundle open(std::filesystem::path path);
  /// Checks that no file of the manifest lies elsewhere.
  Bundle(std::filesystem::path path, Manifest manifest);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// The variant of that precision that runs best on such a device; null if there is none. An empty
  /// precision stands for any. A CPU also runs a variant for GPUs, but no GPU runs one for CPUs.
  [[nodiscard]] const Variant* find_variant(const std::string& precision, Device device) const;
  /// The same, but Unfit if there is none.
  [[nodiscard]] const Variant& variant(const std::string& precision, Device device) const;

  /// The content of one of the bundle's files, if its size and hash are those of the manifest. The
  /// bytes that were checked are returned, so a file that changes meanwhile cannot slip through.
  [[nodiscard]] std::string read(const std::string& name) const;
  /// The content of an ONNX file that needs no other file and has the tensors of the manifest.
  [[nodiscard]] std::string read_graph(const Graph& graph) const;

 private:
  [[nodiscard]] std::filesystem::path inside(const std::string& name) const;

  std::filesystem::path path_;
  Manifest manifest_;
};

}  // namespace mrcfa

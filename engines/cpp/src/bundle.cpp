#include "bundle.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "files.hpp"
#include "graph_file.hpp"
#include "sentence.hpp"
#include "sha256.hpp"

namespace mrcfa {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";

struct Signature {
  std::size_t offset;
  std::string_view bytes;
  const char* kind;
  const char* command;
};

/// The table of mrcfa/bundle/archives.py.
constexpr std::array<Signature, 6> kArchives = {{
    {0, "PK\x03\x04", "zip", "unzip"},
    {257, "ustar", "tar", "tar xf"},
    {0, "\x1f\x8b", "gzip", "tar xf"},
    {0, "BZh", "bzip2", "tar xf"},
    {0, {"\xfd" "7zXZ\0", 6}, "xz", "tar xf"},
    {0, "\x28\xb5\x2f\xfd", "zstd", "tar xf"},
}};

/// Throws an Error with the command that unpacks it if `path` is an archive.
void refuse_archive(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    return;
  }
  const std::string start = content_of(path, 512);
  for (const Signature& each : kArchives) {
    const std::size_t offset = std::min(each.offset, start.size());
    if (start.compare(offset, each.bytes.size(), each.bytes) == 0) {
      throw Error(path.string() + " is a " + each.kind +
                  " archive, and a bundle is a folder; unpack it with: " + each.command + " " +
                  path.string());
    }
  }
}

}  // namespace

Bundle Bundle::open(fs::path path) {
  if (!path.has_filename()) {
    path = path.parent_path();  // "bundles/b1/" is "bundles/b1" in every message
  }
  refuse_archive(path);
  const fs::path source = path / kManifest;
  std::error_code ignored;
  if (!fs::is_regular_file(source, ignored)) {
    throw Error(path.string() + " is no bundle: it has no " + kManifest +
                "; make one with: mrcfa export -o " + path.string());
  }
  Manifest manifest = Manifest::read(source);
  return {std::move(path), std::move(manifest)};
}

Bundle::Bundle(fs::path path, Manifest manifest)
    : path_(std::move(path)), manifest_(std::move(manifest)) {
  for (const auto& [name, entry] : manifest_.files) {
    (void)inside(name);
  }
}

const Variant* Bundle::find_variant(const std::string& precision, Device device) const {
  const auto rank = [device](const Variant& variant) {
    return std::pair(variant.device != device,
                     variant.precision != (device == Device::cpu ? "fp32" : "fp16"));
  };
  const Variant* best = nullptr;  // the first by name if several are equal
  for (const Variant& variant : manifest_.variants) {
    const bool runs = device == Device::cpu || variant.device == Device::gpu;
    if (runs && (precision.empty() || precision == variant.precision) &&
        (best == nullptr || rank(variant) < rank(*best))) {
      best = &variant;
    }
  }
  return best;
}

const Variant& Bundle::variant(const std::string& precision, Device device) const {
  if (const Variant* found = find_variant(precision, device); found != nullptr) {
    return *found;
  }
  std::vector<std::string> names;
  for (const Variant& variant : manifest_.variants) {
    names.push_back(variant.name);
  }
  const bool gpu = device == Device::gpu;
  const std::string wanted = precision.empty() ? "fp16" : precision;
  const std::string remedy =
      wanted == "int8" || wanted == "fp8"
          ? "make them with: mrcfa quantize " + path_.string() + " --precision " + wanted +
                " --data DATA"
          : "export it with --variants " + (gpu && wanted == "fp32" ? "fp32-gpu" : wanted);
  throw Unfit(path_.string() + " has no " + (precision.empty() ? "" : precision + " ") +
              "graphs for " + (gpu ? "a GPU" : "a CPU") + ", only " + listed(names) + "; " +
              remedy);
}

std::string Bundle::read(const std::string& name) const {
  const fs::path file = inside(name);
  const auto expected = manifest_.files.find(name);
  if (expected == manifest_.files.end()) {
    throw Error(path_.string() + " does not list " + name + " among its files");
  }
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) {
    throw Error(file.string() + " is missing; export or build the bundle anew");
  }
  std::string content;
  if (fs::file_size(file, ignored) == expected->second.bytes) {
    content = content_of(file);
  }
  if (content.size() != expected->second.bytes || sha256(content) != expected->second.sha256) {
    throw Error(file.string() +
                " is not the file that the manifest describes (its hash differs); "
                "it was changed or cut short, so export or build the bundle anew");
  }
  return content;
}

std::string Bundle::read_graph(const Graph& graph) const {
  std::string content = read(graph.file);
  check_graph(content, path_ / graph.file, graph);
  return content;
}

fs::path Bundle::inside(const std::string& name) const {
  const bool plain =
      !name.empty() && name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (plain) {
    std::error_code failure;
    // Follows links, so that a link out of the directory is refused too.
    const fs::path place = fs::weakly_canonical(path_ / name, failure);
    if (!failure && place.parent_path() == fs::weakly_canonical(path_, failure) && !failure) {
      return path_ / name;
    }
  }
  throw Error((path_ / kManifest).string() + " names " + in_quotes(name) +
              ", which leaves the directory");
}

}  // namespace mrcfa

#include "manifest.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "sentence.hpp"

namespace mrcfa {
namespace {

namespace fs = std::filesystem;

// Not ordered_json, which copies nested values as it grows: recursion as deep as a hostile
// manifest.
using Json = nlohmann::json;

constexpr std::uint64_t kFormat = 1;
constexpr int kLongestSide = 1 << 16;
constexpr std::int64_t kMostElements = std::numeric_limits<std::int32_t>::max();

/// What is wrong with a manifest; `Manifest::parse` makes it a sentence that names the file.
class Damage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

const Json& field(const Json& object, const std::string& key) {
  if (!object.is_object()) {
    throw Damage("there is no object that could hold '" + key + "'");
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    throw Damage("it lacks '" + key + "'");
  }
  return *found;
}

std::string text(const Json& object, const std::string& key) {
  const Json& value = field(object, key);
  if (!value.is_string()) {
    throw Damage(key + " is no text");
  }
  return value.get<std::string>();
}

/// Everything countable in a manifest is at least `low` ≥ 0, and Json calls such numbers unsigned.
std::int64_t integer(const Json& value, const std::string& what, std::int64_t low,
                     std::int64_t high) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < static_cast<std::uint64_t>(low) ||
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(high)) {
    throw Damage(what + " is no integer from " + std::to_string(low) + " to " +
                 std::to_string(high));
  }
  return value.get<std::int64_t>();
}

const Json& array(const Json& object, const std::string& key) {
  const Json& value = field(object, key);
  if (!value.is_array()) {
    throw Damage(key + " is no list");
  }
  return value;
}

const Json& object(const Json& parent, const std::string& key) {
  const Json& value = field(parent, key);
  if (!value.is_object()) {
    throw Damage(key + " is no object");
  }
  return value;
}

Size size(const Json& parent, const std::string& key) {
  const Json& value = array(parent, key);
  if (value.size() != 2) {
    throw Damage(key + " is no pair of height and width");
  }
  return {static_cast<int>(integer(value[0], key, 1, kLongestSide)),
          static_cast<int>(integer(value[1], key, 1, kLongestSide))};
}

/// Bytes per element, 0 for a type that no graph has at its ends.
std::size_t width_of(const std::string& dtype) {
  if (dtype == "float32" || dtype == "int32") {
    return 4;
  }
  if (dtype == "float16") {
    return 2;
  }
  return dtype == "uint8" ? 1 : 0;
}

TensorSpec tensor(const Json& value) {
  TensorSpec spec{text(value, "name"), text(value, "dtype"), {}};
  if (width_of(spec.dtype) == 0) {
    throw Damage(spec.name + " has the unknown type " + in_quotes(spec.dtype));
  }
  std::int64_t room = kMostElements;
  for (const Json& length : array(value, "shape")) {
    spec.shape.push_back(integer(length, "shape", 1, room));
    room /= spec.shape.back();
  }
  return spec;
}

std::vector<TensorSpec> tensors(const Json& graph, const std::string& key) {
  std::vector<TensorSpec> specs;
  for (const Json& value : array(graph, key)) {
    specs.push_back(tensor(value));
  }
  return specs;
}

Graph graph(const Json& graphs, const std::string& part) {
  const Json& value = object(graphs, part);
  Graph made{text(value, "file"), {}, tensors(value, "inputs"), tensors(value, "outputs")};
  if (value.contains("cpu") && !value["cpu"].is_null()) {
    made.cpu = text(value, "cpu");
  }
  return made;
}

Colour colour(const Json& value) {
  if (!value.is_array() || value.size() != 3) {
    throw Damage("palette holds a colour that is no list of three");
  }
  const auto channel = [&value](std::size_t i) {
    return static_cast<std::uint8_t>(integer(value[i], "palette", 0, 255));
  };
  return {channel(0), channel(1), channel(2)};
}

/// As Python shows it.
std::string shown(const Json& value) {
  if (value.is_string()) {
    return in_quotes(value.get<std::string>());
  }
  if (value.is_number_unsigned()) {
    return std::to_string(value.get<std::uint64_t>());
  }
  if (value.is_number_integer()) {
    return std::to_string(value.get<std::int64_t>());
  }
  return value.is_null() ? "None" : std::string("of type ") + value.type_name();
}

void check_format(const Json& content, const fs::path& path) {
  const Json& version = field(content, "format");
  const bool countable = version.is_number_unsigned();
  if (countable && version.get<std::uint64_t>() == kFormat) {
    return;
  }
  if (countable && version.get<std::uint64_t>() > kFormat) {
    throw Error(path.string() + " has format " + shown(version) +
                ", newer than this mrcfa reads (" + std::to_string(kFormat) + "); update mrcfa");
  }
  throw Error(path.string() + " has format " + shown(version) +
              ", which this mrcfa does not read; export it anew");
}

bool flag(const Json& value) {
  return value.is_boolean() && value.get<bool>();
}

Engine engine(const Json& value) {
  Engine made{text(value, "flavour"),
              text(value, "tensorrt"),
              {},
              text(value, "precision"),
              {},
              text(value, "encoder"),
              text(value, "decoder"),
              value.contains("version_compatible") && flag(value["version_compatible"])};
  for (const Json& capability : array(value, "compute_capabilities")) {
    made.compute_capabilities.push_back(
        static_cast<int>(integer(capability, "compute_capabilities", 0, 9999)));
  }
  if (!field(value, "plugin").is_null()) {
    made.plugin = text(value, "plugin");
  }
  return made;
}

Manifest manifest(const Json& content) {
  const Json& config = object(content, "config");
  Manifest made{text(config, "dataset"),
                text(config, "backbone"),
                size(config, "size"),
                size(content, "frame"),
                text(content, "output"),
                {},
                {},
                {},
                flag(field(object(content, "weights"), "random")),
                {},
                {}};
  if (made.output != "mask" && made.output != "logits") {
    throw Damage("output is neither mask nor logits");
  }
  for (const auto& [precision, graphs] : object(content, "graphs").items()) {
    made.graphs.push_back({precision, graph(graphs, "encoder"), graph(graphs, "decoder")});
  }
  if (made.graphs.empty()) {
    throw Damage("graphs is empty");
  }
  for (const Json& name : array(content, "classes")) {
    if (!name.is_string()) {
      throw Damage("classes holds a name that is no text");
    }
    made.classes.push_back(name.get<std::string>());
  }
  for (const Json& value : array(content, "palette")) {
    made.palette.push_back(colour(value));
  }
  for (const auto& [name, entry] : object(content, "files").items()) {
    const std::int64_t bytes =
        integer(field(entry, "bytes"), "bytes", 0, std::numeric_limits<std::int64_t>::max());
    made.files[name] = {text(entry, "sha256"), static_cast<std::uintmax_t>(bytes)};
  }
  for (const Json& value : array(content, "engines")) {
    made.engines.push_back(engine(value));
  }
  return made;
}

std::string damaged(const fs::path& path, const std::string& reason) {
  return path.string() + " is damaged (" + reason + "); export the bundle anew";
}

}  // namespace

std::size_t TensorSpec::bytes() const {
  std::size_t made = width_of(dtype);
  for (const std::int64_t length : shape) {
    made *= static_cast<std::size_t>(length);
  }
  return made;
}

Manifest Manifest::parse(const std::string& text, const fs::path& path) {
  try {
    const Json content = Json::parse(text);
    check_format(content, path);
    return manifest(content);
  } catch (const Damage& damage) {
    throw Error(damaged(path, damage.what()));
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 1: …"
    const std::string reason = error.what();
    throw Error(damaged(path, reason.substr(reason.find("] ") + 2)));
  }
}

const TensorSpec& named(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const TensorSpec& spec) { return spec.name == name; });
  if (found == specs.end()) {
    throw Error("the graphs have no tensor " + in_quotes(name) + "; export the bundle anew");
  }
  return *found;
}

}  // namespace mrcfa

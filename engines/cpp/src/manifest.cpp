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

constexpr std::uint64_t kFormat = 2;
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

std::int64_t integer(const Json& value, const std::string& what, std::int64_t low,
                     std::int64_t high) {
  if (!value.is_number_integer()) {
    throw Damage(what + " is no integer");
  }
  // Json calls every number from 0 unsigned, and all bounds are at least 0.
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
    throw Damage(key + " is no list of 2");
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

Graph graph(const Json& variant, const std::string& part) {
  const Json& value = object(variant, part);
  return {text(value, "file"), tensors(value, "inputs"), tensors(value, "outputs")};
}

Device device(const Json& variant) {
  const Json& name = field(variant, "device");
  if (name != "cpu" && name != "gpu") {
    throw Damage("device is neither cpu nor gpu");
  }
  return name == "cpu" ? Device::cpu : Device::gpu;
}

Colour colour(const Json& value) {
  if (!value.is_array()) {
    throw Damage("palette is no list");
  }
  if (value.size() != 3) {
    throw Damage("palette is no list of 3");
  }
  const auto channel = [&value](std::size_t i) {
    return static_cast<std::uint8_t>(integer(value[i], "palette", 0, 255));
  };
  return {channel(0), channel(1), channel(2)};
}

/// What is no number from 0, as Python shows it.
std::string shown(const Json& value) {
  if (value.is_string()) {
    return in_quotes(value.get<std::string>());
  }
  if (value.is_number_integer()) {
    return std::to_string(value.get<std::int64_t>());
  }
  return value.is_null() ? "None" : std::string("of type ") + value.type_name();
}

void check_format(const Json& content, const fs::path& path) {
  const Json& version = field(content, "format");
  if (!version.is_number_unsigned()) {
    throw Error(path.string() + " has format " + shown(version) +
                ", which this mrcfa does not read; export it again");
  }
  const auto number = version.get<std::uint64_t>();
  if (number != kFormat) {
    const bool newer = number > kFormat;
    throw Error(path.string() + " has format " + std::to_string(number) + ", " +
                (newer ? "newer" : "older") + " than this mrcfa reads (" + std::to_string(kFormat) +
                "); " + (newer ? "update mrcfa" : "export it again"));
  }
}

bool flag(const Json& object, const std::string& key) {
  const Json& value = field(object, key);
  if (!value.is_boolean()) {
    throw Damage(key + " is no truth value");
  }
  return value.get<bool>();
}

Engine engine(const Json& value) {
  Engine made{text(value, "flavour"),
              text(value, "tensorrt"),
              {},
              text(value, "precision"),
              text(value, "variant"),
              {},
              text(value, "encoder"),
              text(value, "decoder"),
              value.contains("version_compatible") && flag(value, "version_compatible")};
  for (const Json& capability : array(value, "compute_capabilities")) {
    made.compute_capabilities.push_back(
        static_cast<int>(integer(capability, "compute_capabilities", 0, 9999)));
  }
  if (!field(value, "plugin").is_null()) {
    made.plugin = text(value, "plugin");
  }
  return made;
}

/// What was trained; bundles of MRCFA alone may not say it.
std::string method_of(const Json& config) {
  if (!config.contains("method")) {
    return "mrcfa";
  }
  const Json& method = config.at("method");
  if (method != "mrcfa" && method != "segformer" && method != "feature-pyramid") {
    throw Damage("method is none of mrcfa, segformer, feature-pyramid");
  }
  return method.get<std::string>();
}

/// They are the first axis of every tensor.
void check_streams(const Manifest& manifest) {
  for (const Variant& variant : manifest.variants) {
    for (const auto* specs : {&variant.encoder.inputs, &variant.encoder.outputs,
                              &variant.decoder.inputs, &variant.decoder.outputs}) {
      for (const TensorSpec& spec : *specs) {
        if (spec.shape.empty() || spec.shape[0] != manifest.streams) {
          throw Damage("the first axis of " + spec.name + " is not " +
                       std::to_string(manifest.streams) + ", the streams");
        }
      }
    }
  }
}

Manifest manifest(const Json& content) {
  const Json& config = object(content, "config");
  Manifest made{text(config, "dataset"),
                text(config, "backbone"),
                size(config, "size"),
                size(content, "frame"),
                text(content, "output"),
                static_cast<int>(integer(field(content, "streams"), "streams", 1, kMostElements)),
                {},
                {},
                {},
                flag(object(content, "weights"), "random"),
                {},
                {},
                method_of(config)};
  if (made.output != "mask" && made.output != "logits") {
    throw Damage("output is neither mask nor logits");
  }
  const Json& variants = object(content, "variants");
  for (const auto& [name, variant] : variants.items()) {
    made.variants.push_back({name, text(variant, "precision"), device(variant),
                             graph(variant, "encoder"), graph(variant, "decoder")});
  }
  if (made.variants.empty()) {
    throw Damage("variants is empty");
  }
  for (const Json& name : array(content, "classes")) {
    if (!name.is_string()) {
      throw Damage("classes is no text");
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
  check_streams(made);
  for (const Engine& each : made.engines) {
    if (!variants.contains(each.variant)) {
      throw Damage("an engine is of the variant " + in_quotes(each.variant) +
                   ", which is not there");
    }
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

std::vector<std::pair<std::string, std::string>> state_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [in, out] : kState) {
    const std::string name = in;
    if (std::any_of(specs.begin(), specs.end(),
                    [&](const TensorSpec& spec) { return spec.name == name; })) {
      found.emplace_back(in, out);
    }
  }
  return found;
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

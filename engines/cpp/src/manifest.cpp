#include "manifest.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "bounds.hpp"
#include "files.hpp"
#include "sentence.hpp"

namespace mrcfa {
namespace {

namespace fs = std::filesystem;

// Not ordered_json: it copies nested values as it grows, with recursion as deep as a hostile
// manifest.
using Json = nlohmann::json;

constexpr std::uint64_t kFormat = 2;
constexpr const char* kTooLarge = "it holds a number of 2^63 or more";

void check_text(const std::string& text) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80;
  });
  if (static_cast<std::size_t>(characters) > bounds::kText) {
    throw Damage("it holds a text of more than " + std::to_string(bounds::kText) + " characters");
  }
}

/// Checks the numbers, texts, lists and depth of the whole document, unknown fields included.
void check_bounds(const Json& content, int depth) {
  if (content.is_string()) {
    check_text(content.get_ref<const std::string&>());
  } else if (content.is_number()) {
    using Integer = std::numeric_limits<std::int64_t>;
    const bool fits = content.is_number_float() ? std::abs(content.get<double>()) < bounds::kNumber
                      : content.is_number_unsigned()
                          ? content.get<std::uint64_t>() <= std::uint64_t{Integer::max()}
                          : content.get<std::int64_t>() > Integer::min();
    if (!fits) {
      throw Damage(kTooLarge);
    }
  } else if (content.is_structured()) {
    if (depth == 0) {
      throw Damage("it is nested too deeply");
    }
    if (content.size() > bounds::kEntries) {
      throw Damage("it has a list of more than " + std::to_string(bounds::kEntries) + " entries");
    }
    for (const auto& [key, value] : content.items()) {
      if (content.is_object()) {
        check_text(key);
      }
      check_bounds(value, depth - 1);
    }
  }
}

void at_most(const std::string& name, std::size_t count, std::size_t most) {
  if (count > most) {
    throw Damage(name + " has " + std::to_string(count) + " entries, and at most " +
                 std::to_string(most) + " are allowed");
  }
}

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
  return printable(value.get<std::string>());
}

std::int64_t integer(const Json& value, const std::string& what, std::int64_t low,
                     std::int64_t high) {
  if (!value.is_number_integer()) {
    throw Damage(what + " is no integer");
  }
  const auto number =
      value.get<std::int64_t>();  // wide enough for every number that `check_bounds` allows
  if (number < low || number > high) {
    throw Damage(what + " is no integer from " + std::to_string(low) + " to " +
                 std::to_string(high));
  }
  return number;
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

/// The object of that key, whose entries must have names that a terminal can show.
const Json& named_entries(const Json& parent, const std::string& key) {
  const Json& value = object(parent, key);
  for (const auto& [name, entry] : value.items()) {
    if (printable(name) != name) {
      throw Damage(key + " names '" + printable(name) + "', which no terminal can show");
    }
  }
  return value;
}

Size size(const Json& parent, const std::string& key) {
  const Json& value = array(parent, key);
  if (value.size() != 2) {
    throw Damage(key + " is no list of 2");
  }
  return {static_cast<int>(integer(value[0], key, 1, bounds::kSide)),
          static_cast<int>(integer(value[1], key, 1, bounds::kSide))};
}

/// Bytes per element; 0 for a type that no input or output of a graph has.
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
  const Json& shape = array(value, "shape");
  at_most("shape", shape.size(), bounds::kAxes);
  std::int64_t room = bounds::kElements;
  for (const Json& length : shape) {
    spec.shape.push_back(integer(length, "shape", 1, room));
    room /= spec.shape.back();
  }
  return spec;
}

std::vector<TensorSpec> tensors(const Json& graph, const std::string& key) {
  std::vector<TensorSpec> specs;
  at_most(key, array(graph, key).size(), bounds::kTensors);
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

/// A value that is no number from 0 on, as Python shows it.
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
              value.contains("version_compatible") && flag(value, "version_compatible"),
              {}};
  for (const Json& capability : array(value, "compute_capabilities")) {
    made.compute_capabilities.push_back(
        static_cast<int>(integer(capability, "compute_capabilities", 0, 9999)));
  }
  if (!field(value, "plugin").is_null()) {
    made.plugin = text(value, "plugin");
  }
  if (value.contains("gpu") && !value.at("gpu").is_null()) {
    made.gpu = text(value, "gpu");
  }
  return made;
}

/// The method that was trained. Older bundles, which are all of MRCFA, do not name it.
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

/// A text of those, or empty for null and for a field that is not there.
std::string one_of(const Json& object, const std::string& key, const char* one, const char* other) {
  if (!object.contains(key) || object.at(key).is_null()) {
    return "";
  }
  const Json& value = object.at(key);
  if (value != one && value != other) {
    throw Damage(key + " is neither " + one + " nor " + other);
  }
  return value.get<std::string>();
}

/// The format of the frames; older bundles, which are all RGB, do not name it.
InputFormat input_of(const Json& content, Size frame) {
  InputFormat made;
  if (!content.contains("input")) {
    return made;
  }
  const Json& input = content.at("input");
  const Json& layout = field(input, "layout");
  if (layout != "rgb" && layout != "bgr" && layout != "nv12") {
    throw Damage("layout is none of rgb, bgr, nv12");
  }
  made.layout = layout == "rgb" ? Layout::rgb : layout == "bgr" ? Layout::bgr : Layout::nv12;
  made.matrix = one_of(input, "matrix", "bt601", "bt709");
  made.range = one_of(input, "range", "limited", "full");
  const bool nv12 = made.layout == Layout::nv12;
  if (made.matrix.empty() == nv12 || made.range.empty() == nv12) {
    throw Damage("input " + layout.get<std::string>() +
                 (nv12 ? " needs a matrix and a range" : " has no matrix and no range"));
  }
  if (nv12 && (frame.height % 2 != 0 || frame.width % 2 != 0)) {
    const auto shown = [](int height, int width) {
      return std::to_string(height) + "x" + std::to_string(width);
    };
    throw Damage("a frame of " + shown(frame.height, frame.width) +
                 " cannot be NV12, in which 2x2 pixels share a colour; use even sides, such as " +
                 shown(frame.height + frame.height % 2, frame.width + frame.width % 2) +
                 ", or rgb");
  }
  return made;
}

void check_ends(const std::string& place, const std::vector<TensorSpec>& found,
                const std::vector<TensorSpec>& wanted) {
  std::map<std::string, const TensorSpec*> specs;
  for (const TensorSpec& spec : found) {
    specs[spec.name] = &spec;
  }
  if (specs.size() < found.size()) {
    throw Damage(place + " two tensors of the same name");
  }
  for (const TensorSpec& spec : wanted) {
    const auto there = specs.find(spec.name);
    if (there == specs.end()) {
      throw Damage(place + " no " + in_quotes(spec.name));
    }
    const TensorSpec& other = *there->second;
    if (other.dtype != spec.dtype || other.shape != spec.shape) {
      throw Damage(place + " " + in_quotes(spec.name) + " as " + other.shown() + ", not " +
                   spec.shown());
    }
    specs.erase(there);
  }
  for (const TensorSpec& spec : found) {
    if (specs.count(spec.name) != 0) {
      throw Damage(place + " " + in_quotes(spec.name) + ", which is not part of the protocol");
    }
  }
}

/// The answer's tensor: a mask of the frame's size, or logits of any floating-point type and size.
TensorSpec answer(const Manifest& manifest, const std::vector<TensorSpec>& outputs) {
  if (manifest.output == "mask") {
    return {"mask", "uint8", {manifest.streams, manifest.frame.height, manifest.frame.width}};
  }
  TensorSpec made{"logits", "float32", {manifest.streams, manifest.class_count, 1, 1}};
  for (const TensorSpec& spec : outputs) {
    if (spec.name == "logits" && spec.dtype.rfind("float", 0) == 0 && spec.shape.size() == 4) {
      made = spec;
      made.shape[1] = manifest.class_count;
    }
  }
  return made;
}

/// Refuses graphs that do not fit the frame, each other, or the state that is fed back.
void check_tensors(const Manifest& manifest, const Variant& variant) {
  const Graph& encoder = variant.encoder;
  const Graph& decoder = variant.decoder;
  for (const auto* specs : {&encoder.inputs, &encoder.outputs, &decoder.inputs, &decoder.outputs}) {
    for (const TensorSpec& spec : *specs) {
      if (spec.shape.empty() || spec.shape[0] != manifest.streams) {
        throw Damage("the first axis of " + spec.name + " is not " +
                     std::to_string(manifest.streams) + ", the streams");
      }
    }
  }
  std::vector<TensorSpec> state;
  std::copy_if(decoder.inputs.begin(), decoder.inputs.end(), std::back_inserter(state),
               [](const TensorSpec& spec) { return spec.name == "memory"; });
  state.push_back({"frame", "int32", {manifest.streams}});
  std::vector<TensorSpec> taken = encoder.outputs;
  taken.insert(taken.end(), state.begin(), state.end());
  std::vector<TensorSpec> given{answer(manifest, decoder.outputs)};
  for (const TensorSpec& spec : state) {
    given.push_back({spec.name + "_out", spec.dtype, spec.shape});
  }
  std::vector<std::int64_t> image = manifest.input.shape(manifest.frame);
  image.insert(image.begin(), manifest.streams);
  check_ends(variant.name + "'s encoder takes", encoder.inputs, {{"image", "uint8", image}});
  check_ends(variant.name + "'s decoder takes", decoder.inputs, taken);
  check_ends(variant.name + "'s decoder gives", decoder.outputs, given);
}

std::int64_t class_count(const Json& config) {
  constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
  const std::int64_t count = integer(field(config, "classes"), "classes", -kAny, kAny);
  if (count < bounds::kFewestClasses || count > bounds::kMostClasses) {
    throw Damage("classes is " + std::to_string(count) + "; a uint8 mask holds " +
                 std::to_string(bounds::kFewestClasses) + " to " +
                 std::to_string(bounds::kMostClasses) + " classes");
  }
  return count;
}

void check_one_each(const std::string& name, std::size_t count, std::int64_t classes) {
  if (count != static_cast<std::size_t>(classes)) {
    throw Damage(name + " has " + std::to_string(count) + " entries for " +
                 std::to_string(classes) + " classes");
  }
}

Manifest manifest(const Json& content) {
  const Json& config = object(content, "config");
  Manifest made{
      text(config, "dataset"),
      text(config, "backbone"),
      class_count(config),
      size(config, "size"),
      size(content, "frame"),
      text(content, "output"),
      static_cast<int>(integer(field(content, "streams"), "streams", 1, bounds::kStreams)),
      {},
      {},
      {},
      flag(object(content, "weights"), "random"),
      {},
      {},
      method_of(config),
      {}};
  if (made.output != "mask" && made.output != "logits") {
    throw Damage("output is neither mask nor logits");
  }
  const Json& variants = named_entries(content, "variants");
  for (const auto& [name, variant] : variants.items()) {
    made.variants.push_back({name, text(variant, "precision"), device(variant),
                             graph(variant, "encoder"), graph(variant, "decoder")});
  }
  at_most("variants", made.variants.size(), bounds::kVariants);
  if (made.variants.empty()) {
    throw Damage("variants is empty");
  }
  for (const Json& name : array(content, "classes")) {
    if (!name.is_string()) {
      throw Damage("classes is no text");
    }
    made.classes.push_back(printable(name.get<std::string>()));
  }
  for (const Json& value : array(content, "palette")) {
    made.palette.push_back(colour(value));
  }
  for (const auto& [name, entry] : named_entries(content, "files").items()) {
    const std::int64_t bytes =
        integer(field(entry, "bytes"), "bytes", 0, std::numeric_limits<std::int64_t>::max());
    made.files[name] = {text(entry, "sha256"), static_cast<std::uintmax_t>(bytes)};
  }
  for (const Json& value : array(content, "engines")) {
    made.engines.push_back(engine(value));
  }
  made.input = input_of(content, made.frame);
  at_most("files", made.files.size(), bounds::kFiles);
  at_most("engines", made.engines.size(), bounds::kEngines);
  check_one_each("classes", made.classes.size(), made.class_count);
  check_one_each("palette", made.palette.size(), made.class_count);
  for (const Variant& variant : made.variants) {
    check_tensors(made, variant);
  }
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

std::vector<std::int64_t> InputFormat::shape(Size size) const {
  if (layout == Layout::nv12) {
    return {size.height / 2 * 3, size.width};
  }
  return {size.height, size.width, 3};
}

std::size_t TensorSpec::bytes() const {
  std::size_t made = width_of(dtype);
  for (const std::int64_t length : shape) {
    made *= static_cast<std::size_t>(length);
  }
  return made;
}

std::string TensorSpec::shown() const {
  std::vector<std::string> lengths;
  for (const std::int64_t length : shape) {
    lengths.push_back(std::to_string(length));
  }
  return dtype + " [" + listed(lengths) + "]";
}

Manifest Manifest::read(const fs::path& path) {
  return parse(content_of(path, bounds::kManifestBytes + 1), path);
}

Manifest Manifest::parse(const std::string& text, const fs::path& path) {
  try {
    if (text.size() > bounds::kManifestBytes) {
      throw Damage("it has more than " + std::to_string(bounds::kManifestBytes) + " bytes");
    }
    const Json content = Json::parse(text);
    check_bounds(content, bounds::kDepth);
    check_format(content, path);
    return manifest(content);
  } catch (const Damage& damage) {
    throw Error(damaged(path, damage.what()));
  } catch (const Json::out_of_range&) {  // 1e400
    throw Error(damaged(path, kTooLarge));
  } catch (const Json::exception& error) {
    // The text is "[json.exception.parse_error.101] parse error at line 1, column 1: …; last read:
    // '…'". Its last part is taken from the file, unsafe for a terminal, and is dropped.
    std::string reason = error.what();
    reason.erase(std::min(reason.find("; last read"), reason.size()));
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

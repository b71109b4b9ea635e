#include "graph_file.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bounds.hpp"
#include "sentence.hpp"

namespace mrcfa {
namespace {

constexpr const char* kNoGraph = "it is no ONNX graph";
constexpr unsigned kVarint = 0;
constexpr unsigned kFixed64 = 1;
constexpr unsigned kBytes = 2;
constexpr unsigned kFixed32 = 5;

/// The kinds of messages in an ONNX file that are looked into.
enum class Kind : std::uint8_t {
  other,
  model,
  training,
  graph,
  function,
  node,
  attribute,
  tensor,
  sparse
};

/// The kinds of values that a field of a message holds.
Kind inside(Kind kind, std::uint64_t number) {
  switch (kind) {
    case Kind::model:
      return number == 7    ? Kind::graph
             : number == 20 ? Kind::training
             : number == 25 ? Kind::function
                            : Kind::other;
    case Kind::training:
      return number == 1 || number == 2 ? Kind::graph : Kind::other;
    case Kind::graph:
      return number == 1    ? Kind::node
             : number == 5  ? Kind::tensor
             : number == 15 ? Kind::sparse
                            : Kind::other;
    case Kind::function:
      return number == 7 ? Kind::node : number == 11 ? Kind::attribute : Kind::other;
    case Kind::node:
      return number == 5 ? Kind::attribute : Kind::other;
    case Kind::attribute:
      return number == 5 || number == 10    ? Kind::tensor
             : number == 6 || number == 11  ? Kind::graph
             : number == 22 || number == 23 ? Kind::sparse
                                            : Kind::other;
    case Kind::sparse:
      return number == 1 || number == 2 ? Kind::tensor : Kind::other;
    default:
      return Kind::other;
  }
}

/// A field of a message. A varint has a value, all other fields have content.
struct Field {
  std::uint64_t number;
  unsigned wire;
  std::uint64_t value;
  std::string_view content;
};

/// The domain and the name of an operator or a function.
using Name = std::pair<std::string_view, std::string_view>;

std::string dtype_of(std::uint64_t code) {
  switch (code) {
    case 1:
      return "float32";
    case 2:
      return "uint8";
    case 6:
      return "int32";
    case 10:
      return "float16";
    default:
      return "type " + std::to_string(code);
  }
}

/// Walks through all messages of a model. It checks every occurrence of a field, so that no runtime
/// reads one that was not checked here.
class Reader {
 public:
  explicit Reader(std::string_view content) : content_(content) {}

  void check() {
    message(Kind::model, content_, nullptr, 0);
    std::size_t written_out = 0;
    for (const auto& [name, nodes] : functions_) {
      if (calls_in_functions_.count(name) != 0) {
        throw Damage("a function calls a function");
      }
    }
    for (const auto& [name, times] : calls_) {
      const auto found = functions_.find(name);
      written_out += times * (found == functions_.end() ? 1 : found->second);
    }
    if (written_out > bounds::kNodes) {
      throw Damage("it has more than " + std::to_string(bounds::kNodes) + " nodes");
    }
  }

  /// The types and shapes of the graph's inputs (field 11) or outputs (12), by name.
  std::map<std::string, TensorSpec> ends(std::uint64_t number) {
    std::map<std::string, TensorSpec> found;
    for (const std::string_view graph : contents(content_, 7)) {
      for (const std::string_view value : contents(graph, number)) {
        const auto names = contents(value, 1);
        TensorSpec end;
        for (const std::string_view kind : contents(value, 2)) {
          for (const std::string_view tensor : contents(kind, 1)) {
            for (std::string_view rest = tensor; !rest.empty();) {
              const Field each = field(rest);
              if (each.number == 1 && each.wire == kVarint) {
                end.dtype = dtype_of(each.value);
              }
            }
            for (const std::string_view axes : contents(tensor, 2)) {
              for (const std::string_view axis : contents(axes, 1)) {
                end.shape.push_back(length(axis));
              }
            }
          }
        }
        found[names.empty() ? "" : std::string(names.back())] = std::move(end);
      }
    }
    return found;
  }

 private:
  static std::uint64_t varint(std::string_view& rest) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    throw Damage(kNoGraph);
  }

  /// Removes the first field from the rest of a message and returns it.
  Field field(std::string_view& rest) {
    if (++seen_ > bounds::kFields) {
      throw Damage("it has more than " + std::to_string(bounds::kFields) + " fields");
    }
    const std::uint64_t tag = varint(rest);
    Field found{tag >> 3U, static_cast<unsigned>(tag & 7U), 0, {}};
    if (found.number == 0 || found.number >= std::uint64_t{1} << 29U) {
      throw Damage(kNoGraph);
    }
    if (found.wire == kVarint) {
      found.value = varint(rest);
      return found;
    }
    if (found.wire != kBytes && found.wire != kFixed64 && found.wire != kFixed32) {
      throw Damage(kNoGraph);  // a group, which no ONNX file has
    }
    const std::uint64_t bytes = found.wire == kBytes     ? varint(rest)
                                : found.wire == kFixed64 ? 8
                                                         : 4;
    if (bytes > rest.size()) {
      throw Damage(kNoGraph);
    }
    found.content = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return found;
  }

  /// All messages or texts of one field.
  std::vector<std::string_view> contents(std::string_view rest, std::uint64_t wanted) {
    std::vector<std::string_view> found;
    while (!rest.empty()) {
      const Field each = field(rest);
      if (each.number == wanted && each.wire == kBytes) {
        found.push_back(each.content);
      }
    }
    return found;
  }

  /// The length of an axis; 0 if it is dynamic.
  std::int64_t length(std::string_view rest) {
    std::int64_t found = 0;
    while (!rest.empty()) {
      const Field each = field(rest);
      if (each.number == 1 || each.number == 2) {
        found =
            each.number == 1 && each.wire == kVarint ? static_cast<std::int64_t>(each.value) : 0;
      }
    }
    return found;
  }

  /// Two texts of a message. Of several with the same number protobuf takes the last.
  Name name(std::string_view rest, std::uint64_t first, std::uint64_t second) {
    Name found;
    while (!rest.empty()) {
      const Field each = field(rest);
      if (each.wire == kBytes && each.number == first) {
        found.first = each.content;
      } else if (each.wire == kBytes && each.number == second) {
        found.second = each.content;
      }
    }
    return found;
  }

  /// Checks a message and everything inside; true for an attribute that holds graphs.
  bool message(Kind kind, std::string_view content, const Name* function, int depth) {
    std::optional<Name> own;
    if (kind == Kind::graph && ++depth > bounds::kBodies) {
      throw Damage("its graphs are nested too deeply");
    }
    if (kind == Kind::function) {
      own = name(content, 1, 10);
      function = &*own;
      functions_[*own];
    }
    bool has_body = false;
    for (std::string_view rest = content; !rest.empty();) {
      const Field each = field(rest);
      const Kind within = each.wire == kBytes ? inside(kind, each.number) : Kind::other;
      if (within == Kind::tensor) {
        tensor(each.content);
      } else if (within != Kind::other) {
        const bool held = message(within, each.content, function, depth);
        has_body = has_body || held || (kind == Kind::attribute && within == Kind::graph);
      }
    }
    if (kind == Kind::node) {
      node(content, function, has_body);
    } else if (kind == Kind::function && has_body) {
      throw Damage("a function has a graph for a parameter");
    }
    return has_body && kind == Kind::attribute;
  }

  void node(std::string_view content, const Name* function, bool has_body) {
    const Name found = name(content, 4, 7);
    const auto& [type, domain] = found;
    if (has_body && (type != "Scan" || !(domain.empty() || domain == "ai.onnx"))) {
      throw Damage("its node " + in_quotes(std::string(type)) +
                   " has a graph inside, and only a Scan may");
    }
    if (function == nullptr) {
      ++calls_[found];
    } else {
      ++functions_[*function];
      calls_in_functions_.insert(found);
    }
  }

  void tensor(std::string_view rest) {
    while (!rest.empty()) {
      const Field each = field(rest);
      if ((each.number == 13 && each.wire == kBytes) ||
          (each.number == 14 && each.wire == kVarint && each.value != 0)) {
        throw Damage("it keeps tensors in another file, whose content no hash covers");
      }
    }
  }

  std::string_view content_;
  std::map<Name, std::size_t> functions_;  ///< The number of nodes in each function.
  std::map<Name, std::size_t> calls_;      ///< The number of nodes in the graphs, by operator.
  std::set<Name> calls_in_functions_;
  std::size_t seen_ = 0;  ///< The number of fields so far.
};

void check_ends(const std::string& end, std::map<std::string, TensorSpec> found,
                const std::vector<TensorSpec>& expected) {
  for (const TensorSpec& spec : expected) {
    const auto place = found.find(spec.name);
    if (place == found.end()) {
      throw Damage("it has no " + end + " " + in_quotes(spec.name) + ", which the manifest names");
    }
    const TensorSpec& there = place->second;
    if (there.dtype != spec.dtype || there.shape != spec.shape) {
      throw Damage("its " + end + " " + in_quotes(spec.name) + " is " + there.shown() +
                   ", and the manifest says " + spec.shown());
    }
    found.erase(place);
  }
  if (!found.empty()) {
    throw Damage("it has the " + end + " " + in_quotes(found.begin()->first) +
                 ", which the manifest does not name");
  }
}

}  // namespace

void check_graph(std::string_view content, const std::filesystem::path& path,
                 const Graph& expected) try {
  Reader reader(content);
  reader.check();
  check_ends("input", reader.ends(11), expected.inputs);
  check_ends("output", reader.ends(12), expected.outputs);
} catch (const Damage& damage) {
  throw Error(path.string() + " cannot be used (" + damage.what() + "); export the bundle anew");
}

}  // namespace mrcfa

// Answers the cases of the rules that Python and C++ share: a line of JSON on standard output for
// each line on standard input. tests/doubles/engine_cases.py completes the cases.
//
//   mrcfa-fitting < cases.jsonl
#include "fitting.hpp"

#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "failure.hpp"

namespace {

using Json = nlohmann::json;

struct Backend {
  std::string title;
  bool gpu;
  [[nodiscard]] std::string name() const { return title; }
  [[nodiscard]] bool on_gpu() const { return gpu; }
};
using Opened = std::unique_ptr<Backend>;

std::string text(const Json& value) {
  return value.is_null() ? "" : value.get<std::string>();
}

std::optional<int> number(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<int>());
}

/// The name of the GPU that an engine was built on, if the case has one.
std::optional<std::string> built_on(const Json& facts) {
  const std::string name = text(facts.at("gpu"));
  return name.empty() ? std::nullopt : std::optional(name);
}

/// CUDA's number of a version: 13040 for `13.4`.
int cuda_version(const std::string& release) {
  const std::size_t dot = release.find('.');
  return 1000 * std::stoi(release.substr(0, dot)) + 10 * std::stoi(release.substr(dot + 1));
}

/// The rules with the facts of a case, put together as in `open_tensorrt` and `Opened`.
class Policy {
 public:
  explicit Policy(const Json& given)
      : case_(given), asked_(given.at("asked")), machine_(given.at("machine")) {
    for (const Json& facts : case_.at("engines")) {
      engines_.push_back({facts.at("flavour"), facts.at("tensorrt"),
                          facts.at("compute_capabilities"), facts.at("precision"), "fp16",
                          std::nullopt, "encoder", "decoder", facts.at("version_compatible"),
                          built_on(facts)});
    }
  }

  [[nodiscard]] std::vector<const mrcfa::Engine*> requested() const {
    const std::string backend = asked_.at("backend");
    const std::size_t colon = backend.find(':');
    return mrcfa::requested(engines_, colon == std::string::npos ? "" : backend.substr(colon + 1),
                            text(asked_.at("precision")), bundle());
  }

  std::pair<Opened, std::string> run() const {
    if (asked_.at("backend") != "auto") {
      return tensorrt();
    }
    std::string notice;
    std::vector<std::function<Opened()>> attempts;
    if (!engines_.empty()) {
      attempts.emplace_back([&] {
        auto [opened, sentence] = tensorrt();
        notice = sentence;
        return std::move(opened);
      });
    }
    attempts.emplace_back([this] { return onnxruntime(); });
    const auto gpus = [this] { return static_cast<int>(machine_.at("gpus").size()); };
    auto [opened, sentence] = mrcfa::first_opened(attempts, bundle(), gpus, asked_.at("strict"));
    return {std::move(opened), notice + sentence};
  }

 private:
  [[nodiscard]] std::string bundle() const { return case_.at("bundle"); }

  [[nodiscard]] std::pair<Opened, std::string> tensorrt() const {
    const auto wanted = requested();
    const Json& cards = machine_.at("gpus");
    if (cards.empty()) {
      throw mrcfa::Unfit("no GPU can be used here");
    }
    const int device =
        mrcfa::chosen_device(number(asked_.at("device")), number(machine_.at("current")),
                             static_cast<int>(cards.size()));
    const Json& card = cards.at(static_cast<std::size_t>(device));
    const mrcfa::Gpu gpu{device, card.at("name"), card.at("sm")};
    const Json& library = machine_.at("library");
    const mrcfa::Machine machine{gpu,
                                 cuda_version(machine_.at("driver")),
                                 {library.at("flavour"), library.at("version"), 0,
                                  1000 * number(library.at("cuda")).value_or(0)}};
    return mrcfa::first_loaded(mrcfa::candidates(wanted, machine, bundle()),
                               [&](const mrcfa::Engine& engine) { return load(engine, gpu); });
  }

  [[nodiscard]] Opened load(const mrcfa::Engine& engine, const mrcfa::Gpu& gpu) const {
    const auto index = static_cast<std::size_t>(&engine - engines_.data());
    const Json& facts = case_.at("engines").at(index);
    if (!text(facts.at("fails")).empty()) {
      throw mrcfa::Unfit(text(facts.at("fails")));
    }
    if (!text(facts.at("damaged")).empty()) {
      throw mrcfa::Error(text(facts.at("damaged")));
    }
    const bool graphs = asked_.at("cuda_graphs") && machine_.at("records_graphs");
    return std::make_unique<Backend>(Backend{mrcfa::engine_title(engine, gpu, graphs), true});
  }

  [[nodiscard]] Opened onnxruntime() const {
    const std::string place = text(machine_.at("onnxruntime"));
    if (place.empty()) {
      throw mrcfa::Unfit("there is no ONNX Runtime");
    }
    return std::make_unique<Backend>(Backend{"onnxruntime (" + place + ")", place == "CUDA"});
  }

  const Json& case_;
  const Json& asked_;
  const Json& machine_;
  std::vector<mrcfa::Engine> engines_;
};

/// The `order` of the engines that were asked for, what `runs`, the `notice`, and the `error`.
Json choice(const Json& given) {
  Json answer = {{"order", Json::array()}, {"runs", ""}, {"notice", ""}, {"error", ""}};
  try {
    const Policy policy(given);
    for (const mrcfa::Engine* engine : policy.requested()) {
      answer["order"].push_back(mrcfa::name_of(*engine));
    }
  } catch (const mrcfa::Unfit&) {  // reported below, if it matters
  }
  try {
    const auto [opened, notice] = Policy(given).run();
    answer["runs"] = opened->name();
    answer["notice"] = notice;
  } catch (const mrcfa::Error& error) {
    answer["error"] = error.what();
    answer["unfit"] = dynamic_cast<const mrcfa::Unfit*>(&error) != nullptr;
  }
  return answer;
}

/// The answer to a case of golden/cuda_errors.json.
Json meaning(const Json& given) {
  switch (mrcfa::cuda::failure_of(given.at("code"))) {
    case mrcfa::cuda::Failure::memory:
      return "memory";
    case mrcfa::cuda::Failure::context:
      return "context";
    case mrcfa::cuda::Failure::gpu:
      return "gpu";
    default:
      return "call";
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Json given = Json::parse(line);
    std::cout << (given.contains("code") ? meaning(given) : choice(given)).dump() << "\n";
  }
}

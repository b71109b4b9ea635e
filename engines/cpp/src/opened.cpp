#include "opened.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "driver.hpp"
#include "fitting.hpp"
#include "notice.hpp"
#include "sentence.hpp"

namespace mrcfa {
namespace {

using Open = std::unique_ptr<Runner>(const Bundle&, const Options&, const std::string& which);

struct Backend {
  const char* name;
  Open* open;  ///< Null if this build does not have the backend.
  const char* remedy;
};

/// The backends in the order in which `auto` tries them.
constexpr std::array<Backend, 2> kBackends = {{
#ifdef MRCFA_TENSORRT
    {"tensorrt", open_tensorrt, ""},
#else
    {"tensorrt", nullptr, "TensorRT; configure it with -DMRCFA_TENSORRT=tensorrt"},
#endif
#ifdef MRCFA_ONNXRUNTIME
    {"onnxruntime", open_onnxruntime, ""},
#else
    {"onnxruntime", nullptr, "ONNX Runtime; configure it with -DMRCFA_ONNXRUNTIME=ON"},
#endif
}};

std::unique_ptr<Runner> opened(const Backend& backend, const Bundle& bundle, const Options& options,
                               const std::string& which) {
  if (backend.open == nullptr) {
    throw Unfit(std::string("this build of mrcfa has no ") + backend.remedy);
  }
  return backend.open(bundle, options, which);
}

/// The first backend whose libraries and hardware are there. If a GPU is there and does not run
/// TensorRT, the user is told why.
std::unique_ptr<Runner> best(const Bundle& bundle, const Options& options) {
  const bool has_engines = !bundle.manifest().engines.empty();
  std::vector<std::function<std::unique_ptr<Runner>()>> attempts;
  for (const Backend& backend : kBackends) {
    if (has_engines || backend.name != std::string("tensorrt")) {
      attempts.emplace_back(
          [&backend, &bundle, &options] { return opened(backend, bundle, options, ""); });
    }
  }
  auto [runner, sentence] = first_opened(attempts, bundle.path(), count_gpus, options.strict);
  if (!sentence.empty()) {
    notice(sentence);
  }
  return std::move(runner);
}

/// Refuses numbers that no machine can meet, with the sentences of Python's `Options`.
void check(const Options& options) {
  if (options.threads < 0) {
    throw Error("threads is " + std::to_string(options.threads) +
                "; use 1 or more, or 0 for all cores");
  }
  if (options.device && *options.device < 0) {
    throw Error("device is " + std::to_string(*options.device) + "; GPUs are counted from 0");
  }
}

/// The backend that the options name, as `kind` or `kind:which`.
std::unique_ptr<Runner> wanted(const Bundle& bundle, const Options& options) {
  check(options);
  if (options.backend == "auto") {
    return best(bundle, options);
  }
  const std::size_t colon = std::min(options.backend.find(':'), options.backend.size());
  const std::string kind = options.backend.substr(0, colon);
  std::vector<std::string> known = {"auto"};
  for (const Backend& backend : kBackends) {
    if (kind == backend.name) {
      const bool chosen = colon < options.backend.size();
      return opened(backend, bundle, options, chosen ? options.backend.substr(colon + 1) : "");
    }
    known.emplace_back(backend.name);
  }
  throw Error("unknown backend " + in_quotes(options.backend) + "; choose one of " + listed(known));
}

std::string shown(Size size) {
  return std::to_string(size.height) + "x" + std::to_string(size.width);
}

Info info_of(const Manifest& manifest, std::string backend) {
  return {std::move(backend),   manifest.dataset, manifest.backbone,     manifest.frame.height,
          manifest.frame.width, manifest.classes, manifest.palette,      !manifest.random_weights,
          manifest.method,      manifest.streams, manifest.input.layout, manifest.input.matrix,
          manifest.input.range};
}

}  // namespace

Opened::Opened(const Bundle& source, const Options& options)
    : bundle(source.path()),
      masks(source.manifest().output == "mask"),
      runner(wanted(source, options)) {
  info = info_of(source.manifest(), runner->name());
}

Opened::Opened(const Opened& other, std::unique_ptr<Runner> another)
    : bundle(other.bundle), masks(other.masks), info(other.info), runner(std::move(another)) {
  info.backend = runner->name();
}

void Opened::check(int height, int width) const {
  if (height != info.height || width != info.width) {
    const std::string given = shown({height, width});
    throw Error("the frame is " + given + ", but " + bundle.string() + " takes " +
                shown({info.height, info.width}) +
                "; resizing is part of the graphs: mrcfa export --frame " + given);
  }
}

void Opened::check(Memory masks_in) const {
  if (masks_in == Memory::device && !masks) {
    throw Error(bundle.string() +
                " answers with logits, so it has no masks to leave on the GPU; "
                "export it with --output mask");
  }
}

}  // namespace mrcfa

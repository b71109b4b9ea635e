#include "fitting.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sentence.hpp"

namespace mrcfa {
namespace {

/// `sm75+sm86`, or with other words around the numbers.
std::string joined(const std::vector<int>& capabilities, const char* prefix, const char* between) {
  std::string made;
  for (const int capability : capabilities) {
    made += (made.empty() ? "" : between) + std::string(prefix) + std::to_string(capability);
  }
  return made;
}

const char* product_of(const std::string& flavour) {
  return flavour == "rtx" ? "TensorRT-RTX" : "TensorRT";
}

/// Whether this library loads what that one built: a build number behind the third dot is no
/// matter.
bool same_version(const Engine& engine, const std::string& here) {
  const std::string& built = engine.tensorrt;
  const std::string shared = engine.version_compatible ? here.substr(0, here.find('.')) : here;
  return built == shared || built.rfind(shared + ".", 0) == 0;
}

/// Why the engine cannot run here, with both sides named; empty if it can.
std::string misfit(const Engine& engine, const Gpu& gpu, const Library& library,
                   const std::filesystem::path& path) {
  const std::string subject = "the engine " + name_of(engine);
  const auto& targets = engine.compute_capabilities;
  const std::string build = "mrcfa build " + path.string();
  if (std::find(targets.begin(), targets.end(), gpu.capability) == targets.end()) {
    const std::string capability = std::to_string(gpu.capability);
    return subject + " was built for " + joined(targets, "sm_", ", ") + " and " + gpu.name +
           " is sm_" + capability + "; build one for it with: " + build + " --sm " + capability;
  }
  if (engine.flavour != library.flavour) {
    return subject + " needs " + product_of(engine.flavour) + " and this build of mrcfa has " +
           library.product() + "; configure it with -DMRCFA_TENSORRT=" + engine.flavour;
  }
  if (!same_version(engine, library.version)) {
    return subject + " was built with " + library.product() + " " + engine.tensorrt +
           " and this machine has " + library.version + "; build it again with: " + build +
           ", or install " + engine.tensorrt;
  }
  return "";
}

}  // namespace

std::string Library::product() const {
  return product_of(flavour);
}

std::string Library::title() const {
  return (flavour == "rtx" ? "tensorrt_rtx " : "tensorrt ") + version;
}

std::string name_of(const Engine& engine) {
  return engine.flavour + " " + engine.precision + " " +
         joined(engine.compute_capabilities, "sm", "+");
}

const Engine& fitting_engine(const Bundle& bundle, const std::string& which,
                             const std::string& precision, const Gpu& gpu, const Library& library) {
  const std::vector<Engine>& all = bundle.manifest().engines;
  std::vector<const Engine*> candidates;
  for (auto engine = all.rbegin(); engine != all.rend(); ++engine) {
    if ((which.empty() || which == name_of(*engine) || which == engine->flavour) &&
        (precision.empty() || precision == engine->precision)) {
      candidates.push_back(&*engine);
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(), [](const Engine* one, const Engine* other) {
        const auto rank = [](const Engine& engine) {
          return std::pair(engine.precision != "fp16", engine.compute_capabilities.size());
        };
        return rank(*one) < rank(*other);
      });
  if (candidates.empty()) {
    std::vector<std::string> names;
    std::transform(all.begin(), all.end(), std::back_inserter(names), name_of);
    const std::string wanted = which + (which.empty() || precision.empty() ? "" : " ") + precision;
    throw Unfit(bundle.path().string() + " has no engine " + (wanted.empty() ? "yet" : wanted) +
                " (it has " + (names.empty() ? "none" : listed(names)) +
                "); build one with: mrcfa build " + bundle.path().string());
  }
  std::string reasons;
  for (const Engine* engine : candidates) {
    const std::string reason = misfit(*engine, gpu, library, bundle.path());
    if (reason.empty()) {
      return *engine;
    }
    if (reasons.find(reason) == std::string::npos) {
      reasons += (reasons.empty() ? "" : "; ") + reason;
    }
  }
  throw Unfit(reasons);
}

}  // namespace mrcfa

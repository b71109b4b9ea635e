#include "fitting.hpp"

#include <algorithm>
#include <iterator>

#include "sentence.hpp"

namespace mrcfa {
namespace {

std::vector<std::string> with_prefix(const char* prefix, const std::vector<int>& capabilities) {
  std::vector<std::string> made;
  for (const int capability : capabilities) {
    made.push_back(prefix + std::to_string(capability));
  }
  return made;
}

const char* product_of(const std::string& flavour) {
  return flavour == "rtx" ? "TensorRT-RTX" : "TensorRT";
}

/// Up to its first `count` numbers: `10.3.0` for three of `10.3.0.26`.
std::string beginning(const std::string& version, int count) {
  std::size_t end = version.find('.');
  for (; count > 1 && end != std::string::npos; --count) {
    end = version.find('.', end + 1);
  }
  return version.substr(0, end);
}

/// A warning if the engine's kernels were chosen on another GPU of this compute capability.
std::string caution(const Engine& engine, const Gpu& gpu, const std::filesystem::path& bundle) {
  if (!engine.gpu || *engine.gpu == gpu.name) {
    return "";
  }
  return "the engine " + name_of(engine) + " was built on " + *engine.gpu +
         ", so it may be slower on " + gpu.name +
         " or fail; build it again here with: mrcfa build " + bundle.string();
}

Candidate checked(const Engine& engine, const Machine& machine,
                  const std::filesystem::path& bundle) {
  const Library& library = machine.library;
  const std::string subject = "the engine " + name_of(engine);
  const std::string build = "mrcfa build " + bundle.string();
  const auto& targets = engine.compute_capabilities;
  if (std::find(targets.begin(), targets.end(), machine.gpu.capability) == targets.end()) {
    const std::string capability = std::to_string(machine.gpu.capability);
    return {&engine,
            subject + " was built for " + listed(with_prefix("sm_", targets)) + " and " +
                machine.gpu.name + " is sm_" + capability + "; build one for it with: " + build +
                " --sm " + capability,
            true,
            ""};
  }
  if (engine.flavour != "tensorrt" && engine.flavour != "rtx") {
    return {&engine,
            "unknown flavour " + in_quotes(engine.flavour) + "; choose one of tensorrt, rtx",
            false,
            ""};
  }
  if (engine.flavour != library.flavour) {
    return {&engine,
            subject + " needs " + product_of(engine.flavour) + " and this build of mrcfa has " +
                library.product() + "; configure it with -DMRCFA_TENSORRT=" + engine.flavour,
            true,
            ""};
  }
  const int parts = engine.version_compatible ? 1 : 3;  // TensorRT judges build numbers itself
  if (beginning(engine.tensorrt, parts) != beginning(library.version, parts)) {
    return {&engine,
            subject + " was built with " + library.product() + " " + engine.tensorrt +
                " and this machine has " + library.version + "; build it again with: " + build +
                ", or install " + engine.tensorrt,
            false,
            ""};
  }
  if (machine.driver / 1000 < library.cuda / 1000) {
    return {&engine, old_driver(library.cuda, machine.driver), false, ""};
  }
  return {&engine, "", false, caution(engine, machine.gpu, bundle)};
}

}  // namespace

std::string Library::product() const {
  return product_of(flavour);
}

std::string Library::title() const {
  return (flavour == "rtx" ? "tensorrt_rtx " : "tensorrt ") + version;
}

std::string name_of(const Engine& engine) {
  std::string targets;
  for (const std::string& target : with_prefix("sm", engine.compute_capabilities)) {
    targets += (targets.empty() ? "" : "+") + target;
  }
  return engine.flavour + " " + engine.precision + " " + targets;
}

std::vector<const Engine*> requested(const std::vector<Engine>& engines, const std::string& which,
                                     const std::string& precision,
                                     const std::filesystem::path& bundle) {
  std::vector<const Engine*> found;
  for (auto engine = engines.rbegin(); engine != engines.rend(); ++engine) {
    if ((which.empty() || which == name_of(*engine) || which == engine->flavour) &&
        (precision.empty() || precision == engine->precision)) {
      found.push_back(&*engine);
    }
  }
  if (found.empty()) {
    std::vector<std::string> names;
    std::transform(engines.begin(), engines.end(), std::back_inserter(names), name_of);
    const std::string wanted = which + (which.empty() || precision.empty() ? "" : " ") + precision;
    throw Unfit(bundle.string() + " has no engine " + (wanted.empty() ? "yet" : wanted) +
                " (it has " + (names.empty() ? "none" : listed(names)) +
                "); build one with: mrcfa build " + bundle.string());
  }
  const auto rank = [](const Engine* engine) {
    return std::pair(engine->precision != "fp16", engine->compute_capabilities.size());
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Engine* one, const Engine* other) { return rank(one) < rank(other); });
  return found;
}

std::vector<Candidate> candidates(const std::vector<const Engine*>& engines, const Machine& machine,
                                  const std::filesystem::path& bundle) {
  std::vector<Candidate> made;
  for (const Engine* engine : engines) {
    made.push_back(checked(*engine, machine, bundle));
  }
  return made;
}

int chosen_device(std::optional<int> asked, std::optional<int> current, int gpus) {
  if (!asked) {
    return current.value_or(0);
  }
  if (gpus > 0 && *asked >= gpus) {
    throw Error("there is no GPU " + std::to_string(*asked) + "; the last one here is GPU " +
                std::to_string(gpus - 1));
  }
  return *asked;
}

std::string engine_title(const Engine& engine, const Gpu& gpu, bool cuda_graphs) {
  return "tensorrt (" + name_of(engine) + ", " + gpu.name +
         (cuda_graphs ? ")" : ", without CUDA graphs)");
}

std::string release(int cuda) {
  return std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

std::string old_driver(int cuda, int driver) {
  return "this build of mrcfa is for CUDA " + release(cuda) +
         " and NVIDIA's driver supports CUDA up to " + release(driver) +
         "; update the driver, or build mrcfa with that CUDA";
}

std::string joined(const std::vector<std::string>& sentences) {
  std::string made;
  for (auto sentence = sentences.begin(); sentence != sentences.end(); ++sentence) {
    if (std::find(sentences.begin(), sentence, *sentence) == sentence) {
      made += (made.empty() ? "" : "; ") + *sentence;
    }
  }
  return made;
}

}  // namespace mrcfa

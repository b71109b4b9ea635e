// Rules that decide which engine, which GPU and which backend runs, and what the user is told. They
// are functions of facts: none of them touches a GPU. Python has the same ones in
// mrcfa/backends/fitting.py, and the cases of tests/golden/engines.json try both.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bundle.hpp"

namespace mrcfa {

struct Gpu {
  int index;
  std::string name;
  int capability;  ///< Compute capability without the dot: 75 for a Quadro RTX 6000.
};

/// The TensorRT that this program is linked with.
struct Library {
  std::string flavour;  ///< `tensorrt` or `rtx`.
  std::string version;  ///< Major, minor and patch.
  int build;            ///< The build number, which decides about kernels that were compiled here.
  int cuda;             ///< The CUDA version that the program was built for: 13000 for 13.0.

  [[nodiscard]] std::string product() const;
  /// `tensorrt 10.3.0`, as the Python module is named.
  [[nodiscard]] std::string title() const;
};

/// Facts about this machine that decide which engines can run.
struct Machine {
  Gpu gpu;
  int driver;  ///< The newest CUDA version that NVIDIA's driver supports: 13000 for 13.0.
  Library library;
};

/// An engine that was asked for, and the reason why it cannot run here.
struct Candidate {
  const Engine* engine;
  std::string reason;  ///< Empty if nothing is known against the engine.
  /// True if it was built for another GPU or flavour. A bundle may serve many machines, so such an
  /// engine is skipped without a notice where another one runs.
  bool for_others;
  std::string caution;  ///< A sentence for the user if this engine runs; empty if there is none.
};

/// `tensorrt fp16 sm75+sm86`, as `mrcfa inspect` shows it.
std::string name_of(const Engine& engine);

/// The engines of that name or flavour and of that precision, in order of preference; empty texts
/// stand for any. FP16 comes first, then the engine for the fewest GPU architectures, because one
/// for several runs the kernels of the oldest, then the newest, which is the last in the manifest.
/// Unfit if there is none.
std::vector<const Engine*> requested(const std::vector<Engine>& engines, const std::string& which,
                                     const std::string& precision,
                                     const std::filesystem::path& bundle);

/// The engines in the same order, checked against the machine.
std::vector<Candidate> candidates(const std::vector<const Engine*>& engines, const Machine& machine,
                                  const std::filesystem::path& bundle);

/// The index of the GPU to use: the one asked for, else the current context's, else the first.
/// `gpus` is the number of GPUs here; 0 if it is not known.
int chosen_device(std::optional<int> asked, std::optional<int> current, int gpus);

/// The name of a backend that runs this engine, launched as CUDA graphs or kernel by kernel.
std::string engine_title(const Engine& engine, const Gpu& gpu, bool cuda_graphs);

/// `13.0` for 13000.
std::string release(int cuda);

/// The sentence about a driver that is too old for the CUDA version that the program was built for.
std::string old_driver(int cuda, int driver);

/// Each sentence once, between semicolons.
std::string joined(const std::vector<std::string>& sentences);

/// What `load` returns for the first engine that it does not find Unfit, and a notice, which says
/// why better engines were skipped, and what to expect of this one. The notice is empty if there is
/// nothing to say.
template <class Load>
auto first_loaded(const std::vector<Candidate>& candidates, Load load) {
  std::vector<std::string> reasons;
  std::vector<std::string> unexpected;
  for (const Candidate& candidate : candidates) {
    std::string reason = candidate.reason;
    if (reason.empty()) {
      try {
        auto loaded = load(*candidate.engine);
        std::vector<std::string> sentences;
        if (!unexpected.empty()) {
          sentences.push_back("the engine " + name_of(*candidate.engine) +
                              " runs instead of a better one: " + joined(unexpected));
        }
        if (!candidate.caution.empty()) {
          sentences.push_back(candidate.caution);
        }
        return std::pair(std::move(loaded), joined(sentences));
      } catch (const Unfit& error) {
        reason = error.what();
      }
    }
    reasons.push_back(reason);
    if (!candidate.for_others) {
      unexpected.push_back(reason);
    }
  }
  throw Unfit(joined(reasons));
}

/// The first backend that opens, and a notice if a GPU is there that could do better. The attempts
/// are those that the bundle allows, so without a reason it has no engine. If `strict`, the notice
/// is an Error. The notice is empty if there is nothing to say. `count_gpus` is called only if the
/// answer matters.
template <class Attempt, class CountGpus>
auto first_opened(const std::vector<Attempt>& attempts, const std::filesystem::path& bundle,
                  CountGpus count_gpus, bool strict) {
  std::vector<std::string> reasons;
  for (const Attempt& attempt : attempts) {
    try {
      auto opened = attempt();
      if (reasons.empty() && !opened->on_gpu()) {
        reasons = {bundle.string() + " has no engine yet; build one with: mrcfa build " +
                   bundle.string()};
      }
      std::string notice;
      if (!reasons.empty() && count_gpus() > 0) {
        if (strict) {
          throw Error("only " + opened->name() + " can run " + bundle.string() +
                      " here: " + joined(reasons));
        }
        notice = opened->name() + " runs instead of TensorRT: " + joined(reasons);
      }
      return std::pair(std::move(opened), std::move(notice));
    } catch (const Unfit& error) {
      reasons.emplace_back(error.what());
    }
  }
  throw Error("no backend can run " + bundle.string() + " here: " + joined(reasons));
}

}  // namespace mrcfa

// Which of a bundle's engines runs on this machine, and the sentences if none does.
#pragma once

#include <string>

#include "bundle.hpp"

namespace mrcfa {

struct Gpu {
  int index;
  std::string name;
  int capability;  ///< 75 for a Quadro RTX 6000.
};

/// The TensorRT that this program is linked with.
struct Library {
  std::string flavour;  ///< `tensorrt` or `rtx`.
  std::string version;  ///< Major, minor and patch.
  int build;            ///< Behind these; what was compiled at run time is of one build.

  [[nodiscard]] std::string product() const;
  /// `tensorrt 10.3.0`, as Python names the module.
  [[nodiscard]] std::string title() const;
};

/// `tensorrt fp16 sm75+sm86`, as `mrcfa inspect` shows it.
std::string name_of(const Engine& engine);

/// Of the engines that this machine can load an FP16 one first, then the most specific, for an
/// engine for several GPUs is the program of the oldest, then the newest, which is listed last.
/// `which` is its name or flavour.
const Engine& fitting_engine(const Bundle& bundle, const std::string& which,
                             const std::string& precision, const Gpu& gpu, const Library& library);

}  // namespace mrcfa

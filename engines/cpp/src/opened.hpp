// A bundle that is open, behind `Stream` and `Streams`.
#pragma once

#include <filesystem>
#include <memory>

#include "mrcfa.hpp"
#include "runner.hpp"

namespace mrcfa {

struct Opened {
  std::filesystem::path bundle;
  bool masks;  ///< Whether the graphs answer with masks, not logits.
  Info info;
  std::unique_ptr<Runner> runner;

  /// In the backend that the options name, or in the best one.
  Opened(const Bundle& source, const Options& options);
  Opened(const Opened& other, std::unique_ptr<Runner> another);

  /// Frames have the bundle's size, and logits no masks on the device.
  void check(int height, int width) const;
  void check(Memory masks_in) const;
};

}  // namespace mrcfa

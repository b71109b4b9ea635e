// A bundle that is open, behind `Stream` and `Streams`.
#pragma once

#include <filesystem>
#include <memory>

#include "mrcfa.hpp"
#include "runner.hpp"

namespace mrcfa {

struct Opened {
  std::filesystem::path bundle;
  bool masks;  ///< True if the graphs answer with masks, false if with logits.
  Info info;
  std::unique_ptr<Runner> runner;

  /// Opens the bundle in the backend that the options name, or in the best one.
  Opened(const Bundle& source, const Options& options);
  Opened(const Opened& other, std::unique_ptr<Runner> another);

  /// Refuses frames that do not have the bundle's size.
  void check(int height, int width) const;
  /// Refuses masks on the device if the graphs answer with logits.
  void check(Memory masks_in) const;
};

}  // namespace mrcfa

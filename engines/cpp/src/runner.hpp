// What runs a bundle's two graphs for one video. `Stream` is written once, against `Runner`.
#pragma once

#include <memory>
#include <string>

#include "bundle.hpp"

namespace mrcfa {

/// A frame of the bundle's size, and where its mask goes.
struct Frame {
  const std::uint8_t* rgb;
  std::uint8_t* mask;
  Memory rgb_in;
  Memory mask_in;
};

class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  /// What runs and where, such as `onnxruntime (CPU, fp32)`.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool on_gpu() const = 0;
  virtual void step(const Frame& frame) = 0;
  virtual void reset() = 0;
  [[nodiscard]] virtual std::unique_ptr<Runner> sibling() const = 0;
};

/// `which` is the name or flavour of an engine, or empty for the best one.
std::unique_ptr<Runner> open_tensorrt(const Bundle& bundle, const Options& options,
                                      const std::string& which);

/// `provider` is `cpu`, `cuda` or empty for CUDA if the library has it and the bundle has graphs
/// for it, else the CPU.
std::unique_ptr<Runner> open_onnxruntime(const Bundle& bundle, const Options& options,
                                         const std::string& provider);

}  // namespace mrcfa

// What runs a bundle's two graphs. `Stream` and `Streams` are written once, against `Runner`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bundle.hpp"

namespace mrcfa {

/// A frame of the bundle's size for each of its streams; null for a stream that has none.
struct Frames {
  const std::uint8_t* const* rows;
  Memory in;
};

/// Where the mask of each stream goes; null for a stream without a frame.
struct Masks {
  std::uint8_t* const* rows;
  Memory in;
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
  /// A stream without a frame keeps its state.
  virtual void step(const Frames& frames, const Masks& masks) = 0;
  /// Begin a step, of which two may be under way.
  virtual void submit(const Frames& frames) = 0;
  /// End the oldest step that was begun.
  virtual void result(const Masks& masks) = 0;
  /// The next frame of that stream is the first of a video; what is under way is dropped.
  virtual void reset(std::size_t stream) = 0;
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

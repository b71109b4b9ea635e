// The interface of backends. `Stream` and `Streams` are written once, against `Runner`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bundle.hpp"

namespace mrcfa {

/// A frame of the bundle's size for each stream; null for a stream that has none.
struct Frames {
  const std::uint8_t* const* rows;
  Memory in;
};

/// The memory for the mask of each stream; null for a stream without a frame.
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

  /// The backend's own name, such as `onnxruntime (CPU, fp32)`.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool on_gpu() const = 0;
  /// Segments a frame of each stream. A stream without a frame keeps its state.
  virtual void step(const Frames& frames, const Masks& masks) = 0;
  /// Begins a step; two may be under way.
  virtual void submit(const Frames& frames) = 0;
  /// Ends the oldest step that was begun.
  virtual void result(const Masks& masks) = 0;
  /// Lets the stream's next frame start a new video, and drops the steps under way.
  virtual void reset(std::size_t stream) = 0;
  [[nodiscard]] virtual std::unique_ptr<Runner> sibling() const = 0;
};

/// Opens an engine: `which` is its name or flavour, or empty for the best one that loads.
std::unique_ptr<Runner> open_tensorrt(const Bundle& bundle, const Options& options,
                                      const std::string& which);

/// Opens the graphs. `provider` is `cpu`, `cuda`, `webgpu` or empty, which stands for CUDA if the
/// library and the bundle have it, else for WebGPU if there is a GPU for it, else for the CPU.
std::unique_ptr<Runner> open_onnxruntime(const Bundle& bundle, const Options& options,
                                         const std::string& provider);

}  // namespace mrcfa

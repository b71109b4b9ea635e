// A bundle's two graphs in ONNX Runtime, loaded: on the CPU, or on CUDA where it really loads.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ort.hpp"

namespace mrcfa {

inline constexpr const char* kCudaProvider = "CUDAExecutionProvider";

/// Both sessions and what is known about them; siblings share it, and nothing in it changes.
struct Sessions {
  Sessions(const Bundle& bundle, const Options& options, bool on_cuda);

  ort::Api api;
  bool cuda;
  std::string name;
  Size network;
  Size frame;
  std::size_t streams;  ///< The first axis of every tensor.
  TensorSpec image;
  TensorSpec answer;                                       ///< `mask` or `logits`.
  std::vector<std::pair<std::string, std::string>> state;  ///< Names, before and after a frame.
  std::vector<TensorSpec> state_specs;
  std::vector<std::string> features;
  std::vector<std::uint8_t> zeros;  ///< The state before the first frame.
  ort::Owned<OrtEnv> env;
  ort::Owned<OrtMemoryInfo> host;
  ort::Owned<OrtMemoryInfo> place;   ///< Where features stay between the graphs.
  const OrtMemoryInfo* state_place;  ///< The same, but the host where streams pause and start one
                                     ///< by one: ONNX Runtime copies no parts of tensors on GPUs.
  ort::Owned<OrtSession> encoder;
  ort::Owned<OrtSession> decoder;

  /// A tensor over memory that somebody else owns. ONNX Runtime makes no difference between inputs
  /// and outputs here, hence not const.
  [[nodiscard]] ort::Owned<OrtValue> over(const void* data, const TensorSpec& spec,
                                          Memory memory_of = Memory::host) const;
};

}  // namespace mrcfa

// A bundle's two graphs in ONNX Runtime: on the CPU, or on CUDA where it really loads.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ort.hpp"

namespace mrcfa {

inline constexpr const char* kCudaProvider = "CUDAExecutionProvider";

/// Both sessions and their facts; siblings share them, and nothing in here changes.
struct Sessions {
  Sessions(const Bundle& bundle, Options options, bool on_cuda);

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
  const OrtMemoryInfo* state_place;  ///< The same, but the host if there are several streams, which
                                     ///< pause one by one: ONNX Runtime copies no rows on GPUs.
  ort::Owned<OrtSession> encoder;
  ort::Owned<OrtSession> decoder;

  /// A tensor over memory that the caller owns. Not const, because ONNX Runtime makes no difference
  /// between inputs and outputs here.
  [[nodiscard]] ort::Owned<OrtValue> over(const void* data, const TensorSpec& spec,
                                          Memory memory_of = Memory::host) const;
};

}  // namespace mrcfa

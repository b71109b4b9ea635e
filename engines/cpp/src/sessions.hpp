// A bundle's two graphs in ONNX Runtime: on the CPU, or on a GPU where it really loads.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ort.hpp"
#include "webgpu.hpp"

namespace mrcfa {

inline constexpr const char* kCudaProvider = "CUDAExecutionProvider";

/// The execution provider of the sessions.
enum class Provider : std::uint8_t { cpu, cuda, webgpu };

/// Both sessions and their facts; siblings share them, and nothing in here changes.
struct Sessions {
  Sessions(const Bundle& bundle, Options options, Provider on);
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;
  ~Sessions();

  ort::Api api;
  Provider provider;
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
  ort::Owned<OrtMemoryInfo> cuda;    ///< Null without CUDA.
  const OrtMemoryInfo* place;        ///< Where features stay between the graphs.
  const OrtMemoryInfo* state_place;  ///< The same, but the host if there are several streams, which
                                     ///< pause one by one: ONNX Runtime copies no rows on GPUs.
  ort::Owned<OrtSession> encoder;
  ort::Owned<OrtSession> decoder;

  /// Held while the device is used, if it takes one thread at a time; else it holds nothing.
  [[nodiscard]] webgpu::Turn turn() const;

  /// A tensor over memory that the caller owns. Not const, because ONNX Runtime makes no difference
  /// between inputs and outputs here.
  [[nodiscard]] ort::Owned<OrtValue> over(const void* data, const TensorSpec& spec,
                                          Memory memory_of = Memory::host) const;
};

}  // namespace mrcfa

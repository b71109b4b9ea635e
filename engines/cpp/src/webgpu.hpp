// ONNX Runtime's WebGPU provider: a library that is registered, and the adapter that it takes.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>

#include "ort.hpp"

namespace mrcfa::webgpu {

/// The GPU that WebGPU takes, or the software in its place.
struct Adapter {
  std::string name;
  bool software;  ///< True if a CPU does the work.
  bool fp16;      ///< True if its shaders compute in FP16.

  /// `SwiftShader, software`.
  [[nodiscard]] std::string title() const;
};

/// The provider's library: that of MRCFA_WEBGPU_LIBRARY, or the one beside ONNX Runtime's. Empty if
/// there is none.
std::filesystem::path library();

/// Facts about the adapter, from a trial of one node in each precision. Unfit if there is none.
Adapter adapter(const ort::Api& api, OrtEnv& env);

/// Lets a session compute there.
void append(const ort::Api& api, OrtEnv& env, OrtSessionOptions& settings);

/// The memory of the adapter's tensors; it lives as long as the environment.
const OrtMemoryInfo& memory(const ort::Api& api, OrtEnv& env);

/// Held by the thread that uses the provider. All sessions of a process share one device, and two of
/// them that run at the same time crash it.
using Turn = std::unique_lock<std::recursive_mutex>;
Turn turn();

}  // namespace mrcfa::webgpu

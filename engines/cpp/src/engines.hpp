// A bundle's two engines in TensorRT, loaded and checked.
#pragma once

#include <NvInferRuntime.h>
#include <cuda_runtime_api.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bundle.hpp"
#include "context.hpp"
#include "fitting.hpp"
#include "runtime_cache.hpp"

namespace mrcfa {

/// One plan and its tensors.
struct Part {
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
  std::vector<TensorSpec> tensors;
};

/// The GPU of that index; Unfit if CUDA cannot be used, and NoGpu if that is because there is none.
Gpu gpu_of(int index);

/// Both engines and what is known about them; siblings share it, and nothing in it changes. To be
/// made and destroyed in its context.
struct Engines {
  Engines(std::shared_ptr<const cuda::Context> context, Gpu gpu, const Bundle& bundle,
          const Options& options, const std::string& which);

  std::shared_ptr<const cuda::Context> context;
  Gpu gpu;
  cudaStream_t stream;  ///< The caller's, or null.
  bool graphs;          ///< Whether to launch CUDA graphs.
  Size network;
  Size frame;
  std::size_t streams;  ///< The first axis of every tensor.
  TensorSpec image;
  TensorSpec answer;  ///< `mask` or `logits`.
  std::string name;
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  Part encoder;
  Part decoder;
  std::unique_ptr<RuntimeCache> cache;  ///< Makes the contexts of both.

 private:
  void load_plugin(std::filesystem::path library) const;
  [[nodiscard]] Part part(const Bundle& bundle, const Engine& engine,
                          const std::string& file) const;
  void check(const Bundle& bundle, const Engine& engine) const;
};

}  // namespace mrcfa

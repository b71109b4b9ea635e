// An engine of the bundle in TensorRT: its two plans, loaded and checked.
#pragma once

#include <NvInferRuntime.h>
#include <cuda_runtime_api.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bundle.hpp"
#include "context.hpp"
#include "fitting.hpp"
#include "runtime_cache.hpp"

namespace mrcfa {

/// A deserialised plan and its tensors.
struct Part {
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
  std::vector<TensorSpec> tensors;
};

/// The GPU that `chosen_device` chooses; Unfit if no GPU can be used.
Gpu gpu_of(std::optional<int> device);

/// The facts that decide which engines run on this GPU.
Machine machine_of(const Gpu& gpu);

/// Both plans of an engine, loaded and checked; siblings share them, and nothing in here changes.
/// Whatever this machine refuses to load is an Unfit, so that another engine can be tried. To be
/// made and destroyed in its context.
struct Engines {
  Engines(std::shared_ptr<const cuda::Context> context, Gpu gpu, const Bundle& bundle,
          const Options& options, const Engine& engine);

  std::shared_ptr<const cuda::Context> context;
  Gpu gpu;
  Engine engine;
  cudaStream_t stream;  ///< The caller's CUDA stream, or null.
  bool graphs;          ///< True if engines should be launched as CUDA graphs.
  Size network;
  Size frame;
  std::size_t streams;  ///< The first axis of every tensor.
  TensorSpec image;
  TensorSpec answer;  ///< `mask` or `logits`.
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  Part encoder;
  Part decoder;
  std::unique_ptr<RuntimeCache> cache;  ///< Makes the execution contexts of both plans.

 private:
  void load_plugin(std::filesystem::path library) const;
  [[nodiscard]] Part part(const Bundle& bundle, const std::string& file, const Graph& graph) const;
};

}  // namespace mrcfa

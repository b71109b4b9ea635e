// Execution contexts, and a cache on disk of the kernels that TensorRT-RTX compiles for them.
#pragma once

#include <NvInferRuntime.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fitting.hpp"

namespace mrcfa {

/// Makes the execution contexts of an engine's two plans. Whenever one is made, TensorRT-RTX
/// compiles its kernels for the GPU, for seconds, unless they are in the cache. The cache is kept
/// in `file`, or only in memory if `file` is empty. A file that cannot be read or written is
/// reported and costs compiling again. Classic TensorRT compiles everything at build time and does
/// not use the file.
class RuntimeCache {
 public:
  /// `plan` is either of the two. Unfit if TensorRT cannot make a cache.
  RuntimeCache(nvinfer1::ICudaEngine& plan, std::filesystem::path file);
  RuntimeCache(const RuntimeCache&) = delete;
  RuntimeCache& operator=(const RuntimeCache&) = delete;
  ~RuntimeCache();

  /// A context without scratch memory, which its user provides. Unfit if TensorRT cannot make one.
  /// Threads wait for each other here (`Undisturbed`), and the first one compiles the kernels of all.
  std::unique_ptr<nvinfer1::IExecutionContext> new_context(nvinfer1::ICudaEngine& plan);
  /// Writes the file if anything was compiled since it was read or saved.
  void save();

 private:
  struct Kernels;
  std::unique_ptr<Kernels> kernels_;
};

/// The cache file of the engine whose plans have these hashes, on this GPU. Python shares it
/// (mrcfa/backends/runtime_cache.py). Empty if the user has no folder for caches.
std::filesystem::path runtime_cache_file(const Library& library, const Gpu& gpu,
                                         const std::vector<std::string>& plans);

}  // namespace mrcfa

// Execution contexts, and what TensorRT-RTX compiles for them, which it does once per GPU.
#pragma once

#include <NvInferRuntime.h>

#include <filesystem>
#include <memory>
#include <string>

namespace mrcfa {

/// Makes the contexts of one engine. TensorRT-RTX compiles its kernels for the GPU whenever one is
/// made, for seconds, unless it is given those of another time: they are kept in `file`, or only in
/// memory if that is empty. A file that cannot be used or written is told and costs nothing else.
/// Classic TensorRT has compiled everything at build time and leaves the file alone.
class RuntimeCache {
 public:
  RuntimeCache(nvinfer1::ICudaEngine& engine, std::filesystem::path file);
  RuntimeCache(const RuntimeCache&) = delete;
  RuntimeCache& operator=(const RuntimeCache&) = delete;
  ~RuntimeCache();

  /// Without scratch memory, which its user brings. Threads that ask at once wait for each other,
  /// for the first one compiles what the others take.
  std::unique_ptr<nvinfer1::IExecutionContext> new_context();

 private:
  struct Kernels;
  nvinfer1::ICudaEngine& engine_;
  std::unique_ptr<Kernels> kernels_;
};

/// Where the kernels of a plan with that hash lie on such a GPU: beside Python's, under names of
/// their own. Empty if the user has no folder for caches.
std::filesystem::path runtime_cache_file(const std::string& sha256, const std::string& gpu,
                                         int capability, const std::string& version);

}  // namespace mrcfa

// Execution contexts, and what TensorRT-RTX compiles for them, which it does once per GPU.
#pragma once

#include <NvInferRuntime.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fitting.hpp"

namespace mrcfa {

/// Makes the contexts of an engine's two plans. TensorRT-RTX compiles their kernels for the GPU
/// whenever one is made, for seconds, unless it is given those of another time: they are kept in
/// `file`, or only in memory if that is empty. A file that cannot be used or written is told and
/// costs nothing else. Classic TensorRT has compiled everything at build time and leaves the file
/// alone.
class RuntimeCache {
 public:
  /// `plan` is either of the two.
  RuntimeCache(nvinfer1::ICudaEngine& plan, std::filesystem::path file);
  RuntimeCache(const RuntimeCache&) = delete;
  RuntimeCache& operator=(const RuntimeCache&) = delete;
  ~RuntimeCache();

  /// Without scratch memory, which its user brings. Threads that ask at once wait for each other,
  /// for the first one compiles what the others take.
  std::unique_ptr<nvinfer1::IExecutionContext> new_context(nvinfer1::ICudaEngine& plan);
  /// Write what was compiled since it was read or saved, if anything was.
  void save();

 private:
  struct Kernels;
  std::unique_ptr<Kernels> kernels_;
};

/// Where the kernels of an engine whose plans have these hashes lie on such a GPU, for C++ and for
/// Python (mrcfa/backends/runtime_cache.py). Empty if the user has no folder for caches.
std::filesystem::path runtime_cache_file(const Library& library, const Gpu& gpu,
                                         const std::vector<std::string>& plans);

}  // namespace mrcfa

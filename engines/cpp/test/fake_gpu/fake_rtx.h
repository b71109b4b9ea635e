// What TensorRT-RTX compiles for a GPU and keeps, in the words of its documentation; its headers
// are in no public place.
#pragma once

#include <cstddef>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "cuda_runtime_api.h"

namespace nvinfer1 {

enum class ExecutionContextAllocationStrategy { kSTATIC, kON_PROFILE_CHANGE, kUSER_MANAGED };

/// What must be freed in the context that it was made in.
class InContext {
 public:
  explicit InContext(const char* what) : what_(what) {}
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext() { fake::freed_in(context_, what_); }

 private:
  const char* what_;
  CUcontext context_ = fake::context();
};

class IHostMemory {
 public:
  explicit IHostMemory(std::string content) : content_(std::move(content)) {}
  const void* data() const { return content_.data(); }
  std::size_t size() const { return content_.size(); }

 private:
  std::string content_;
};

/// The programs that were compiled, by the hashes of their plans.
class IRuntimeCache : InContext {
 public:
  IRuntimeCache() : InContext("a runtime cache") {}

  IHostMemory* serialize() const {
    std::ostringstream content;
    content << kGpu;
    for (const std::size_t plan : plans) {
      content << " " << plan;
    }
    return new IHostMemory(content.str() + " end");
  }
  bool deserialize(const void* blob, std::size_t size) {
    std::istringstream content(std::string(static_cast<const char*>(blob), size));
    std::set<std::size_t> found;
    std::string word;
    if (!(content >> word) || word != kGpu) {
      return false;
    }
    while (content >> word && word != "end") {
      found.insert(std::stoull(word));
    }
    plans = word == "end" ? found : plans;
    return word == "end";
  }

  mutable std::set<std::size_t> plans;

 private:
  static constexpr const char* kGpu = "fake-rtx-sm75";
};

class IRuntimeConfig {
 public:
  void setExecutionContextAllocationStrategy(ExecutionContextAllocationStrategy wanted) {
    strategy = wanted;
  }
  IRuntimeCache* createRuntimeCache() const { return new IRuntimeCache; }
  bool setRuntimeCache(const IRuntimeCache& wanted) {
    cache = &wanted;
    return true;
  }

  ExecutionContextAllocationStrategy strategy = ExecutionContextAllocationStrategy::kSTATIC;
  const IRuntimeCache* cache = nullptr;
};

}  // namespace nvinfer1

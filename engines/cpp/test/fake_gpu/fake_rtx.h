// TensorRT-RTX's runtime cache, as its documentation describes it; its headers are not public. A
// cache is serialised as in tests/doubles/fake_gpu.py.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "cuda_runtime_api.h"

namespace nvinfer1 {

enum class ExecutionContextAllocationStrategy { kSTATIC, kON_PROFILE_CHANGE, kUSER_MANAGED };

/// An object that must be freed in the context in which it was made. TensorRT may wait for the
/// whole context when it makes or frees one.
class InContext {
 public:
  explicit InContext(const char* what) : what_(what) { fake::wait_for_context(); }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext() {
    fake::freed_in(context_, what_);
    fake::wait_for_context();
  }

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

/// The compiled plans, by their SHA-256.
class IRuntimeCache : InContext {
 public:
  IRuntimeCache() : InContext("a runtime cache") {}

  IHostMemory* serialize() const {
    std::string content;
    for (const std::string& plan : plans) {
      content += (content.empty() ? "\"" : ", \"") + plan + "\"";
    }
    return new IHostMemory(kOrigin + content + "]]");
  }
  bool deserialize(const void* blob, std::size_t size) {
    const std::string content(static_cast<const char*>(blob), size);
    if (content.rfind(kOrigin, 0) != 0) {
      return false;
    }
    for (std::size_t at = kOrigin.size() + 1; at + kDigest < size; at += kDigest + 4) {
      plans.insert(content.substr(at, kDigest));
    }
    return true;
  }

  mutable std::set<std::string> plans;

 private:
  static constexpr std::size_t kDigest = 64;
  static inline const std::string kOrigin = "[\"Fake RTX\", \"13000\", [";  ///< GPU, driver.
};

class IRuntimeConfig : InContext {
 public:
  IRuntimeConfig() : InContext("a runtime config") {}
  ~IRuntimeConfig() {
    if (users.use_count() > 1) {
      fake::fail("a runtime config is freed before a context that was made with it");
    }
  }

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
  std::shared_ptr<int> users = std::make_shared<int>();  ///< Shared by its contexts.
};

}  // namespace nvinfer1

// A TensorRT made of ONNX Runtime, for tests. A "plan" is an ONNX file, so the backend's handling
// of state, addresses and graphs can be compared with ONNX Runtime's masks bit by bit. With
// FAKE_RTX it is TensorRT-RTX: a context is compiled unless the runtime cache has it, and the file
// named by FAKE_RTX_COMPILED lists what was compiled, and a config outlives its contexts. With FAKE_TENSORRT_NULL the runtime does not
// start. The process ends if a graph runs whose context got other addresses since.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cuda_runtime_api.h"
#include "fake_rtx.h"
#include "sha256.hpp"

#ifdef FAKE_RTX
#define TRT_MAJOR_RTX 1
#endif

inline int getInferLibMajorVersion() {
  return 10;
}
inline int getInferLibMinorVersion() {
  return 3;
}
inline int getInferLibPatchVersion() {
  return 0;
}
inline int getInferLibBuildVersion() {
  return 26;
}

namespace nvinfer1 {

enum class ProfilingVerbosity { kLAYER_NAMES_ONLY, kNONE, kDETAILED };
enum class DataType { kFLOAT, kHALF, kINT8, kINT32, kBOOL, kUINT8 };

struct Dims {
  int nbDims;
  std::int64_t d[8];
};

class ILogger {
 public:
  enum class Severity { kINTERNAL_ERROR, kERROR, kWARNING };
  virtual ~ILogger() = default;
  virtual void log(Severity severity, const char* message) noexcept = 0;
};

struct IPluginCreatorInterface {};

struct IPluginRegistry {
  void loadLibrary(const char* path) {
    loaded = std::string(path).find("mrcfa") != std::string::npos;
  }
  IPluginCreatorInterface* getCreator(const char*, const char*, const char*) {
    return loaded ? &creator : nullptr;
  }
  bool loaded = false;
  IPluginCreatorInterface creator;
};

struct Tensor {
  std::string name;
  ONNXTensorElementDataType type;
  std::vector<std::int64_t> shape;
};

class IExecutionContext : InContext {
 public:
  IExecutionContext(Ort::Session& session, const std::vector<Tensor>& tensors, std::size_t inputs,
                    std::int64_t scratch_bytes, ExecutionContextAllocationStrategy strategy,
                    std::shared_ptr<int> config = nullptr)
      : InContext("an execution context"),
        config_(std::move(config)),
        session_(session),
        tensors_(tensors),
        inputs_(inputs),
        scratch_bytes_(scratch_bytes) {
    if (strategy != ExecutionContextAllocationStrategy::kUSER_MANAGED) {
      cudaMalloc(&owned_, static_cast<std::size_t>(scratch_bytes));
      scratch_ = owned_;
      ++own_scratch;
    }
    ++alive;
  }
  ~IExecutionContext() {
    --alive;
    if (owned_ != nullptr) {
      cudaFree(owned_);
    }
  }

  static inline std::atomic<int> alive = 0;
  static inline std::atomic<int> own_scratch = 0;  ///< Contexts with scratch memory of their own.
  static inline std::atomic<int> nvtx_ranges = 0;

  void setDeviceMemoryV2(void* memory, std::int64_t bytes) {
    scratch_ = bytes >= scratch_bytes_ ? memory : nullptr;
  }
  bool setNvtxVerbosity(ProfilingVerbosity verbosity) {
    verbosity_ = verbosity;
    return true;
  }
  bool setTensorAddress(const char* name, void* address) {
    (*addresses_)[name] = address;
    return true;
  }
#ifdef FAKE_RTX
  bool isStreamCapturable(cudaStream_t) const {
    return !fake::set("FAKE_GPU_NO_GRAPHS", "capturable");
  }
#endif

  bool enqueueV3(cudaStream_t stream) {
    // The first run sets the context up, which cannot be captured.
    if (scratch_ == nullptr || (stream->capturing && !std::exchange(ran_, true))) {
      return false;
    }
#ifdef FAKE_RTX
    if (stream->capturing && !isStreamCapturable(stream)) {
      fake::fail("what is not capturable is captured");
    }
#endif
    ran_ = true;
    nvtx_ranges += verbosity_ == ProfilingVerbosity::kNONE ? 0 : 1;
    // An engine takes time: no one else may use its inputs, outputs and scratch memory until it
    // ends.
    const auto addresses = *addresses_;
    const auto current = stream->capturing ? addresses_ : nullptr;
    auto* scratch = static_cast<std::uint8_t*>(scratch_);
    fake::queue(stream, {[=] {
                  if (current != nullptr && *current != addresses) {
                    fake::fail("a graph's context has other addresses by now");
                  }
                  begin(addresses, scratch);
                }});
    fake::queue(stream, {[=] { end(addresses, scratch); }});
    return true;
  }

 private:
  static std::size_t bytes_of(const Tensor& tensor) {
    std::size_t bytes = tensor.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8     ? 1
                        : tensor.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 ? 2
                                                                               : 4;
    for (const std::int64_t length : tensor.shape) {
      bytes *= static_cast<std::size_t>(length);
    }
    return bytes;
  }

  void begin(const std::map<std::string, void*>& addresses, std::uint8_t* scratch) const {
    std::memset(scratch, mark_, static_cast<std::size_t>(scratch_bytes_));
    for (std::size_t i = inputs_; i < tensors_.size(); ++i) {
      std::memset(addresses.at(tensors_[i].name), 0xFF, bytes_of(tensors_[i]));
    }
  }

  /// Leaves the answer wrong if another engine used the scratch memory meanwhile.
  void end(const std::map<std::string, void*>& addresses, const std::uint8_t* scratch) const {
    if (std::count(scratch, scratch + scratch_bytes_, mark_) != scratch_bytes_) {
      return;
    }
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<Ort::Value> values;
    std::vector<const char*> names;
    for (const Tensor& tensor : tensors_) {
      values.push_back(Ort::Value::CreateTensor(memory, addresses.at(tensor.name), bytes_of(tensor),
                                                tensor.shape.data(), tensor.shape.size(),
                                                tensor.type));
      names.push_back(tensor.name.c_str());
    }
    session_.Run(Ort::RunOptions{}, names.data(), values.data(), inputs_, names.data() + inputs_,
                 values.data() + inputs_, values.size() - inputs_);
  }

  std::shared_ptr<int> config_;  ///< The config that it was made with, whose user it is.
  Ort::Session& session_;
  const std::vector<Tensor>& tensors_;
  std::size_t inputs_;
  std::int64_t scratch_bytes_;
  static inline std::atomic<std::uint8_t> marks = 0;
  const std::uint8_t mark_ = ++marks;
  void* scratch_ = nullptr;
  void* owned_ = nullptr;
  std::shared_ptr<std::map<std::string, void*>> addresses_ =
      std::make_shared<std::map<std::string, void*>>();
  ProfilingVerbosity verbosity_ = ProfilingVerbosity::kDETAILED;
  bool ran_ = false;
};

class ICudaEngine : InContext {
 public:
  ICudaEngine(const Ort::Env& env, const void* plan, std::size_t size)
      : InContext("an engine"),
        session_(env, plan, size, options()),
        plan_(mrcfa::sha256({static_cast<const char*>(plan), size})) {
    Ort::AllocatorWithDefaultOptions allocator;
    for (std::size_t i = 0; i < session_.GetInputCount(); ++i) {
      add(session_.GetInputNameAllocated(i, allocator).get(), session_.GetInputTypeInfo(i));
    }
    inputs_ = tensors_.size();
    for (std::size_t i = 0; i < session_.GetOutputCount(); ++i) {
      add(session_.GetOutputNameAllocated(i, allocator).get(), session_.GetOutputTypeInfo(i));
    }
  }

  int getNbIOTensors() const { return static_cast<int>(tensors_.size()); }
  const char* getIOTensorName(int index) const {
    return tensors_[static_cast<std::size_t>(index)].name.c_str();
  }

  DataType getTensorDataType(const char* name) const {
    switch (find(name).type) {
      case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
        return DataType::kFLOAT;
      case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
        return DataType::kHALF;
      case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
        return DataType::kINT32;
      default:
        return DataType::kUINT8;
    }
  }

  Dims getTensorShape(const char* name) const {
    const auto& shape = find(name).shape;
    Dims made{static_cast<int>(shape.size()), {}};
    std::copy(shape.begin(), shape.end(), made.d);
    return made;
  }

  std::int64_t getDeviceMemorySizeV2() const {
    return static_cast<std::int64_t>(1000 * tensors_.size());
  }

  IExecutionContext* createExecutionContext(
      ExecutionContextAllocationStrategy strategy = ExecutionContextAllocationStrategy::kSTATIC) {
    compile(nullptr);
    return new IExecutionContext(session_, tensors_, inputs_, getDeviceMemorySizeV2(), strategy);
  }

#ifdef FAKE_RTX
  IRuntimeConfig* createRuntimeConfig() { return new IRuntimeConfig; }
  IExecutionContext* createExecutionContext(IRuntimeConfig* config) {
    compile(config->cache == nullptr ? nullptr : &config->cache->plans);
    return new IExecutionContext(session_, tensors_, inputs_, getDeviceMemorySizeV2(),
                                 config->strategy, config->users);
  }
#endif

 private:
  /// Notes a compilation, unless the plan was compiled before.
  void compile(std::set<std::string>* before) const {
    const char* told = std::getenv("FAKE_RTX_COMPILED");
    if (before == nullptr || before->insert(plan_).second) {
      if (told != nullptr) {
        std::ofstream(told, std::ios::app) << plan_ << "\n";
      }
    }
  }

  static Ort::SessionOptions options() {
    Ort::SessionOptions made;
    made.SetIntraOpNumThreads(1);
    return made;
  }

  void add(const char* name, const Ort::TypeInfo& info) {
    const auto tensor = info.GetTensorTypeAndShapeInfo();
    tensors_.push_back({name, tensor.GetElementType(), tensor.GetShape()});
  }

  const Tensor& find(const std::string& name) const {
    for (const Tensor& tensor : tensors_) {
      if (tensor.name == name) {
        return tensor;
      }
    }
    std::abort();
  }

  Ort::Session session_;
  std::string plan_;
  std::vector<Tensor> tensors_;
  std::size_t inputs_ = 0;
};

class IRuntime : InContext {
 public:
  explicit IRuntime(ILogger& logger) : InContext("a runtime"), logger_(logger) {}

  void setEngineHostCodeAllowed(bool) {}
  IPluginRegistry& getPluginRegistry() { return registry_; }

  ICudaEngine* deserializeCudaEngine(const void* plan, std::size_t size) {
    try {
      return new ICudaEngine(env_, plan, size);
    } catch (const Ort::Exception&) {
      logger_.log(ILogger::Severity::kERROR, "the plan's version tag is wrong");
      return nullptr;
    }
  }

 private:
  ILogger& logger_;
  IPluginRegistry registry_;
  Ort::Env env_{ORT_LOGGING_LEVEL_FATAL};
};

inline IRuntime* createInferRuntime(ILogger& logger) {
  if (fake::set("FAKE_TENSORRT_NULL")) {
    logger.log(ILogger::Severity::kERROR, "CUDA initialization failure with error: 35");
    return nullptr;
  }
  return new IRuntime(logger);
}

}  // namespace nvinfer1

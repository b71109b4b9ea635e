// TensorRT made of ONNX Runtime, for tests: a "plan" is an ONNX file, so the backend's handling of
// state, addresses and graphs can be compared with ONNX Runtime's masks bit by bit.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cuda_runtime_api.h"

inline int getInferLibMajorVersion() {
  return 10;
}
inline int getInferLibMinorVersion() {
  return 3;
}
inline int getInferLibPatchVersion() {
  return 0;
}

namespace nvinfer1 {

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

class IExecutionContext {
 public:
  IExecutionContext(Ort::Session& session, const std::vector<Tensor>& tensors, std::size_t inputs)
      : session_(session), tensors_(tensors), inputs_(inputs) {}

  bool setTensorAddress(const char* name, void* address) {
    addresses_[name] = address;
    return true;
  }

  bool enqueueV3(cudaStream_t stream) {
    // The first run sets the context up, which a capture forbids.
    if (stream->capturing && !std::exchange(ran_, true)) {
      return false;
    }
    ran_ = true;
    stream->queued.push_back([this, addresses = addresses_] { run(addresses); });
    return true;
  }

 private:
  void run(const std::map<std::string, void*>& addresses) {
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<Ort::Value> values;
    std::vector<const char*> names;
    for (const Tensor& tensor : tensors_) {
      std::size_t bytes = tensor.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8     ? 1
                          : tensor.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 ? 2
                                                                                 : 4;
      for (const std::int64_t length : tensor.shape) {
        bytes *= static_cast<std::size_t>(length);
      }
      values.push_back(Ort::Value::CreateTensor(memory, addresses.at(tensor.name), bytes,
                                                tensor.shape.data(), tensor.shape.size(),
                                                tensor.type));
      names.push_back(tensor.name.c_str());
    }
    session_.Run(Ort::RunOptions{}, names.data(), values.data(), inputs_, names.data() + inputs_,
                 values.data() + inputs_, values.size() - inputs_);
  }

  Ort::Session& session_;
  const std::vector<Tensor>& tensors_;
  std::size_t inputs_;
  std::map<std::string, void*> addresses_;
  bool ran_ = false;
};

class ICudaEngine {
 public:
  ICudaEngine(const Ort::Env& env, const void* plan, std::size_t size)
      : session_(env, plan, size, options()) {
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

  IExecutionContext* createExecutionContext() {
    return new IExecutionContext(session_, tensors_, inputs_);
  }

 private:
  static Ort::SessionOptions options() {
    Ort::SessionOptions made;
    made.SetIntraOpNumThreads(2);
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
  std::vector<Tensor> tensors_;
  std::size_t inputs_ = 0;
};

class IRuntime {
 public:
  explicit IRuntime(ILogger& logger) : logger_(logger) {}

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
  return new IRuntime(logger);
}

}  // namespace nvinfer1

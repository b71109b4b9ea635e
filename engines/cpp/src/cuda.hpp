// What the TensorRT backend needs of CUDA, as objects that clean up after themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

#include "mrcfa.hpp"

namespace mrcfa::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw Error(std::string("the GPU failed to ") + what + ": " + cudaGetErrorString(status));
  }
}

/// Makes a GPU the thread's current one for a while: a stream may be handed to any thread. A GPU
/// that cannot be had fails at the next call that is checked, so this is good in destructors too.
class OnDevice {
 public:
  explicit OnDevice(int device) noexcept {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<void, Free>;

inline DeviceMemory zeros(std::size_t bytes, cudaStream_t stream) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "give memory");
  DeviceMemory made(memory);
  check(cudaMemsetAsync(memory, 0, bytes, stream), "clear memory");
  return made;
}

struct Destroy {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

/// Does not wait for the legacy default stream, on which nothing can be captured.
inline Owned<cudaStream_t> new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  return Owned<cudaStream_t>(stream);
}

/// What `work` queues on `stream`, as one graph; none if something in it cannot be captured.
template <class Work>
Owned<cudaGraphExec_t> captured(cudaStream_t stream, Work work) {
  // Thread-local: other threads may go on allocating memory meanwhile.
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture a graph");
  bool queued = true;
  try {
    work();
  } catch (const Error&) {
    queued = false;
  }
  cudaGraph_t graph = nullptr;
  const bool ended = cudaStreamEndCapture(stream, &graph) == cudaSuccess;
  const Owned<cudaGraph_t> owner(graph);
  cudaGraphExec_t made = nullptr;
  if (!queued || !ended || cudaGraphInstantiateWithFlags(&made, graph, 0) != cudaSuccess) {
    cudaGetLastError();  // a failure here is an answer, and must not surface in a later call
    return nullptr;
  }
  return Owned<cudaGraphExec_t>(made);
}

}  // namespace mrcfa::cuda

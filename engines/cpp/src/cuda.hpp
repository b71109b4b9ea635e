// What the TensorRT backend needs of CUDA, as objects that clean up after themselves. All of it
// works in the context that is current.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "mrcfa.hpp"

namespace mrcfa::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) {
    return;
  }
  const std::string failure = std::string("failed to ") + what + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) {
    throw Error("the GPU " + failure + "; nvidia-smi shows who holds its memory");
  }
  throw Error(
      "the GPU stopped working (it " + failure +
      "), and what ran on it is lost; look for the reason in the system's log (dmesg), then "
      "start the program anew");
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<void, Free>;

inline DeviceMemory device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "give memory");
  return DeviceMemory(memory);
}

struct FreeHost {
  void operator()(std::uint8_t* memory) const { cudaFreeHost(memory); }
};
/// Host memory that the GPU copies from and to by itself; other memory passes through a buffer of
/// the driver, which holds up the thread.
using PinnedMemory = std::unique_ptr<std::uint8_t, FreeHost>;

inline PinnedMemory pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "give host memory");
  return PinnedMemory(static_cast<std::uint8_t*>(memory));
}

struct Destroy {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
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

inline Owned<cudaEvent_t> new_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  return Owned<cudaEvent_t>(event);
}

/// What was queued on the stream before is done once the event is reached.
inline void record(const Owned<cudaEvent_t>& event, cudaStream_t stream) {
  check(cudaEventRecord(event.get(), stream), "run the engines");
}

/// What is queued on the stream from now on waits for the event.
inline void wait(cudaStream_t stream, const Owned<cudaEvent_t>& event) {
  check(cudaStreamWaitEvent(stream, event.get(), 0), "run the engines");
}

/// What `work` queues on `stream`, as one graph; an Error if something in it cannot be captured,
/// which changes nothing else.
template <class Work>
Owned<cudaGraphExec_t> captured(cudaStream_t stream, Work work) {
  // Thread-local: other threads may go on allocating memory meanwhile.
  cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  std::string failure;
  cudaGraph_t graph = nullptr;
  if (status == cudaSuccess) {
    try {
      work();
    } catch (const Error& error) {
      failure = error.what();
    }
    status = cudaStreamEndCapture(stream, &graph);
  }
  const Owned<cudaGraph_t> owner(graph);
  cudaGraphExec_t made = nullptr;
  if (status == cudaSuccess && failure.empty()) {
    status = cudaGraphInstantiateWithFlags(&made, graph, 0);
  }
  if (status != cudaSuccess || !failure.empty()) {
    cudaGetLastError();  // a failure here is an answer, and must not surface in a later call
    throw Error(failure.empty() ? cudaGetErrorString(status) : failure);
  }
  return Owned<cudaGraphExec_t>(made);
}

}  // namespace mrcfa::cuda

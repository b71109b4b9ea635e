// Objects for CUDA's memory, streams, events and graphs that free themselves. All of them work in
// the context that is current.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "failure.hpp"
#include "mrcfa.hpp"
#include "recording.hpp"

namespace mrcfa::cuda {

/// Throws an Error that names the call and says what its failure means for the work.
inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) {
    throw Error(explained(status, call, cudaGetErrorName(status)));
  }
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<void, Free>;

inline DeviceMemory device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  return DeviceMemory(memory);
}

struct FreeHost {
  void operator()(std::uint8_t* memory) const { cudaFreeHost(memory); }
};
/// Host memory that the GPU reads and writes by itself. Other memory passes through a buffer of the
/// driver, which blocks the thread.
using PinnedMemory = std::unique_ptr<std::uint8_t, FreeHost>;

inline PinnedMemory pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
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

/// A stream that does not wait for the legacy default stream, which cannot be captured.
inline Owned<cudaStream_t> new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return Owned<cudaStream_t>(stream);
}

inline Owned<cudaEvent_t> new_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Owned<cudaEvent_t>(event);
}

/// Records the event: it is reached once all work that is in the stream now is done.
inline void record(const Owned<cudaEvent_t>& event, cudaStream_t stream) {
  check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
}

/// Lets later work of the stream wait for the event; the host does not wait.
inline void wait(cudaStream_t stream, const Owned<cudaEvent_t>& event) {
  check(cudaStreamWaitEvent(stream, event.get(), 0), "cudaStreamWaitEvent");
}

/// A graph of the work that `work` queues on `stream`. An Error if any of it cannot be captured, or
/// if the graph is empty: CUDA would launch it, and buffers would keep old results. Nothing is
/// queued then.
template <class Work>
Owned<cudaGraphExec_t> captured(cudaStream_t stream, Work work) {
  const Undisturbed undisturbed;
  // Thread-local, so that other threads may allocate memory meanwhile.
  cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  const char* call = "cudaStreamBeginCapture";
  std::string failure;
  cudaGraph_t graph = nullptr;
  if (status == cudaSuccess) {
    try {
      work();
    } catch (const Error& error) {
      failure = error.what();
    }
    status = cudaStreamEndCapture(stream, &graph);
    call = "cudaStreamEndCapture";
  }
  const Owned<cudaGraph_t> owner(graph);
  std::size_t nodes = 0;
  if (status == cudaSuccess && failure.empty()) {
    status = cudaGraphGetNodes(graph, nullptr, &nodes);
    call = "cudaGraphGetNodes";
    if (status == cudaSuccess && nodes == 0) {
      failure = "CUDA recorded an empty graph";
    }
  }
  cudaGraphExec_t made = nullptr;
  if (status == cudaSuccess && failure.empty()) {
    status = cudaGraphInstantiateWithFlags(&made, graph, 0);
    call = "cudaGraphInstantiate";
  }
  if (status != cudaSuccess || !failure.empty()) {
    cudaGetLastError();  // this failure is handled, and must not surface in a later call
    throw Error(failure.empty() ? explained(status, call, cudaGetErrorName(status)) : failure);
  }
  return Owned<cudaGraphExec_t>(made);
}

}  // namespace mrcfa::cuda

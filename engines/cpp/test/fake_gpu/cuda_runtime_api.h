// A GPU made of the CPU, for tests: "device" memory is the heap, work waits in its stream until
// somebody waits for it, and a graph replays what was captured with the addresses of that time. So
// state that does not swap, a graph of the other parity and a mask read too early all change the
// numbers.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation = 2, cudaErrorNoDevice = 100 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
constexpr unsigned cudaStreamNonBlocking = 1;

using FakeWork = std::vector<std::function<void()>>;
struct FakeStream {
  bool capturing = false;
  FakeWork queued;
  FakeWork before;  ///< What was queued before the capture began, which goes on meanwhile.
};
using cudaStream_t = FakeStream*;
struct FakeGraph {
  FakeWork work;
};
using cudaGraph_t = FakeGraph*;
struct FakeGraphExec {
  FakeWork work;
};
using cudaGraphExec_t = FakeGraphExec*;

struct cudaDeviceProp {
  char name[256];
  int major, minor;
};

inline const char* cudaGetErrorString(cudaError_t) {
  return "no CUDA-capable device is detected";
}
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = std::getenv("FAKE_GPU_ABSENT") == nullptr ? 1 : 0;
  return *count == 1 ? cudaSuccess : cudaErrorNoDevice;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"Fake RTX", 7, 5};
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes,
                                   cudaStream_t stream) {
  stream->queued.push_back([=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice) {  // pageable memory is free to change after the call
    const auto* begin = static_cast<const char*>(from);
    stream->queued.push_back([to, staged = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(to, staged.data(), staged.size());
    });
  } else {
    stream->queued.push_back([=] { std::memcpy(to, from, bytes); });
  }
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new FakeStream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  for (const auto& work : std::exchange(stream->queued, {})) {
    work();
  }
  return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->before = std::exchange(stream->queued, {});
  stream->capturing = true;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = new FakeGraph{std::exchange(stream->queued, std::move(stream->before))};
  stream->capturing = false;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                                 unsigned long long) {
  if (std::getenv("FAKE_GPU_NO_GRAPHS") != nullptr) {
    return cudaErrorMemoryAllocation;
  }
  *made = new FakeGraphExec{graph->work};
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  stream->queued.insert(stream->queued.end(), graph->work.begin(), graph->work.end());
  return cudaSuccess;
}

// A GPU made of the CPU, for tests. "Device" memory is the heap, which holds NaNs at first, work
// waits in its stream, and a graph replays captured work with the addresses of the capture. So
// state that does not swap, or a graph of the other buffer index, changes the numbers.
//
// Environment variables make it fail: FAKE_GPU_ABSENT, FAKE_GPU_COUNT, FAKE_GPU_OLD_DRIVER,
// FAKE_GPU_LOST_AFTER (that many frames from the host), FAKE_GPU_ERROR (the code of calls after
// that, 719 by default), FAKE_GPU_BUSY, FAKE_GPU_NO_GRAPHS (begin, end, empty, instantiate, capturable).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <utility>

#include "cuda.h"
#include "fake_streams.h"

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorNoDevice = 100,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureInvalidated = 901
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDisableTiming = 2;
constexpr unsigned cudaHostAllocDefault = 0;
constexpr unsigned long long cudaEnableDefault = 0;

struct cudaDeviceProp {
  char name[256];
  int major, minor;
};

namespace fake {

inline std::map<const void*, std::pair<CUcontext, std::size_t>> device_memory;
inline std::map<const void*, std::pair<CUcontext, std::size_t>> pinned_memory;
inline std::atomic<int> pageable_copies = 0;
inline std::atomic<int> frames = 0;

inline bool lost() {
  const char* after = std::getenv("FAKE_GPU_LOST_AFTER");
  return after != nullptr && frames > std::atoi(after);
}

inline cudaError_t status() {
  const char* error = std::getenv("FAKE_GPU_ERROR");
  return !lost()            ? cudaSuccess
         : error == nullptr ? cudaErrorLaunchFailure
                            : static_cast<cudaError_t>(std::atoi(error));
}

inline void* allocated(decltype(device_memory)& where, std::size_t bytes) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  void* memory = std::memset(std::malloc(bytes), 0xFF, bytes);
  where[memory] = {context(), bytes};
  return memory;
}

inline void release(decltype(device_memory)& where, void* memory, const char* what) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  freed_in(where.at(memory).first, what);
  where.erase(memory);
  std::free(memory);
}

inline bool pinned(const void* memory) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  return pinned_memory.count(memory) > 0;
}

template <class Handle>
cudaError_t destroyed(Handle* handle, const char* what) {
  freed_in(handle->context, what);
  delete handle;
  return status();
}

}  // namespace fake

inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    default:
      return "no CUDA-capable device is detected";
  }
}
inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorDevicesUnavailable:
      return "cudaErrorDevicesUnavailable";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "unrecognized error code";
  }
}
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = fake::set("FAKE_GPU_ABSENT") ? 0 : fake::set("FAKE_GPU_OLD_DRIVER") ? 12040 : 13000;
  return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake::set("FAKE_GPU_OLD_DRIVER") ? 0 : fake::count();
  return *count > 0                         ? cudaSuccess
         : fake::set("FAKE_GPU_OLD_DRIVER") ? cudaErrorInsufficientDriver
                                            : cudaErrorNoDevice;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = fake::current() == nullptr ? 0 : fake::current()->device;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  if (fake::current() != nullptr) {
    fake::stack.pop_back();
  }
  fake::stack.push_back(fake::started(device));
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"Fake RTX", 7, 5};
  return cudaSuccess;
}
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** address, unsigned,
                                                    unsigned long long,
                                                    cudaDriverEntryPointQueryResult* found) {
  static const std::map<std::string, void*> functions = {
      {"cuDeviceGet", reinterpret_cast<void*>(&cuDeviceGet)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(&cuCtxGetCurrent)},
      {"cuCtxGetDevice", reinterpret_cast<void*>(&cuCtxGetDevice)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&cuCtxPushCurrent)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&cuCtxPopCurrent)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&cuDevicePrimaryCtxRetain)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(&cuDevicePrimaryCtxRelease)}};
  *address = functions.at(name);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = fake::lost() ? nullptr : fake::allocated(fake::device_memory, bytes);
  return fake::status();
}
inline cudaError_t cudaFree(void* memory) {
  fake::release(fake::device_memory, memory, "device memory");
  return fake::status();
}
inline cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = fake::lost() ? nullptr : fake::allocated(fake::pinned_memory, bytes);
  return fake::status();
}
inline cudaError_t cudaFreeHost(void* memory) {
  fake::release(fake::pinned_memory, memory, "pinned memory");
  return fake::status();
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const std::lock_guard<std::recursive_mutex> lock(fake::guard);
  const auto found = fake::device_memory.find(memory);
  *attributes = found == fake::device_memory.end()
                    ? cudaPointerAttributes{cudaMemoryTypeUnregistered, -1}
                    : cudaPointerAttributes{cudaMemoryTypeDevice, found->second.first->device};
  return fake::status();
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes,
                                   cudaStream_t stream) {
  fake::queue(stream, {[=] { std::memset(memory, value, bytes); }});
  return fake::status();
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t stream) {
  fake::frames += kind == cudaMemcpyHostToDevice ? 1 : 0;
  const void* host = kind == cudaMemcpyHostToDevice ? from : to;
  if (kind != cudaMemcpyDeviceToDevice && !fake::pinned(host)) {
    ++fake::pageable_copies;
  }
  if (kind == cudaMemcpyHostToDevice && !fake::pinned(from)) {  // free to change after the call
    const auto* begin = static_cast<const char*>(from);
    fake::queue(stream, {[to, staged = std::vector<char>(begin, begin + bytes)] {
                  std::memcpy(to, staged.data(), staged.size());
                }});
  } else {
    fake::queue(stream, {[=] { std::memcpy(to, from, bytes); }});
  }
  return fake::status();
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard<std::recursive_mutex> lock(fake::guard);
  *stream = fake::lost() ? nullptr : *fake::streams.insert(new FakeStream).first;
  return fake::status();
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(fake::guard);
  if (!stream->queued.empty() && !fake::lost() && std::uncaught_exceptions() == 0) {
    fake::fail("a stream is destroyed while its work is under way");
  }
  fake::streams.erase(stream);
  return fake::destroyed(stream, "a stream");
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (fake::lost()) {
    return fake::status();
  }
  fake::work_until(stream, [=] { return stream->queued.empty(); });
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = fake::lost() ? nullptr : new FakeEvent;
  return fake::status();
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return fake::destroyed(event, "an event");
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(fake::guard);
  const auto times = event->times;
  const unsigned time = ++times->recorded;
  times->stream = stream;
  fake::queue(stream, {[times, time] { times->reached = time; }});
  return fake::status();
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard<std::recursive_mutex> lock(fake::guard);
  fake::queue(stream, {[] {}, event->times, event->times->recorded});
  return fake::status();
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!fake::lost()) {
    fake::work_until(event->times->stream, [times = event->times, time = event->times->recorded] {
      return times->reached >= time;
    });
  }
  return fake::status();
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (fake::set("FAKE_GPU_NO_GRAPHS", "begin")) {
    return cudaErrorStreamCaptureInvalidated;
  }
  {
    const std::lock_guard<std::recursive_mutex> lock(fake::guard);
    stream->before = std::exchange(stream->queued, {});
    stream->capturing = true;
    stream->spoilt = false;
  }
  if (const auto work = std::exchange(fake::meanwhile, nullptr)) {
    work();
  }
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard<std::recursive_mutex> lock(fake::guard);
  FakeWork work = std::exchange(stream->queued, std::move(stream->before));
  stream->capturing = false;
  if (stream->spoilt || fake::set("FAKE_GPU_NO_GRAPHS", "end")) {
    *graph = nullptr;
    return cudaErrorStreamCaptureInvalidated;
  }
  *graph = new FakeGraph{fake::set("FAKE_GPU_NO_GRAPHS", "empty") ? FakeWork() : std::move(work)};
  return cudaSuccess;
}
inline cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void** /*nodes*/, std::size_t* count) {
  *count = graph->work.size();
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                                 unsigned long long) {
  if (fake::set("FAKE_GPU_NO_GRAPHS", "instantiate")) {
    return cudaErrorMemoryAllocation;
  }
  *made = new FakeGraphExec{{}, graph->work};
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return fake::destroyed(graph, "a graph");
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const FakeStep& step : graph->work) {
    fake::queue(stream, step);
  }
  return fake::status();
}

// The driver's contexts, for tests. Each GPU has a primary context, and each thread a stack of
// contexts, as in CUDA. Objects of a context may be freed only while it is current. Otherwise the
// process ends, as it sometimes does with TensorRT.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

enum CUresult {
  CUDA_SUCCESS,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709
};
using CUdevice = int;
struct CUctx_st {
  int device = 0;
  int users = 0;         ///< The users of a primary context, which lives as long as it has any.
  bool started = false;  ///< True if it ever lived.
};
using CUcontext = CUctx_st*;

namespace fake {

inline std::recursive_mutex guard;
inline std::vector<CUctx_st> primaries(8);
inline thread_local std::vector<CUcontext> stack;

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "FakeGpu: %s\n", what.c_str());
  std::abort();
}

inline bool set(const char* variable, const char* value = nullptr) {
  const char* found = std::getenv(variable);
  return found != nullptr && (value == nullptr || std::string(found) == value);
}

inline int count() {
  const char* wanted = std::getenv("FAKE_GPU_COUNT");
  return set("FAKE_GPU_ABSENT") ? 0 : wanted != nullptr ? std::atoi(wanted) : 1;
}

inline CUcontext current() {
  return stack.empty() ? nullptr : stack.back();
}

inline bool alive(CUcontext context) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  return context != nullptr && context->users > 0;
}

inline CUcontext started(int device) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  CUctx_st& primary = primaries[static_cast<std::size_t>(device)];
  primary.device = device;
  primary.started = true;
  ++primary.users;
  return &primary;
}

/// The context of a call. If none is current, CUDA starts the primary context of the thread's GPU,
/// which is 0 by default.
inline CUcontext context() {
  if (current() == nullptr) {
    stack.push_back(started(0));
  }
  return current();
}

/// Checks that the context of an object that is freed is current.
inline void freed_in(CUcontext owner, const char* what) {
  if (!alive(owner)) {
    fail(std::string(what) + " is freed after its context");
  }
  if (current() != owner) {
    fail(std::string(what) + " is freed while another context is current, or none");
  }
}

/// A context of the caller's own, as cuCtxCreate makes it.
struct OwnContext {
  explicit OwnContext(int device) : context{device, 1, true} { stack.push_back(&context); }
  void destroy() {
    const std::lock_guard<std::recursive_mutex> lock(guard);
    context.users = 0;
  }
  CUctx_st context;
};

}  // namespace fake

inline CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < fake::count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
inline CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = fake::current();
  return CUDA_SUCCESS;
}
inline CUresult cuCtxGetDevice(CUdevice* device) {
  if (fake::current() == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *device = fake::current()->device;
  return CUDA_SUCCESS;
}
inline CUresult cuCtxPushCurrent(CUcontext context) {
  if (!fake::alive(context)) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  fake::stack.push_back(context);
  return CUDA_SUCCESS;
}
inline CUresult cuCtxPopCurrent(CUcontext* context) {
  if (fake::stack.empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = fake::stack.back();
  fake::stack.pop_back();
  return CUDA_SUCCESS;
}
inline CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (fake::set("FAKE_GPU_BUSY")) {
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  *context = fake::started(device);
  return CUDA_SUCCESS;
}
inline CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  const std::lock_guard<std::recursive_mutex> lock(fake::guard);
  --fake::primaries[static_cast<std::size_t>(device)].users;
  return CUDA_SUCCESS;
}

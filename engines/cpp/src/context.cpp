#include "context.hpp"

#include <cuda_runtime_api.h>

#include <string>

#include "bundle.hpp"

namespace mrcfa::cuda {
namespace {

/// The form that the functions have in CUDA 12.0; later forms take other arguments.
[[maybe_unused]] constexpr unsigned kAbi = 12000;

/// Finds a function of the driver by name. A program that links the driver instead does not start
/// on machines without one.
template <class Function>
void find(const char* name, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &address, kAbi, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    throw Unfit(std::string("the CUDA driver has no ") + name + "; update NVIDIA's driver");
  }
  function = reinterpret_cast<Function>(address);
}

struct Driver {
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuCtxGetCurrent) get_current = nullptr;
  decltype(&cuCtxGetDevice) get_device = nullptr;
  decltype(&cuCtxPushCurrent) push_current = nullptr;
  decltype(&cuCtxPopCurrent) pop_current = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) release = nullptr;

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

 private:
  Driver() {
    find("cuDeviceGet", device_get);
    find("cuCtxGetCurrent", get_current);
    find("cuCtxGetDevice", get_device);
    find("cuCtxPushCurrent", push_current);
    find("cuCtxPopCurrent", pop_current);
    find("cuDevicePrimaryCtxRetain", retain);
    find("cuDevicePrimaryCtxRelease", release);
  }
};

/// Throws Unfit if the device cannot be used. The runtime's errors have the driver's numbers.
void check_usable(CUresult result, const char* call, int device) {
  if (result != CUDA_SUCCESS) {
    throw Unfit("GPU " + std::to_string(device) + " cannot be used: CUDA's " + call +
                " failed: " + cudaGetErrorName(static_cast<cudaError_t>(result)));
  }
}

}  // namespace

Context::Context(int device) {
  const Driver& driver = Driver::get();
  check_usable(driver.device_get(&device_, device), "cuDeviceGet", device);
  CUdevice other = 0;
  driver.get_current(&context_);
  if (context_ == nullptr || driver.get_device(&other) != CUDA_SUCCESS || other != device_) {
    check_usable(driver.retain(&context_, device_), "cuDevicePrimaryCtxRetain", device);
    retained_ = true;
  }
}

Context::~Context() {
  if (retained_) {
    Driver::get().release(device_);
  }
}

bool Context::push() const noexcept {
  return Driver::get().push_current(context_) == CUDA_SUCCESS;
}

void Context::pop() const noexcept {
  CUcontext popped = nullptr;
  Driver::get().pop_current(&popped);
}

Current::Current(const Context& context) : context_(context) {
  if (!context.push()) {
    throw Error(
        "the CUDA context that this stream was opened in is gone; destroy streams before their "
        "context");
  }
}

}  // namespace mrcfa::cuda

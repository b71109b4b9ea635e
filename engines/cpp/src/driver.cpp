#include "driver.hpp"

#include <dlfcn.h>

namespace mrcfa {
namespace {

/// A function of the driver, or null. The driver is never closed: it does not like to go while its
/// process stays.
template <class Function>
Function* found(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace

int count_gpus() {
  const auto init = found<int(unsigned)>("cuInit");
  const auto count = found<int(int*)>("cuDeviceGetCount");
  int gpus = 0;
  const bool works = init != nullptr && count != nullptr && init(0) == 0 && count(&gpus) == 0;
  return works ? gpus : 0;
}

std::optional<int> current_gpu() {
  const auto get_current = found<int(void**)>("cuCtxGetCurrent");
  const auto get_device = found<int(int*)>("cuCtxGetDevice");
  void* context = nullptr;
  int device = 0;
  if (get_current == nullptr || get_device == nullptr || get_current(&context) != 0 ||
      context == nullptr || get_device(&device) != 0) {
    return std::nullopt;
  }
  return device;
}

}  // namespace mrcfa

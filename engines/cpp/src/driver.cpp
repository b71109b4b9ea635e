#include "driver.hpp"

#include <dlfcn.h>

namespace mrcfa {

int count_gpus() {
  // Never closed: the driver does not like to go while its process stays.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return 0;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int found = 0;
  const bool works = init != nullptr && count != nullptr && init(0) == 0 && count(&found) == 0;
  return works ? found : 0;
}

}  // namespace mrcfa

// The fake GPU's answers to the questions of src/driver.hpp.
#include "driver.hpp"

#include "cuda.h"

namespace mrcfa {

int count_gpus() {
  return fake::set("FAKE_GPU_OLD_DRIVER") ? 1 : fake::count();
}

std::optional<int> current_gpu() {
  return fake::current() == nullptr ? std::nullopt : std::optional(fake::current()->device);
}

}  // namespace mrcfa

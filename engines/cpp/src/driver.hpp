// Questions to the CUDA driver that need none of CUDA's libraries.
#pragma once

#include <optional>

namespace mrcfa {

/// The number of GPUs that the driver sees; 0 without a driver.
int count_gpus();

/// The index of the GPU whose CUDA context is current in this thread, if one is.
std::optional<int> current_gpu();

}  // namespace mrcfa

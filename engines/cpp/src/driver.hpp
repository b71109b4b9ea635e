// The CUDA driver, asked without any of CUDA's libraries.
#pragma once

namespace mrcfa {

/// How many GPUs the driver sees; 0 without a driver.
int count_gpus();

}  // namespace mrcfa

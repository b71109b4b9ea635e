// What an error of CUDA means for the work. Python: `Failure` in mrcfa/backends/cuda_context.py;
// the cases of tests/golden/cuda_errors.json try both.
#pragma once

#include <cstdint>
#include <string>

namespace mrcfa::cuda {

enum class Failure : std::uint8_t {
  memory,   ///< No memory is left.
  context,  ///< The CUDA context is gone.
  gpu,      ///< The GPU stopped working: every further call of the process fails.
  call,     ///< Only this call failed.
};

/// The meaning of an error by its number, which is the same in CUDA's driver and runtime. Numbers,
/// because older headers lack the newer names.
Failure failure_of(int code);

/// The sentence about a call that failed: what it means for the work, and the remedy.
std::string explained(int code, const std::string& call, const std::string& error_name);

}  // namespace mrcfa::cuda

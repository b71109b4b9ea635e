#include "failure.hpp"

namespace mrcfa::cuda {

Failure failure_of(int code) {
  switch (code) {
    case 2:  // out of memory
      return Failure::memory;
    case 4:    // deinitialized, or the runtime is unloading
    case 201:  // invalid context
    case 709:  // context is destroyed
      return Failure::context;
    case 100:  // no device
    case 214:  // ECC, uncorrectable
    case 220:  // NVLink, uncorrectable
    case 226:  // contained
    case 700:  // illegal address
    case 702:  // launch timeout
    case 710:  // assert
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failed
    case 721:  // tensor memory leak
    case 810:  // MPS client terminated
    case 911:  // external device
    case 999:  // unknown
      return Failure::gpu;
    default:
      return Failure::call;
  }
}

std::string explained(int code, const std::string& call, const std::string& error_name) {
  const std::string failed = "CUDA's " + call + " failed: " + error_name;
  switch (failure_of(code)) {
    case Failure::memory:
      return "no memory is left (" + failed + "); nvidia-smi shows which processes hold the GPU's";
    case Failure::context:
      return "the CUDA context that this stream was opened in is gone (" + failed +
             "); destroy streams before their context";
    case Failure::gpu:
      return "the GPU stopped working (" + failed +
             "), and what ran on it is lost; look for the reason in the system's log (dmesg), "
             "then start the program anew";
    default:
      return failed;
  }
}

}  // namespace mrcfa::cuda

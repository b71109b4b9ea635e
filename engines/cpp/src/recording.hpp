// The lock under which a CUDA graph is recorded.
#pragma once

#include <mutex>

namespace mrcfa::cuda {

/// Held while a CUDA graph is recorded, and while objects of TensorRT are made or destroyed. These
/// may wait for the whole CUDA context, which ends a recording in any thread.
class Undisturbed {
 public:
  Undisturbed() : lock_(mutex()) {}

 private:
  /// Recursive, because the last lane destroys its engines. Never destroyed, because a stream may
  /// end after everything else of the process.
  static std::recursive_mutex& mutex() {
    // NOLINTNEXTLINE(cppcoreguidelines-*): see above
    static std::recursive_mutex& mutex = *new std::recursive_mutex;
    return mutex;
  }

  std::lock_guard<std::recursive_mutex> lock_;
};

}  // namespace mrcfa::cuda

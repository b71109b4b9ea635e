// The CUDA context in which a bundle's engines live, and how it is made current and left again.
//
// The driver's API is used for contexts. The runtime's `cudaSetDevice` makes a context on the GPU
// that it is given, so restoring the caller's state with it would start one on GPU 0.
#pragma once

#include <cuda.h>

#include <memory>
#include <utility>

#include "recording.hpp"

namespace mrcfa::cuda {

/// The context that is current where this object is made, if it is on that GPU. Otherwise the GPU's
/// primary context, which lives at least as long as this object. Unfit if the GPU cannot be used.
class Context {
 public:
  explicit Context(int device);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  /// Makes it the thread's current context; false if it is gone.
  [[nodiscard]] bool push() const noexcept;
  void pop() const noexcept;

 private:
  CUcontext context_ = nullptr;
  CUdevice device_ = 0;
  bool retained_ = false;
};

/// Makes a context the thread's current one as long as this object lives, because a stream may be
/// handed to any thread. Afterwards the context before it is current again, or none.
class Current {
 public:
  explicit Current(const Context& context);
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() { context_.pop(); }

 private:
  const Context& context_;
};

/// A `T` that is made in the context and destroyed in it, in whichever thread drops it last. The
/// parts that a throwing constructor had made are destroyed in it too. If the context is gone
/// already, so is everything on the GPU, and TensorRT would crash without a context; the object is
/// then never destroyed. Threads wait for each other here, as `Undisturbed` says.
template <class T, class... Arguments>
std::shared_ptr<T> made_in(const std::shared_ptr<const Context>& context,
                           Arguments&&... arguments) {
  const Undisturbed undisturbed;
  const Current current(*context);
  const auto destroy = [context](T* object) noexcept {
    const Undisturbed alone;
    if (context->push()) {
      delete object;
      context->pop();
    }
  };
  return {new T(std::forward<Arguments>(arguments)...), destroy};
}

}  // namespace mrcfa::cuda

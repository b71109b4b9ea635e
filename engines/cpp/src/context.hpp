// The CUDA context in which a bundle's engines live, and how it is made current and left again.
//
// Contexts are the driver's business: the runtime's `cudaSetDevice` makes a context on the GPU that
// it is given, so restoring the caller's state with it would start one on GPU 0.
#pragma once

#include <cuda.h>

#include <memory>
#include <utility>

namespace mrcfa::cuda {

/// The context that is current where this is made, if it is on that GPU, or else the GPU's primary
/// one, which then stays alive as long as this.
class Context {
 public:
  explicit Context(int device);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  /// Whether it is the thread's current one now; not if it has gone.
  [[nodiscard]] bool push() const noexcept;
  void pop() const noexcept;

 private:
  CUcontext context_ = nullptr;
  CUdevice device_ = 0;
  bool retained_ = false;
};

/// Makes a context the thread's current one for a while: a stream may be handed to any thread.
/// Whatever was current before is again afterwards, be it none.
class Current {
 public:
  explicit Current(const Context& context);
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() { context_.pop(); }

 private:
  const Context& context_;
};

/// A `T` that is made in the context, and destroyed in it by whichever thread lets go of it last;
/// what a constructor that throws had made goes in it too. If the context went first it took
/// everything on the GPU along, and TensorRT would crash without it: the rest is left alone then.
template <class T, class... Arguments>
std::shared_ptr<T> made_in(const std::shared_ptr<const Context>& context,
                           Arguments&&... arguments) {
  const Current current(*context);
  const auto destroy = [context](T* object) noexcept {
    if (context->push()) {
      delete object;
      context->pop();
    }
  };
  return {new T(std::forward<Arguments>(arguments)...), destroy};
}

}  // namespace mrcfa::cuda

// What TensorRT complains about, for the sentences of errors.
#pragma once

#include <NvInferRuntime.h>

#include <memory>
#include <string>
#include <type_traits>

namespace mrcfa {

/// TensorRT keeps the first logger of a process for good, so this one is never destroyed. It holds
/// nothing but the first error of each thread, which is the cause of the others.
class Log final : public nvinfer1::ILogger {
 public:
  static Log& get() {
    // NOLINTNEXTLINE(cppcoreguidelines-*): see above
    static Log& log = *new Log;
    return log;
  }

  void log(Severity severity, const char* message) noexcept override {
    if (severity <= Severity::kERROR && first().empty()) {
      first() = message;
    }
  }

  /// What `work` makes; if that is nothing, an error with TensorRT's complaint and the remedy.
  template <class Failure, class Work>
  static auto made(Work work, const std::string& failure, const std::string& remedy = "") {
    forget();
    std::unique_ptr<std::remove_pointer_t<decltype(work())>> result(work());
    if (!result) {
      throw Failure(failure + ": " + complaint() + remedy);
    }
    return result;
  }

  static void forget() { first().clear(); }
  static std::string complaint() { return first().empty() ? "it gives no reason" : first(); }

 private:
  static std::string& first() {
    thread_local std::string message;
    return message;
  }
};

}  // namespace mrcfa

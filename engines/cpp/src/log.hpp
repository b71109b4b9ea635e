// TensorRT's logger, which keeps the first error for the sentences of exceptions.
#pragma once

#include <NvInferRuntime.h>

#include <memory>
#include <string>
#include <type_traits>

namespace mrcfa {

/// The only logger of the process. TensorRT keeps the first one for good, so it is never destroyed.
/// It holds the first error of each thread, which causes the others.
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

  /// The object that `work` makes. If that is null, an error with TensorRT's own words and the
  /// remedy.
  template <class Failure, class Work>
  static auto made(Work work, const std::string& failure, const std::string& remedy = "") {
    clear();
    std::unique_ptr<std::remove_pointer_t<decltype(work())>> result(work());
    if (!result) {
      throw Failure(failure + ": " + first_error() + remedy);
    }
    return result;
  }

  static void clear() { first().clear(); }
  static std::string first_error() { return first().empty() ? "it gives no reason" : first(); }

 private:
  static std::string& first() {
    thread_local std::string message;
    return message;
  }
};

}  // namespace mrcfa

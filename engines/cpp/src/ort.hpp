// ONNX Runtime's C API with objects that release themselves. The C++ API is not used, because only
// the C API can be asked at run time for a version that the library supports.
#pragma once

#include <onnxruntime_c_api.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>

#include "bundle.hpp"

namespace mrcfa::ort {

constexpr int kOldestMinor = 16;
constexpr int kOldestMinorForCuda = 21;  ///< Older releases run ArgMax on the CPU.

struct Release {
  const OrtApi* api = nullptr;

  void operator()(OrtEnv* object) const { api->ReleaseEnv(object); }
  void operator()(OrtSessionOptions* object) const { api->ReleaseSessionOptions(object); }
  void operator()(OrtCUDAProviderOptionsV2* object) const {
    api->ReleaseCUDAProviderOptions(object);
  }
  void operator()(OrtSession* object) const { api->ReleaseSession(object); }
  void operator()(OrtIoBinding* object) const { api->ReleaseIoBinding(object); }
  void operator()(OrtMemoryInfo* object) const { api->ReleaseMemoryInfo(object); }
  void operator()(OrtValue* object) const { api->ReleaseValue(object); }
};

template <class Object>
using Owned = std::unique_ptr<Object, Release>;

/// The C API, with exceptions for errors and with objects that release themselves.
class Api {
 public:
  Api() {
    const OrtApiBase* base = OrtGetApiBase();
    version_ = base->GetVersionString();
    if (version_.rfind("1.", 0) == 0) {
      std::from_chars(version_.data() + 2, version_.data() + version_.size(), minor_);
    }
    check_version(kOldestMinor, "");
    api_ = base->GetApi(static_cast<std::uint32_t>(std::min(minor_, ORT_API_VERSION)));
  }

  const OrtApi* operator->() const { return api_; }

  /// The minor version of the library, which may have fewer functions than the headers.
  [[nodiscard]] int minor() const { return minor_; }

  void check_version(int oldest, const char* purpose) const {
    if (minor_ < oldest) {
      throw Unfit("ONNX Runtime " + version_ + " is too old" + purpose + "; install 1." +
                  std::to_string(oldest) + " or later");
    }
  }

  void check(OrtStatus* status) const {
    if (status != nullptr) {
      const std::string message = api_->GetErrorMessage(status);
      api_->ReleaseStatus(status);
      throw Error(message);
    }
  }

  /// Makes an object; `create` gets the address for it.
  template <class Object, class Create>
  [[nodiscard]] Owned<Object> make(Create create) const {
    Object* made = nullptr;
    check(create(&made));
    return own(made);
  }

  template <class Object>
  [[nodiscard]] Owned<Object> own(Object* object) const {
    return {object, Release{api_}};
  }

  [[nodiscard]] bool has_provider(const std::string& wanted) const {
    char** names = nullptr;
    int count = 0;
    check(api_->GetAvailableProviders(&names, &count));
    const bool found = std::find(names, names + count, wanted) != names + count;
    check(api_->ReleaseAvailableProviders(names, count));
    return found;
  }

 private:
  std::string version_;
  int minor_ = 0;
  const OrtApi* api_ = nullptr;
};

}  // namespace mrcfa::ort

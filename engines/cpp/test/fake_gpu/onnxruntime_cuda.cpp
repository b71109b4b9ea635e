// ONNX Runtime with a CUDA provider made of the CPU, for tests: the real library, apart from the
// functions that name the provider. FAKE_ORT_CUDA is `works`, `broken` (the provider's library does
// not load) or `partly` (the real library decides which nodes the CPU has to run). The settings
// that it gets are written to the file FAKE_ORT_TOLD; FAKE_ORT_VERSION is another version.
#include <dlfcn.h>
#include <onnxruntime_c_api.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

const OrtApi* real = nullptr;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void told(const std::string& key, const std::string& value) {
  std::ofstream(variable("FAKE_ORT_TOLD"), std::ios::app) << key << "=" << value << "\n";
}

OrtStatus* providers(char*** names, int* count) noexcept {
  static std::array<char, 22> cuda = {"CUDAExecutionProvider"};
  static std::array<char, 21> cpu = {"CPUExecutionProvider"};
  static std::array<char*, 2> both = {cuda.data(), cpu.data()};
  *names = both.data();
  *count = 2;
  return nullptr;
}

OrtStatus* release_providers(char**, int) noexcept {
  return nullptr;
}

OrtStatus* create_options(OrtCUDAProviderOptionsV2** options) noexcept {
  static int place = 0;
  *options = reinterpret_cast<OrtCUDAProviderOptionsV2*>(&place);
  return nullptr;
}

void release_options(OrtCUDAProviderOptionsV2*) noexcept {}

OrtStatus* update_options(OrtCUDAProviderOptionsV2*, const char* const* keys,
                          const char* const* values, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    told(keys[i], values[i]);
  }
  return nullptr;
}

OrtStatus* append_cuda(OrtSessionOptions*, const OrtCUDAProviderOptionsV2*) noexcept {
  return variable("FAKE_ORT_CUDA") == "broken"
             ? real->CreateStatus(ORT_FAIL, "libonnxruntime_providers_cuda.so does not load")
             : nullptr;
}

OrtStatus* add_entry(OrtSessionOptions* options, const char* key, const char* value) noexcept {
  told(key, value);
  const bool fallback = key == std::string("session.disable_cpu_ep_fallback");
  return fallback && variable("FAKE_ORT_CUDA") == "works"
             ? nullptr
             : real->AddSessionConfigEntry(options, key, value);
}

OrtStatus* create_memory(const char*, OrtAllocatorType kind, int, OrtMemType memory,
                         OrtMemoryInfo** info) noexcept {
  return real->CreateMemoryInfo("Cpu", kind, 0, memory, info);
}

const OrtApiBase* real_base() {
  using Get = const OrtApiBase* (*)();
  return reinterpret_cast<Get>(dlsym(RTLD_NEXT, "OrtGetApiBase"))();
}

const OrtApi* api(std::uint32_t version) noexcept {
  static OrtApi made;
  real = real_base()->GetApi(version);
  made = *real;
  made.GetAvailableProviders = providers;
  made.ReleaseAvailableProviders = release_providers;
  made.CreateCUDAProviderOptions = create_options;
  made.ReleaseCUDAProviderOptions = release_options;
  made.UpdateCUDAProviderOptions = update_options;
  made.SessionOptionsAppendExecutionProvider_CUDA_V2 = append_cuda;
  made.AddSessionConfigEntry = add_entry;
  made.CreateMemoryInfo = create_memory;
  return &made;
}

const char* version() noexcept {
  static const std::string other = variable("FAKE_ORT_VERSION");
  return other.empty() ? real_base()->GetVersionString() : other.c_str();
}

}  // namespace

const OrtApiBase* OrtGetApiBase() noexcept {
  static const OrtApiBase base = {api, version};
  return &base;
}

#include "webgpu.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "vulkan.hpp"

namespace mrcfa::webgpu {
namespace {

constexpr const char* kVariable = "MRCFA_WEBGPU_LIBRARY";
constexpr const char* kLibrary = "libonnxruntime_providers_webgpu.so";

#if ORT_API_VERSION >= 23

using ort::Api;
using ort::Owned;
using namespace std::string_view_literals;

constexpr int kOldestMinor = 24;
constexpr const char* kSoftware = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER";
/// ONNX files that add a vector of two numbers to itself: `x` -> `y`, in FP32 and FP16.
constexpr std::string_view kOneNode =
    "\x08\x08:5\n\x0e\n\x01x\n\x01x\x12\x01y\"\x03"
    "Add\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x02"
    "b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x02"
    "B\x04\n\x00\x10\x0d"sv;
constexpr std::string_view kFp16Node =
    "\x08\x08:5\n\x0e\n\x01x\n\x01x\x12\x01y\"\x03"
    "Add\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x0a\x12\x04\n\x02\x08\x02"
    "b\x0f\n\x01y\x12\n\n\x08\x08\x0a\x12\x04\n\x02\x08\x02"
    "B\x04\n\x00\x10\x0d"sv;

/// The provider's device, or null if it is not registered or finds no GPU.
const OrtEpDevice* found(const Api& api, const OrtEnv& env) {
  const OrtEpDevice* const* devices = nullptr;
  std::size_t count = 0;
  api.check(api->GetEpDevices(&env, &devices, &count));
  for (std::size_t i = 0; i < count; ++i) {
    if (api->EpDevice_EpName(devices[i]) == std::string("WebGpuExecutionProvider")) {
      return devices[i];
    }
  }
  return nullptr;
}

/// The provider's device. The library is registered once for an environment.
const OrtEpDevice& device(const Api& api, OrtEnv& env) {
  api.check_version(kOldestMinor, " for WebGPU");
  const OrtEpDevice* known = found(api, env);
  if (known != nullptr) {
    return *known;
  }
  const std::filesystem::path path = library();
  if (path.empty()) {
    throw Unfit(std::string("this installation has no WebGPU: there is no ") + kLibrary +
                " beside ONNX Runtime's library; install the wheel onnxruntime-ep-webgpu before "
                "CMake is configured, or name the library in " +
                kVariable);
  }
  OrtStatus* const status =
      api->RegisterExecutionProviderLibrary(&env, "mrcfa-webgpu", path.c_str());
  known = found(api, env);
  try {
    api.check(status);
  } catch (const Error& error) {
    if (known == nullptr) {  // else it was registered already
      throw Unfit("ONNX Runtime does not load " + path.string() + ": " + error.what());
    }
  }
  if (known == nullptr) {
    throw Unfit(std::string("WebGPU finds no GPU here; install the GPU's driver with Vulkan, or "
                            "choose onnxruntime:cpu; a software adapter is used only with ") +
                kSoftware + "=1");
  }
  return *known;
}

/// Runs one node; an Error if it does not run.
void run(const Api& api, OrtEnv& env, std::string_view graph, ONNXTensorElementDataType type,
         std::size_t bytes) {
  const auto settings = api.make<OrtSessionOptions>(
      [&](OrtSessionOptions** out) { return api->CreateSessionOptions(out); });
  api.check(api->SetSessionLogSeverityLevel(settings.get(), ORT_LOGGING_LEVEL_FATAL));
  append(api, env, *settings);
  const auto session = api.make<OrtSession>([&](OrtSession** out) {
    return api->CreateSessionFromArray(&env, graph.data(), graph.size(), settings.get(), out);
  });
  const auto host = api.make<OrtMemoryInfo>([&](OrtMemoryInfo** out) {
    return api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, out);
  });
  std::array<float, 2> content{};
  const std::array<std::int64_t, 1> shape = {2};
  const auto value = api.make<OrtValue>([&](OrtValue** out) {
    return api->CreateTensorWithDataAsOrtValue(host.get(), content.data(), bytes, shape.data(),
                                               shape.size(), type, out);
  });
  const std::array<const char*, 1> inputs = {"x"};
  const std::array<const char*, 1> outputs = {"y"};
  const std::array<const OrtValue*, 1> values = {value.get()};
  const auto answer = api.make<OrtValue>([&](OrtValue** out) {
    return api->Run(session.get(), nullptr, inputs.data(), values.data(), values.size(),
                    outputs.data(), outputs.size(), out);
  });
}

/// `AMD Radeon RX 6600 (RADV NAVI23)` -> `AMD Radeon RX 6600`.
std::string shortened(std::string name) {
  const std::size_t bracket = name.rfind(" (");
  if (bracket != std::string::npos && name.back() == ')') {
    name.erase(bracket);
  }
  const std::string tail = " Device";
  if (name.size() > tail.size() && name.compare(name.size() - tail.size(), tail.size(), tail) == 0) {
    name.erase(name.size() - tail.size());
  }
  return name;
}

#else

Unfit old_headers() {
  return Unfit("this build of mrcfa has no WebGPU, because its headers of ONNX Runtime are those of 1." +
               std::to_string(ORT_API_VERSION) +
               "; build it with those of 1.23 or later (engines/cpp/fetch-headers)");
}

#endif

}  // namespace

std::string Adapter::title() const {
  return software ? name + ", software" : name;
}

std::filesystem::path library() {
  if (const char* named = std::getenv(kVariable); named != nullptr && *named != '\0') {
    return named;
  }
  Dl_info place;
  if (dladdr(reinterpret_cast<const void*>(&OrtGetApiBase), &place) == 0) {
    return {};
  }
  const auto beside = std::filesystem::path(place.dli_fname).parent_path() / kLibrary;
  return std::filesystem::exists(beside) ? beside : std::filesystem::path();
}

Turn turn() {
  static std::recursive_mutex mutex;
  return Turn(mutex);
}

#if ORT_API_VERSION >= 23

void append(const Api& api, OrtEnv& env, OrtSessionOptions& settings) {
  const OrtEpDevice* const chosen = &device(api, env);
  api.check(api->SessionOptionsAppendExecutionProvider_V2(&settings, &env, &chosen, 1, nullptr,
                                                          nullptr, 0));
}

Adapter adapter(const Api& api, OrtEnv& env) {
  const OrtHardwareDevice* const behind = api->EpDevice_Device(&device(api, env));
  const auto devices = vulkan_devices();
#ifdef __linux__
  if (devices.empty()) {
    throw Unfit(
        "there is no Vulkan device here, on which WebGPU computes; install the GPU's driver and "
        "Vulkan's loader (Debian: apt install libvulkan1 mesa-vulkan-drivers), or choose "
        "onnxruntime:cpu");
  }
#endif
  try {
    run(api, env, kOneNode, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 2 * sizeof(float));
  } catch (const Unfit&) {
    throw;
  } catch (const Error& error) {
    throw Unfit(std::string("WebGPU does not start here: ") + error.what() +
                "; install a newer driver of the GPU, or choose onnxruntime:cpu");
  }
  bool fp16 = true;
  try {
    run(api, env, kFp16Node, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2 * sizeof(std::uint16_t));
  } catch (const Error&) {
    fp16 = false;
  }
  const bool is_cpu = api->HardwareDevice_Type(behind) == OrtHardwareDeviceType_CPU;
  if (devices.empty()) {
    return {api->HardwareDevice_Vendor(behind), is_cpu, fp16};
  }
  return {shortened(devices[0].name), devices[0].software || is_cpu, fp16};
}

const OrtMemoryInfo& memory(const Api& api, OrtEnv& env) {
  return *api->EpDevice_MemoryInfo(&device(api, env), OrtDeviceMemoryType_DEFAULT);
}

#else

void append(const ort::Api& /*api*/, OrtEnv& /*env*/, OrtSessionOptions& /*settings*/) {
  throw old_headers();
}

Adapter adapter(const ort::Api& /*api*/, OrtEnv& /*env*/) {
  throw old_headers();
}

const OrtMemoryInfo& memory(const ort::Api& /*api*/, OrtEnv& /*env*/) {
  throw old_headers();
}

#endif

}  // namespace mrcfa::webgpu

#include "sessions.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "driver.hpp"
#include "fitting.hpp"
#include "notice.hpp"
#include "sentence.hpp"

namespace mrcfa {

using ort::Api;
using ort::Owned;

namespace {

/// ONNX Runtime reads the variable when the first environment is made. It is set as the library
/// loads, because setenv is not safe once a program has threads.
[[maybe_unused]] const int kNoTelemetry = setenv("ORT_DISABLE_TELEMETRY", "1", 0);

ONNXTensorElementDataType element_type(const TensorSpec& spec) {
  if (spec.dtype == "uint8") {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
  }
  if (spec.dtype == "int32") {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
  }
  return spec.dtype == "float16" ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16
                                 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

Unfit useless_cuda(const std::string& why) {
  return Unfit(std::string("ONNX Runtime cannot use its ") + kCudaProvider + " here: " + why +
               "; choose onnxruntime:cpu, or link a GPU build of ONNX Runtime");
}

void add_cuda(const Api& api, OrtSessionOptions& settings, const Options& options) try {
  api.check_version(ort::kOldestMinorForCuda, " for CUDA");
  const auto cuda = api.make<OrtCUDAProviderOptionsV2>(
      [&](OrtCUDAProviderOptionsV2** out) { return api->CreateCUDAProviderOptions(out); });
  const std::string device = std::to_string(*options.device);
  // TF32 would round the products of FP32 graphs to ten bits.
  const std::array<const char*, 2> keys = {"device_id", "use_tf32"};
  const std::array<const char*, 2> values = {device.c_str(), "0"};
  api.check(api->UpdateCUDAProviderOptions(cuda.get(), keys.data(), values.data(), keys.size()));
  if (options.cuda_stream != nullptr) {
    api.check(api->UpdateCUDAProviderOptionsWithValue(cuda.get(), "user_compute_stream",
                                                      options.cuda_stream));
  }
  api.check(api->SessionOptionsAppendExecutionProvider_CUDA_V2(&settings, cuda.get()));
} catch (const Error& error) {
  throw useless_cuda(error.what());
}

Owned<OrtSessionOptions> session_options(const Api& api, OrtEnv& env, const Options& options,
                                         Provider provider) {
  auto made = api.make<OrtSessionOptions>(
      [&](OrtSessionOptions** out) { return api->CreateSessionOptions(out); });
  api.check(api->SetIntraOpNumThreads(made.get(), options.threads));
  api.check(api->SetSessionLogSeverityLevel(made.get(), ORT_LOGGING_LEVEL_ERROR));
  api.check(api->DisableMemPattern(made.get()));  // patterns hold 200 MB more and win no time
  // Work in smaller blocks: a core that others slow down does not hold up the rest.
  api.check(api->AddSessionConfigEntry(made.get(), "session.dynamic_block_base", "4"));
  // Threads that wait for more work after a run would take the cores from the next session's.
  api.check(api->AddSessionConfigEntry(made.get(), "session.force_spinning_stop", "1"));
  // Bytes that look like ONNX Runtime's own format are read as ONNX too, because that was checked.
  api.check(api->AddSessionConfigEntry(made.get(), "session.load_model_format", "ONNX"));
  // Q/DQ nodes stay where they are: moved past a transpose, FP8 makes a graph that does not load.
  api.check(api->AddSessionConfigEntry(made.get(), "session.disable_quant_qdq", "1"));
  if (provider == Provider::cuda) {
    add_cuda(api, *made, options);
  } else if (provider == Provider::webgpu) {
    webgpu::append(api, env, *made);
  }
  return made;
}

Owned<OrtSession> new_session(const Api& api, const OrtEnv& env, const std::string& model,
                              const OrtSessionOptions& settings) {
  return api.make<OrtSession>([&](OrtSession** out) {
    return api->CreateSessionFromArray(&env, model.data(), model.size(), &settings, out);
  });
}

Owned<OrtSession> session_on_cpu(const Api& api, OrtEnv& env, const std::string& model,
                                 const std::filesystem::path& file, const Options& options) try {
  return new_session(api, env, model, *session_options(api, env, options, Provider::cpu));
} catch (const Error& error) {
  throw Error("ONNX Runtime cannot load " + file.string() + ": " + error.what());
}

#if ORT_API_VERSION >= 24

constexpr int kMinorThatNamesNodes = 24;

/// The nodes that a session runs on the CPU, if it records them: `2 nodes (Shape_3 (Shape), a node
/// (Gather))`.
std::string nodes_on_cpu(const Api& api, const OrtSession& session) {
  if (api.minor() < kMinorThatNamesNodes) {
    return "some nodes";
  }
  const OrtEpAssignedSubgraph* const* parts = nullptr;
  std::size_t part_count = 0;
  api.check(api->Session_GetEpGraphAssignmentInfo(&session, &parts, &part_count));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < part_count; ++i) {
    const char* provider = nullptr;
    const OrtEpAssignedNode* const* nodes = nullptr;
    std::size_t node_count = 0;
    api.check(api->EpAssignedSubgraph_GetEpName(parts[i], &provider));
    api.check(api->EpAssignedSubgraph_GetNodes(parts[i], &nodes, &node_count));
    for (std::size_t k = 0; provider == std::string("CPUExecutionProvider") && k < node_count;
         ++k) {
      const char* name = "";
      const char* type = "";
      api.check(api->EpAssignedNode_GetName(nodes[k], &name));
      api.check(api->EpAssignedNode_GetOperatorType(nodes[k], &type));
      names.push_back(std::string(*name == '\0' ? "a node" : name) + " (" + type + ")");
    }
  }
  return std::to_string(names.size()) + " nodes (" + listed(names) + ")";
}

#else

std::string nodes_on_cpu(const Api& /*api*/, const OrtSession& /*session*/) {
  return "some nodes";
}

#endif

/// A session on the GPU. Nodes that are left to the CPU are reported, or Unfit if the options are
/// strict.
Owned<OrtSession> session_on_gpu(const Api& api, OrtEnv& env, const std::string& model,
                                 const std::string& file, const Options& options,
                                 Provider provider) {
  const Owned<OrtSessionOptions> whole = session_options(api, env, options, provider);
  api.check(api->AddSessionConfigEntry(whole.get(), "session.disable_cpu_ep_fallback", "1"));
  // A refusal is no error yet.
  api.check(api->SetSessionLogSeverityLevel(whole.get(), ORT_LOGGING_LEVEL_FATAL));
  try {
    return new_session(api, env, model, *whole);
  } catch (const Error&) {
  }
  try {
    const Owned<OrtSessionOptions> partly = session_options(api, env, options, provider);
    api.check(
        api->AddSessionConfigEntry(partly.get(), "session.record_ep_graph_assignment_info", "1"));
    Owned<OrtSession> made = new_session(api, env, model, *partly);
    const std::string told =
        "not the GPU but the CPU runs " + nodes_on_cpu(api, *made) + " of " + file;
    if (options.strict) {
      throw Unfit(told);
    }
    notice(told);
    return made;
  } catch (const Unfit&) {
    throw;
  } catch (const Error& error) {
    throw provider == Provider::cuda
        ? useless_cuda(error.what())
        : Unfit("WebGPU cannot load " + file + ": " + error.what() + "; choose onnxruntime:cpu");
  }
}

/// The precision that was asked for, else FP16 where adapter and bundle have it, else FP32.
std::string precision_on(const webgpu::Adapter& adapter, const Bundle& bundle,
                         const Options& options) {
  if (options.device.value_or(0) != 0 || options.cuda_stream != nullptr) {
    throw Unfit("WebGPU takes the GPU by itself, here " + adapter.name +
                "; leave device and cuda_stream out");
  }
  const std::string& asked = options.precision;
  if (asked.empty()) {
    const bool half = adapter.fp16 && bundle.find_variant("fp16", Device::gpu) != nullptr;
    return half ? "fp16" : "fp32";
  }
  if (asked == "fp16" && !adapter.fp16) {
    throw Unfit(adapter.name + " does not compute in FP16 (shader-f16); use precision fp32");
  }
  if (asked != "fp16" && asked != "fp32") {
    throw Unfit("WebGPU computes in fp32, fp16, not in " + asked);
  }
  return asked;
}

}  // namespace

Sessions::Sessions(const Bundle& bundle, Options options, Provider on)
    : provider(on),
      network(bundle.manifest().size),
      frame(bundle.manifest().frame),
      streams(static_cast<std::size_t>(bundle.manifest().streams)) {
  const webgpu::Turn held = turn();
  env = api.make<OrtEnv>(
      [&](OrtEnv** out) { return api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "mrcfa", out); });
  std::string where = "CPU";
  if (provider == Provider::cuda) {
    options.device = chosen_device(options.device, current_gpu(), count_gpus());
    where = "CUDA";
  } else if (provider == Provider::webgpu) {
    const webgpu::Adapter adapter = webgpu::adapter(api, *env);
    options.precision = precision_on(adapter, bundle, options);
    where = "WebGPU, " + adapter.title();
  }
  const Variant& variant =
      bundle.variant(options.precision, provider == Provider::cpu ? Device::cpu : Device::gpu);
  name = "onnxruntime (" + where + ", " + variant.precision + ")";
  // Callers bring memory for frames of the manifest's size, so these two shapes come from there.
  // ONNX Runtime refuses them if the graphs have others.
  const std::int64_t count = bundle.manifest().streams;
  image = {"image", "uint8", bundle.manifest().input.shape(frame)};
  image.shape.insert(image.shape.begin(), count);
  answer = bundle.manifest().output == "mask"
               ? TensorSpec{"mask", "uint8", {count, frame.height, frame.width}}
               : named(variant.decoder.outputs, "logits");
  state = state_of(variant.decoder.inputs);
  for (const auto& [in, out] : state) {
    state_specs.push_back(named(variant.decoder.inputs, in));
  }
  for (const TensorSpec& spec : variant.encoder.outputs) {
    features.push_back(spec.name);
  }
  host = api.make<OrtMemoryInfo>([&](OrtMemoryInfo** out) {
    return api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, out);
  });
  place = host.get();
  if (provider == Provider::cuda) {
    cuda = api.make<OrtMemoryInfo>([&](OrtMemoryInfo** out) {
      return api->CreateMemoryInfo("Cuda", OrtDeviceAllocator, *options.device, OrtMemTypeDefault,
                                   out);
    });
    place = cuda.get();
  } else if (provider == Provider::webgpu) {
    place = &webgpu::memory(api, *env);
  }
  state_place = streams > 1 ? host.get() : place;
  const auto session = [&](const Graph& graph) {
    const std::string model = bundle.read_graph(graph);
    return provider == Provider::cpu
               ? session_on_cpu(api, *env, model, bundle.path() / graph.file, options)
               : session_on_gpu(api, *env, model, graph.file, options, provider);
  };
  encoder = session(variant.encoder);
  decoder = session(variant.decoder);
  try {
    for (const TensorSpec& spec : state_specs) {
      zeros.resize(std::max(zeros.size(), spec.bytes()));
    }
  } catch (const std::bad_alloc&) {
    throw Error("no memory for the state of " + name);
  }
}

Sessions::~Sessions() {
  const webgpu::Turn held = turn();
  decoder.reset();
  encoder.reset();
}

webgpu::Turn Sessions::turn() const {
  return provider == Provider::webgpu ? webgpu::turn() : webgpu::Turn();
}

Owned<OrtValue> Sessions::over(const void* data, const TensorSpec& spec, Memory memory_of) const {
  if (memory_of == Memory::device && provider != Provider::cuda) {
    throw Error(name + " takes no frames on the GPU; copy them to the host");
  }
  const OrtMemoryInfo* where = memory_of == Memory::device ? place : host.get();
  return api.make<OrtValue>([&](OrtValue** out) {
    return api->CreateTensorWithDataAsOrtValue(where, const_cast<void*>(data), spec.bytes(),
                                               spec.shape.data(), spec.shape.size(),
                                               element_type(spec), out);
  });
}

}  // namespace mrcfa

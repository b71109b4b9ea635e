// The bundle's ONNX graphs in ONNX Runtime: CPU, or CUDA where it really loads.
#include <algorithm>
#include <array>
#include <utility>

#include "logits.hpp"
#include "notice.hpp"
#include "ort.hpp"
#include "runner.hpp"
#include "sentence.hpp"

namespace mrcfa {
namespace {

constexpr const char* kCudaProvider = "CUDAExecutionProvider";

using ort::Api;
using ort::Owned;

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

/// Both sessions and what is known about them; siblings share it, and nothing in it changes.
struct Sessions {
  Sessions(const Bundle& bundle, const Options& options, bool on_cuda);

  Api api;
  bool cuda;
  std::string name;
  Size network;
  Size frame;
  TensorSpec image;
  TensorSpec answer;                                       ///< `mask` or `logits`.
  std::vector<std::pair<std::string, std::string>> state;  ///< Names, before and after a frame.
  std::vector<TensorSpec> state_specs;
  std::vector<std::string> features;
  std::vector<std::uint8_t> zeros;  ///< The state before the first frame.
  Owned<OrtEnv> env;
  Owned<OrtMemoryInfo> host;
  Owned<OrtMemoryInfo> place;  ///< Where tensors stay between the graphs and between frames.
  Owned<OrtSession> encoder;
  Owned<OrtSession> decoder;

  /// A tensor over memory that somebody else owns. ONNX Runtime makes no difference between inputs
  /// and outputs here, hence not const.
  [[nodiscard]] Owned<OrtValue> over(const void* data, const TensorSpec& spec,
                                     Memory memory_of = Memory::host) const {
    if (memory_of == Memory::device && !cuda) {
      throw Error(name + " takes no frames on the GPU; copy them to the host");
    }
    const OrtMemoryInfo* where = memory_of == Memory::device ? place.get() : host.get();
    return api.make<OrtValue>([&](OrtValue** out) {
      return api->CreateTensorWithDataAsOrtValue(where, const_cast<void*>(data), spec.bytes(),
                                                 spec.shape.data(), spec.shape.size(),
                                                 element_type(spec), out);
    });
  }
};

Unfit useless_cuda(const std::string& why) {
  return Unfit(std::string("ONNX Runtime cannot use its ") + kCudaProvider + " here: " + why +
               "; choose onnxruntime:cpu, or link a GPU build of ONNX Runtime");
}

void add_cuda(const Api& api, OrtSessionOptions& settings, const Options& options) try {
  api.check_version(ort::kOldestMinorForCuda, " for CUDA");
  const auto cuda = api.make<OrtCUDAProviderOptionsV2>(
      [&](OrtCUDAProviderOptionsV2** out) { return api->CreateCUDAProviderOptions(out); });
  const std::string device = std::to_string(options.device);
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

Owned<OrtSessionOptions> session_options(const Api& api, const Options& options, bool cuda) {
  auto made = api.make<OrtSessionOptions>(
      [&](OrtSessionOptions** out) { return api->CreateSessionOptions(out); });
  api.check(api->SetIntraOpNumThreads(made.get(), options.threads));
  api.check(api->SetSessionLogSeverityLevel(made.get(), ORT_LOGGING_LEVEL_ERROR));
  api.check(api->DisableMemPattern(made.get()));  // patterns hold 200 MB more and win no time
  // Work in smaller blocks: a core that others slow down does not hold up the rest.
  api.check(api->AddSessionConfigEntry(made.get(), "session.dynamic_block_base", "4"));
  // Threads that wait for more work after a run would take the cores from the next session's.
  api.check(api->AddSessionConfigEntry(made.get(), "session.force_spinning_stop", "1"));
  if (cuda) {
    add_cuda(api, *made, options);
  }
  return made;
}

Owned<OrtSession> new_session(const Api& api, const OrtEnv& env, const std::string& model,
                              const OrtSessionOptions& settings) {
  return api.make<OrtSession>([&](OrtSession** out) {
    return api->CreateSessionFromArray(&env, model.data(), model.size(), &settings, out);
  });
}

Owned<OrtSession> session_on_cpu(const Api& api, const OrtEnv& env, const std::string& model,
                                 const std::filesystem::path& file, const Options& options) try {
  return new_session(api, env, model, *session_options(api, options, false));
} catch (const Error& error) {
  throw Error("ONNX Runtime cannot load " + file.string() + ": " + error.what());
}

/// With every node on the GPU; that the CPU has to run some is told, or Unfit where the options are
/// strict.
Owned<OrtSession> session_on_cuda(const Api& api, const OrtEnv& env, const std::string& model,
                                  const std::string& file, const Options& options) {
  const Owned<OrtSessionOptions> whole = session_options(api, options, true);
  api.check(api->AddSessionConfigEntry(whole.get(), "session.disable_cpu_ep_fallback", "1"));
  // That it refuses is no error yet.
  api.check(api->SetSessionLogSeverityLevel(whole.get(), ORT_LOGGING_LEVEL_FATAL));
  std::string refusal;
  try {
    return new_session(api, env, model, *whole);
  } catch (const Error& error) {
    refusal = error.what();
  }
  try {
    Owned<OrtSession> made = new_session(api, env, model, *session_options(api, options, true));
    if (options.strict) {
      throw Unfit(refusal);
    }
    notice("not the GPU but the CPU runs some nodes of " + file + ": " + refusal);
    return made;
  } catch (const Unfit&) {
    throw;
  } catch (const Error& error) {
    throw useless_cuda(error.what());
  }
}

Sessions::Sessions(const Bundle& bundle, const Options& options, bool on_cuda)
    : cuda(on_cuda), network(bundle.manifest().size), frame(bundle.manifest().frame) {
  const Variant& variant = bundle.variant(options.precision, cuda ? Device::gpu : Device::cpu);
  name = std::string("onnxruntime (") + (cuda ? "CUDA" : "CPU") + ", " + variant.precision + ")";
  // Callers bring memory for frames of the manifest's size, so these two shapes come from there;
  // ONNX Runtime refuses them if the graphs think otherwise.
  image = {"image", "uint8", {1, frame.height, frame.width, 3}};
  answer = bundle.manifest().output == "mask"
               ? TensorSpec{"mask", "uint8", {1, frame.height, frame.width}}
               : named(variant.decoder.outputs, "logits");
  state = state_of(variant.decoder.inputs);
  for (const auto& [in, out] : state) {
    state_specs.push_back(named(variant.decoder.inputs, in));
    zeros.resize(std::max(zeros.size(), state_specs.back().bytes()));
  }
  for (const TensorSpec& spec : variant.encoder.outputs) {
    features.push_back(spec.name);
  }
  env = api.make<OrtEnv>(
      [&](OrtEnv** out) { return api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "mrcfa", out); });
  api.check(api->DisableTelemetryEvents(env.get()));
  host = api.make<OrtMemoryInfo>([&](OrtMemoryInfo** out) {
    return api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, out);
  });
  place = api.make<OrtMemoryInfo>([&](OrtMemoryInfo** out) {
    return api->CreateMemoryInfo(cuda ? "Cuda" : "Cpu", OrtDeviceAllocator,
                                 cuda ? options.device : 0, OrtMemTypeDefault, out);
  });
  const auto session = [&](const Graph& graph) {
    const std::string model = bundle.read(graph.file);
    return cuda ? session_on_cuda(api, *env, model, graph.file, options)
                : session_on_cpu(api, *env, model, bundle.path() / graph.file, options);
  };
  encoder = session(variant.encoder);
  decoder = session(variant.decoder);
}

/// One run of a session: tensors by name in, tensors in the order of binding out. A binding keeps
/// its outputs' memory for the next run, so every run has its own: the state lives on in them.
class Run {
 public:
  Run(const Api& api, OrtSession* session)
      : api_(api), session_(session), binding_(api.make<OrtIoBinding>([&](OrtIoBinding** out) {
          return api->CreateIoBinding(session, out);
        })) {}

  void input(const std::string& name, const OrtValue& value) {
    api_.check(api_->BindInput(binding_.get(), name.c_str(), &value));
  }

  void output(const std::string& name, const OrtValue& value) {
    api_.check(api_->BindOutput(binding_.get(), name.c_str(), &value));
  }

  void output(const std::string& name, const OrtMemoryInfo& place) {
    api_.check(api_->BindOutputToDevice(binding_.get(), name.c_str(), &place));
  }

  std::vector<Owned<OrtValue>> operator()() {
    api_.check(api_->RunWithBinding(session_, nullptr, binding_.get()));
    OrtAllocator* allocator = nullptr;
    OrtValue** values = nullptr;
    std::size_t count = 0;
    api_.check(api_->GetAllocatorWithDefaultOptions(&allocator));
    api_.check(api_->GetBoundOutputValues(binding_.get(), allocator, &values, &count));
    std::vector<Owned<OrtValue>> made;
    made.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back(api_.own(values[i]));
    }
    allocator->Free(allocator, static_cast<void*>(values));
    return made;
  }

 private:
  const Api& api_;
  OrtSession* session_;
  Owned<OrtIoBinding> binding_;
};

class OnnxRuntimeRunner final : public Runner {
 public:
  explicit OnnxRuntimeRunner(std::shared_ptr<const Sessions> sessions)
      : sessions_(std::move(sessions)) {
    reset();
  }

  [[nodiscard]] std::string name() const override { return sessions_->name; }
  [[nodiscard]] bool on_gpu() const override { return sessions_->cuda; }

  void step(const Frame& frame) override {
    const bool logits = sessions_->answer.name == "logits";
    const auto features = encode(frame);
    Run decoder(sessions_->api, sessions_->decoder.get());
    for (std::size_t i = 0; i < features.size(); ++i) {
      decoder.input(sessions_->features[i], *features[i]);
    }
    for (std::size_t i = 0; i < state_.size(); ++i) {
      decoder.input(sessions_->state[i].first, *state_[i]);
      decoder.output(sessions_->state[i].second, *sessions_->place);
    }
    logits_.resize(logits ? sessions_->answer.bytes() : 0);
    const auto answer =
        sessions_->over(logits ? logits_.data() : frame.mask, sessions_->answer, frame.mask_in);
    decoder.output(sessions_->answer.name, *answer);
    auto outputs = decoder();
    if (logits) {
      mask_of_logits(logits_.data(), sessions_->answer, sessions_->network, sessions_->frame,
                     frame.mask);
    }
    outputs.resize(state_.size());  // the answer is the caller's
    state_ = std::move(outputs);
  }

  void reset() override {
    state_.clear();
    for (const TensorSpec& spec : sessions_->state_specs) {
      state_.push_back(sessions_->over(sessions_->zeros.data(), spec));
    }
  }

  [[nodiscard]] std::unique_ptr<Runner> sibling() const override {
    return std::make_unique<OnnxRuntimeRunner>(sessions_);
  }

 private:
  [[nodiscard]] std::vector<Owned<OrtValue>> encode(const Frame& frame) const {
    const auto image = sessions_->over(frame.rgb, sessions_->image, frame.rgb_in);
    Run encoder(sessions_->api, sessions_->encoder.get());
    encoder.input("image", *image);
    for (const std::string& name : sessions_->features) {
      encoder.output(name, *sessions_->place);
    }
    return encoder();
  }

  std::shared_ptr<const Sessions> sessions_;
  std::vector<Owned<OrtValue>> state_;  ///< In the order of `Sessions::state`.
  std::vector<std::uint8_t> logits_;
};

}  // namespace

std::unique_ptr<Runner> open_onnxruntime(const Bundle& bundle, const Options& options,
                                         const std::string& provider) {
  if (!provider.empty() && provider != "cpu" && provider != "cuda") {
    throw Error("unknown provider " + in_quotes(provider) + "; choose one of cuda, cpu");
  }
  const auto opened = [&](bool cuda) {
    return std::make_unique<OnnxRuntimeRunner>(
        std::make_shared<const Sessions>(bundle, options, cuda));
  };
  if (provider == "cuda") {
    return opened(true);
  }
  if (provider.empty() && Api().has_provider(kCudaProvider) &&
      bundle.find_variant(options.precision, Device::gpu) != nullptr) {
    try {
      return opened(true);
    } catch (const Unfit& error) {
      if (options.strict) {
        throw Error(error.what());
      }
      notice(std::string(error.what()) + "; ONNX Runtime goes on with the CPU");
    }
  }
  return opened(false);
}

}  // namespace mrcfa

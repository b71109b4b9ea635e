// The bundle's engines in TensorRT. The whole state stays on the GPU: each frame reads one half of
// a pair of buffers and writes the other, and a CUDA graph for either direction replays both
// engines.
#include <NvInferRuntime.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "cuda.hpp"
#include "fitting.hpp"
#include "logits.hpp"
#include "runner.hpp"

namespace mrcfa {
namespace {

constexpr const char* kPlugin = "mrcfa::SelectTokens 1";
constexpr const char* kPluginVariable = "MRCFA_PLUGIN_LIBRARY";

/// What the decoder reads, and what it writes for the next frame to read.
constexpr std::array<std::pair<const char*, const char*>, 2> kState = {
    {{"memory", "memory_out"}, {"frame", "frame_out"}}};

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

  /// What `work` makes; if that is nothing, an error that ends with TensorRT's complaint.
  template <class Failure, class Work>
  static auto made(Work work, const std::string& failure) {
    forget();
    std::unique_ptr<std::remove_pointer_t<decltype(work())>> result(work());
    if (!result) {
      throw Failure(failure + ": " + complaint());
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

Gpu gpu(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    throw Unfit(std::string("no GPU can be used here: ") +
                cudaGetErrorString(status == cudaSuccess ? cudaErrorNoDevice : status) +
                "; choose onnxruntime:cpu to run without one");
  }
  if (index < 0 || index >= count) {
    throw Error("there is no GPU " + std::to_string(index) + "; the last one here is " +
                std::to_string(count - 1));
  }
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, index), "describe itself");
  return {index, properties.name, 10 * properties.major + properties.minor};
}

Library library() {
  return {MRCFA_TENSORRT, std::to_string(getInferLibMajorVersion()) + "." +
                              std::to_string(getInferLibMinorVersion()) + "." +
                              std::to_string(getInferLibPatchVersion())};
}

TensorSpec spec_of(const nvinfer1::ICudaEngine& engine, const char* name) {
  TensorSpec spec{name, "", {}};
  switch (engine.getTensorDataType(name)) {
    case nvinfer1::DataType::kFLOAT:
      spec.dtype = "float32";
      break;
    case nvinfer1::DataType::kHALF:
      spec.dtype = "float16";
      break;
    case nvinfer1::DataType::kINT32:
      spec.dtype = "int32";
      break;
    case nvinfer1::DataType::kUINT8:
      spec.dtype = "uint8";
      break;
    default:
      break;  // of no size, which `Engines::check` refuses
  }
  const nvinfer1::Dims shape = engine.getTensorShape(name);
  spec.shape.assign(shape.d, shape.d + std::max(shape.nbDims, 0));
  return spec;
}

/// One engine and its tensors.
struct Part {
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
  std::vector<TensorSpec> tensors;
};

/// Both engines and what is known about them; siblings share it, and nothing in it changes.
struct Engines {
  Engines(const Bundle& bundle, const Options& options, const std::string& variant);

  Gpu gpu;
  cudaStream_t stream;  ///< The caller's, or null.
  bool graphs;          ///< Whether to launch CUDA graphs.
  Size network;
  Size frame;
  TensorSpec image;
  TensorSpec answer;  ///< `mask` or `logits`.
  std::string name;
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  Part encoder;
  Part decoder;

 private:
  void load_plugin(std::filesystem::path library) const;
  [[nodiscard]] Part part(const Bundle& bundle, const Engine& engine,
                          const std::string& file) const;
  void check(const Bundle& bundle, const Engine& engine) const;
};

Engines::Engines(const Bundle& bundle, const Options& options, const std::string& variant)
    : gpu(mrcfa::gpu(options.device)),
      stream(static_cast<cudaStream_t>(options.cuda_stream)),
      graphs(options.cuda_graphs),
      network(bundle.manifest().size),
      frame(bundle.manifest().frame) {
  const Engine& engine = fitting_engine(bundle, variant, options.precision, gpu, library());
  const cuda::OnDevice current(gpu.index);
  name = "tensorrt (" + name_of(engine) + ", " + gpu.name + ")";
  runtime = Log::made<Unfit>([] { return nvinfer1::createInferRuntime(Log::get()); },
                             library().product() + " does not start");
  // A version-compatible engine brings its own runtime as host code, which must be allowed.
  runtime->setEngineHostCodeAllowed(engine.version_compatible);
  if (engine.plugin) {
    try {
      load_plugin(options.plugin_library);
    } catch (const Error& error) {
      throw Unfit("the engine " + name_of(engine) + " needs a plugin: " + error.what());
    }
  }
  encoder = part(bundle, engine, engine.encoder);
  decoder = part(bundle, engine, engine.decoder);
  image = {"image", "uint8", {1, frame.height, frame.width, 3}};
  answer = bundle.manifest().output == "mask"
               ? TensorSpec{"mask", "uint8", {1, frame.height, frame.width}}
               : named(decoder.tensors, "logits");
  check(bundle, engine);
}

void Engines::load_plugin(std::filesystem::path library) const {
  nvinfer1::IPluginRegistry& registry = runtime->getPluginRegistry();
  const auto registered = [&] {
    return registry.getCreator("SelectTokens", "1", "mrcfa") != nullptr;
  };
  if (registered()) {
    return;
  }
  if (const char* variable = std::getenv(kPluginVariable); library.empty() && variable != nullptr) {
    library = variable;
  }
  if (library.empty()) {
    throw Error(std::string("the plugin ") + kPlugin +
                " is not loaded: compile engines/plugin with CMake and name libmrcfa_plugin.so "
                "with --plugin-library, Options::plugin_library or " +
                kPluginVariable);
  }
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(library, ignored)) {
    throw Error("the plugin library " + library.string() + " does not exist");
  }
  Log::forget();
  registry.loadLibrary(std::filesystem::absolute(library, ignored).c_str());
  if (!registered()) {
    throw Error(library.string() + " does not provide " + kPlugin + ": " + Log::complaint());
  }
}

Part Engines::part(const Bundle& bundle, const Engine& engine, const std::string& file) const {
  const std::string plan = bundle.read(file);
  const std::string module = engine.flavour == "rtx" ? "tensorrt_rtx" : "tensorrt";
  Part made{
      Log::made<Unfit>([&] { return runtime->deserializeCudaEngine(plan.data(), plan.size()); },
                       module + " " + library().version + " on " + gpu.name + " cannot load " +
                           (bundle.path() / file).string() + ", built with " + engine.tensorrt),
      {}};
  for (int i = 0; i < made.engine->getNbIOTensors(); ++i) {
    made.tensors.push_back(spec_of(*made.engine, made.engine->getIOTensorName(i)));
  }
  return made;
}

/// Refuses engines whose tensors are not those of the manifest, or that do not fit each other.
void Engines::check(const Bundle& bundle, const Engine& engine) const {
  const auto same = [](const TensorSpec& one, const TensorSpec& other) {
    const auto& shape = one.shape;
    return one.dtype == other.dtype && shape == other.shape && one.bytes() > 0 &&
           std::all_of(shape.begin(), shape.end(), [](std::int64_t length) { return length > 0; });
  };
  bool fits = same(named(encoder.tensors, "image"), image) &&
              same(named(decoder.tensors, answer.name), answer);
  for (const auto& [in, out] : kState) {
    fits = fits && same(named(decoder.tensors, in), named(decoder.tensors, out));
  }
  for (const TensorSpec& feature : encoder.tensors) {
    fits = fits && (feature.name == "image" || same(feature, named(decoder.tensors, feature.name)));
  }
  if (!fits) {
    throw Error(engine.encoder + " and " + engine.decoder +
                " do not have the tensors that the manifest names; build them anew with: "
                "mrcfa build " +
                bundle.path().string());
  }
}

class TensorRtRunner final : public Runner {
 public:
  explicit TensorRtRunner(std::shared_ptr<const Engines> engines) : engines_(std::move(engines)) {
    const cuda::OnDevice current(engines_->gpu.index);
    own_ = cuda::new_stream();
    for (const Part* part : {&engines_->encoder, &engines_->decoder}) {
      for (const TensorSpec& spec : part->tensors) {
        if (cuda::DeviceMemory& buffer = buffers_[spec.name]; !buffer) {
          buffer = cuda::zeros(spec.bytes(), own_.get());
        }
      }
      contexts_.push_back(Log::made<Error>([&] { return part->engine->createExecutionContext(); },
                                           "TensorRT cannot prepare the engine"));
    }
    for (std::size_t turn = 0; engines_->graphs && turn < graphs_.size(); ++turn) {
      bind(turn);
      // A context sets itself up in its first run with new addresses, which must not be captured.
      enqueue(own_.get());
      graphs_[turn] = cuda::captured(own_.get(), [this] { enqueue(own_.get()); });
    }
    cuda::check(cudaStreamSynchronize(own_.get()), "run the engines");
    clear();
  }

  TensorRtRunner(const TensorRtRunner&) = delete;
  TensorRtRunner& operator=(const TensorRtRunner&) = delete;

  /// Work that was queued on a caller's stream still uses the buffers.
  ~TensorRtRunner() override {
    const cuda::OnDevice current(engines_->gpu.index);
    cudaStreamSynchronize(stream());
    contexts_.clear();
  }

  [[nodiscard]] std::string name() const override { return engines_->name; }

  void step(const Frame& frame) override {
    const bool logits = engines_->answer.name == "logits";
    const cuda::OnDevice current(engines_->gpu.index);
    const bool from_host = frame.rgb_in == Memory::host;
    cuda::check(
        cudaMemcpyAsync(buffers_.at("image").get(), frame.rgb, engines_->image.bytes(),
                        from_host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice, stream()),
        "take the frame");
    if (graphs_[turn_]) {
      cuda::check(cudaGraphLaunch(graphs_[turn_].get(), stream()), "run the engines");
    } else {
      bind(turn_);
      enqueue(stream());
    }
    logits_.resize(logits ? engines_->answer.bytes() : 0);
    const bool to_host = frame.mask_in == Memory::host;
    cuda::check(
        cudaMemcpyAsync(logits ? logits_.data() : frame.mask,
                        buffers_.at(engines_->answer.name).get(), engines_->answer.bytes(),
                        to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice, stream()),
        "give the mask");
    if (to_host || engines_->stream == nullptr) {
      cuda::check(cudaStreamSynchronize(stream()), "run the engines");
    }
    if (logits) {
      mask_of_logits(logits_.data(), engines_->answer, engines_->network, engines_->frame,
                     frame.mask);
    }
    turn_ = 1 - turn_;
  }

  void reset() override {
    const cuda::OnDevice current(engines_->gpu.index);
    clear();
  }

  [[nodiscard]] std::unique_ptr<Runner> sibling() const override {
    return std::make_unique<TensorRtRunner>(engines_);
  }

 private:
  [[nodiscard]] cudaStream_t stream() const {
    return engines_->stream != nullptr ? engines_->stream : own_.get();
  }

  /// Every other frame the two halves of the state change places.
  [[nodiscard]] void* address(const std::string& name, std::size_t turn) const {
    for (const auto& [in, out] : kState) {
      if (turn == 1 && (name == in || name == out)) {
        return buffers_.at(name == in ? out : in).get();
      }
    }
    return buffers_.at(name).get();
  }

  void bind(std::size_t turn) {
    const std::array<const Part*, 2> parts = {&engines_->encoder, &engines_->decoder};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (const TensorSpec& spec : parts[i]->tensors) {
        contexts_[i]->setTensorAddress(spec.name.c_str(), address(spec.name, turn));
      }
    }
  }

  void enqueue(cudaStream_t stream) {
    Log::forget();
    for (const auto& context : contexts_) {
      if (!context->enqueueV3(stream)) {
        throw Error("TensorRT cannot run the engine: " + Log::complaint());
      }
    }
  }

  /// The state before the first frame, in the half that is read next.
  void clear() {
    for (const auto& [in, out] : kState) {
      const std::size_t bytes = named(engines_->decoder.tensors, in).bytes();
      cuda::check(cudaMemsetAsync(address(in, turn_), 0, bytes, stream()), "clear memory");
    }
  }

  std::shared_ptr<const Engines> engines_;
  cuda::Owned<cudaStream_t> own_;
  std::map<std::string, cuda::DeviceMemory> buffers_;
  std::vector<std::unique_ptr<nvinfer1::IExecutionContext>> contexts_;  ///< Encoder, decoder.
  std::array<cuda::Owned<cudaGraphExec_t>, 2> graphs_;
  std::size_t turn_ = 0;
  std::vector<std::uint8_t> logits_;
};

}  // namespace

std::unique_ptr<Runner> open_tensorrt(const Bundle& bundle, const Options& options,
                                      const std::string& variant) {
  return std::make_unique<TensorRtRunner>(
      std::make_shared<const Engines>(bundle, options, variant));
}

}  // namespace mrcfa

#include "engines.hpp"

#include <algorithm>
#include <cstdlib>

#include "cuda.hpp"
#include "log.hpp"

namespace mrcfa {
namespace {

constexpr const char* kPlugin = "mrcfa::SelectTokens 1";
constexpr const char* kPluginVariable = "MRCFA_PLUGIN_LIBRARY";

/// 13000 -> `13.0`
std::string release(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int driver_version() {
  int version = 0;
  cudaDriverGetVersion(&version);  // 0 without one
  return version;
}

std::string driver_release() {
  return release(driver_version());
}

Library library() {
  return {MRCFA_TENSORRT,
          std::to_string(getInferLibMajorVersion()) + "." +
              std::to_string(getInferLibMinorVersion()) + "." +
              std::to_string(getInferLibPatchVersion()),
          getInferLibBuildVersion()};
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

}  // namespace

Gpu gpu_of(int index) {
  int count = 0;
  int needed = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  const int driver = driver_version();
  cudaRuntimeGetVersion(&needed);
  if (status == cudaErrorInsufficientDriver && driver > 0) {
    throw Unfit("this build of mrcfa is for CUDA " + release(needed) +
                " and NVIDIA's driver knows CUDA up to " + release(driver) +
                "; update the driver, or build mrcfa with that CUDA");
  }
  if (status != cudaSuccess || count == 0) {
    const bool none = driver == 0 || status == cudaErrorNoDevice || status == cudaSuccess;
    const std::string sentence =
        std::string("no GPU can be used here: ") +
        cudaGetErrorString(status == cudaSuccess ? cudaErrorNoDevice : status) +
        "; choose onnxruntime:cpu to run without one";
    if (none) {
      throw NoGpu(sentence);
    }
    throw Unfit(sentence);
  }
  if (index < 0) {
    throw Error("device is " + std::to_string(index) + "; GPUs are counted from 0");
  }
  if (index >= count) {
    throw Error("there is no GPU " + std::to_string(index) + "; the last one here is " +
                std::to_string(count - 1));
  }
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, index), "describe itself");
  return {index, properties.name, 10 * properties.major + properties.minor};
}

Engines::Engines(std::shared_ptr<const cuda::Context> the_context, Gpu the_gpu,
                 const Bundle& bundle, const Options& options, const std::string& which)
    : context(std::move(the_context)),
      gpu(std::move(the_gpu)),
      stream(static_cast<cudaStream_t>(options.cuda_stream)),
      graphs(options.cuda_graphs),
      network(bundle.manifest().size),
      frame(bundle.manifest().frame),
      streams(static_cast<std::size_t>(bundle.manifest().streams)) {
  const Engine& engine = fitting_engine(bundle, which, options.precision, gpu, library());
  name = name_of(engine) + ", " + gpu.name;
  runtime = Log::made<Unfit>(
      [] { return nvinfer1::createInferRuntime(Log::get()); },
      library().title() + " does not start",
      "; NVIDIA's driver knows CUDA up to " + driver_release() + ", which may be too old");
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
  const std::int64_t count = bundle.manifest().streams;
  image = {"image", "uint8", {count, frame.height, frame.width, 3}};
  answer = bundle.manifest().output == "mask"
               ? TensorSpec{"mask", "uint8", {count, frame.height, frame.width}}
               : named(decoder.tensors, "logits");
  check(bundle, engine);
  const auto& files = bundle.manifest().files;
  cache = std::make_unique<RuntimeCache>(
      *encoder.engine,
      runtime_cache_file(library(), gpu,
                         {files.at(engine.encoder).sha256, files.at(engine.decoder).sha256}));
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
  Part made{
      Log::made<Unfit>([&] { return runtime->deserializeCudaEngine(plan.data(), plan.size()); },
                       library().title() + " on " + gpu.name + " cannot load " +
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
  for (const auto& [in, out] : state_of(decoder.tensors)) {
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

}  // namespace mrcfa

#include "engines.hpp"

#include <algorithm>
#include <cstdlib>

#include "cuda.hpp"
#include "driver.hpp"
#include "log.hpp"

namespace mrcfa {
namespace {

constexpr const char* kPlugin = "mrcfa::SelectTokens 1";
constexpr const char* kPluginVariable = "MRCFA_PLUGIN_LIBRARY";

int driver_version() {
  int version = 0;
  cudaDriverGetVersion(&version);  // 0 without one
  return version;
}

Library library() {
  int cuda = 0;
  cudaRuntimeGetVersion(&cuda);
  return {MRCFA_TENSORRT,
          std::to_string(getInferLibMajorVersion()) + "." +
              std::to_string(getInferLibMinorVersion()) + "." +
              std::to_string(getInferLibPatchVersion()),
          getInferLibBuildVersion(), cuda};
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
      spec.dtype = "another type";  // which no manifest has
      break;
  }
  const nvinfer1::Dims shape = engine.getTensorShape(name);
  spec.shape.assign(shape.d, shape.d + std::max(shape.nbDims, 0));
  return spec;
}

const Variant& variant_of(const Bundle& bundle, const Engine& engine) {
  const auto& variants = bundle.manifest().variants;
  return *std::find_if(variants.begin(), variants.end(),
                       [&](const Variant& variant) { return variant.name == engine.variant; });
}

/// What is missing, too much or different in the tensors of a plan; empty if nothing is.
std::string differences(const std::vector<TensorSpec>& found, const Graph& graph) {
  std::vector<TensorSpec> wanted = graph.inputs;
  wanted.insert(wanted.end(), graph.outputs.begin(), graph.outputs.end());
  const auto shown = [](const std::vector<TensorSpec>& specs, const std::string& name) {
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const TensorSpec& one) { return one.name == name; });
    return spec == specs.end() ? "missing" : spec->shown();
  };
  std::string made;
  const auto compare = [&](const std::string& name) {
    if (shown(found, name) != shown(wanted, name)) {
      made += (made.empty() ? "" : ", ") + name + " is " + shown(found, name) + " instead of " +
              shown(wanted, name);
    }
  };
  for (const TensorSpec& spec : wanted) {
    compare(spec.name);
  }
  for (const TensorSpec& spec : found) {
    if (shown(wanted, spec.name) == "missing") {
      compare(spec.name);
    }
  }
  return made;
}

}  // namespace

Gpu gpu_of(std::optional<int> device) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver && driver_version() > 0) {
    throw Unfit(old_driver(library().cuda, driver_version()));
  }
  if (status != cudaSuccess || count == 0) {
    throw Unfit(std::string("no GPU can be used here: ") +
                cudaGetErrorString(status == cudaSuccess ? cudaErrorNoDevice : status) +
                "; choose onnxruntime:cpu to run without one");
  }
  const int index = chosen_device(device, current_gpu(), count);
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {index, properties.name, 10 * properties.major + properties.minor};
}

Machine machine_of(const Gpu& gpu) {
  return {gpu, driver_version(), library()};
}

Engines::Engines(std::shared_ptr<const cuda::Context> the_context, Gpu the_gpu,
                 const Bundle& bundle, const Options& options, const Engine& the_engine)
    : context(std::move(the_context)),
      gpu(std::move(the_gpu)),
      engine(the_engine),
      stream(static_cast<cudaStream_t>(options.cuda_stream)),
      graphs(options.cuda_graphs),
      network(bundle.manifest().size),
      frame(bundle.manifest().frame),
      streams(static_cast<std::size_t>(bundle.manifest().streams)) {
  runtime = Log::made<Unfit>([] { return nvinfer1::createInferRuntime(Log::get()); },
                             library().title() + " does not start",
                             "; NVIDIA's driver supports CUDA up to " + release(driver_version()) +
                                 ", which may be too old");
  // A version-compatible engine brings its own runtime as host code, which must be allowed.
  runtime->setEngineHostCodeAllowed(engine.version_compatible);
  if (engine.plugin) {
    try {
      load_plugin(options.plugin_library);
    } catch (const Error& error) {
      throw Unfit("the engine " + name_of(engine) + " needs a plugin: " + error.what());
    }
  }
  const Variant& variant = variant_of(bundle, engine);
  encoder = part(bundle, engine.encoder, variant.encoder);
  decoder = part(bundle, engine.decoder, variant.decoder);
  image = named(encoder.tensors, "image");
  answer = named(decoder.tensors, bundle.manifest().output);
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
  Log::clear();
  registry.loadLibrary(std::filesystem::absolute(library, ignored).c_str());
  if (!registered()) {
    throw Error(library.string() + " does not provide " + kPlugin + ": " + Log::first_error());
  }
}

Part Engines::part(const Bundle& bundle, const std::string& file, const Graph& graph) const {
  const std::string plan = bundle.read(file);
  const std::string path = (bundle.path() / file).string();
  Part made{
      Log::made<Unfit>([&] { return runtime->deserializeCudaEngine(plan.data(), plan.size()); },
                       library().title() + " on " + gpu.name + " cannot load " + path +
                           ", built with " + engine.tensorrt),
      {}};
  for (int i = 0; i < made.engine->getNbIOTensors(); ++i) {
    made.tensors.push_back(spec_of(*made.engine, made.engine->getIOTensorName(i)));
  }
  if (const std::string wrong = differences(made.tensors, graph); !wrong.empty()) {
    throw Unfit(path + " has other tensors than the manifest says (" + wrong +
                "); build it again with: mrcfa build " + bundle.path().string());
  }
  return made;
}

}  // namespace mrcfa

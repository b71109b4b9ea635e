#include "runtime_cache.hpp"

#include <map>
#include <string>
#include <utility>

#include "files.hpp"
#include "log.hpp"
#include "mrcfa.hpp"
#include "notice.hpp"
#include "recording.hpp"
#include "sha256.hpp"

namespace mrcfa {

namespace fs = std::filesystem;

namespace {

constexpr auto kUserManaged = nvinfer1::ExecutionContextAllocationStrategy::kUSER_MANAGED;
constexpr const char* kFailure = "TensorRT cannot prepare the engine";

}  // namespace

fs::path runtime_cache_file(const Library& library, const Gpu& gpu,
                            const std::vector<std::string>& plans) {
  const fs::path folder = cache_folder();
  if (folder.empty()) {
    return {};
  }
  std::string facts = library.version + "." + std::to_string(library.build) + "\n" + gpu.name +
                      "\n" + std::to_string(gpu.capability);
  for (const std::string& plan : plans) {
    facts += "\n" + plan;
  }
  return folder / "tensorrt-rtx" / (sha256(facts).substr(0, 16) + ".cache");
}

#ifdef TRT_MAJOR_RTX

namespace {

constexpr std::size_t kDigest = 64;  // hexadecimal digits

}  // namespace

struct RuntimeCache::Kernels {
  fs::path file;
  std::string known;  ///< The digest of the file's content, with which the file begins.
  std::unique_ptr<nvinfer1::IRuntimeConfig> origin;  ///< It made the cache, and outlives it.
  std::unique_ptr<nvinfer1::IRuntimeCache> cache;
  /// The configs of both plans, which outlive the contexts that are made with them.
  std::map<const nvinfer1::ICudaEngine*, std::unique_ptr<nvinfer1::IRuntimeConfig>> configs;

  [[nodiscard]] nvinfer1::IRuntimeConfig& config(nvinfer1::ICudaEngine& plan);
  void read();
  void write();
};

nvinfer1::IRuntimeConfig& RuntimeCache::Kernels::config(nvinfer1::ICudaEngine& plan) {
  auto& made = configs[&plan];
  if (made == nullptr) {
    made = Log::made<Unfit>([&] { return plan.createRuntimeConfig(); }, kFailure);
    if (!made->setRuntimeCache(*cache)) {
      notice("TensorRT-RTX takes no runtime cache, so it compiles anew at every start");
    }
    made->setExecutionContextAllocationStrategy(kUserManaged);
  }
  return *made;
}

void RuntimeCache::Kernels::read() {
  std::error_code ignored;
  if (file.empty() || !fs::exists(file, ignored)) {
    return;
  }
  const std::string subject = "the runtime cache " + file.string();
  const std::string remedy = "; TensorRT-RTX compiles this engine anew";
  std::string content;
  try {
    content = content_of(file);
  } catch (const Error& error) {
    notice("the runtime cache " + std::string(error.what()) + remedy);
    return;
  }
  const std::string digest = content.substr(0, kDigest);
  content.erase(0, digest.size());
  if (sha256(content) != digest) {
    notice(subject + " is damaged" + remedy);
    return;
  }
  Log::clear();
  if (!cache->deserialize(content.data(), content.size())) {
    notice(subject + " is not of this GPU, driver and version: " + Log::first_error() + remedy);
    return;
  }
  known = digest;
}

void RuntimeCache::Kernels::write() {
  const std::unique_ptr<nvinfer1::IHostMemory> made(cache->serialize());
  if (file.empty() || !made) {
    return;
  }
  const std::string content(static_cast<const char*>(made->data()), made->size());
  const std::string digest = sha256(content);
  if (digest == known) {
    return;
  }
  known = digest;
  try {
    write_whole(file, digest + content);
  } catch (const Error& error) {
    notice(std::string(error.what()) +
           ", so TensorRT-RTX compiles this engine again at every start");
  }
}

RuntimeCache::RuntimeCache(nvinfer1::ICudaEngine& plan, fs::path file)
    : kernels_(std::make_unique<Kernels>()) {
  kernels_->origin = Log::made<Unfit>([&] { return plan.createRuntimeConfig(); }, kFailure);
  if (file.empty()) {
    notice("there is no cache folder (HOME is not set); name one with XDG_CACHE_HOME");
  }
  kernels_->file = std::move(file);
  kernels_->cache =
      Log::made<Unfit>([&] { return kernels_->origin->createRuntimeCache(); }, kFailure);
  kernels_->read();
}

std::unique_ptr<nvinfer1::IExecutionContext> RuntimeCache::new_context(
    nvinfer1::ICudaEngine& plan) {
  const cuda::Undisturbed alone;
  nvinfer1::IRuntimeConfig& config = kernels_->config(plan);
  return Log::made<Unfit>([&] { return plan.createExecutionContext(&config); }, kFailure);
}

void RuntimeCache::save() {
  const cuda::Undisturbed alone;
  kernels_->write();
}

#else

struct RuntimeCache::Kernels {};

RuntimeCache::RuntimeCache(nvinfer1::ICudaEngine& /*plan*/, fs::path /*file*/) {}

std::unique_ptr<nvinfer1::IExecutionContext> RuntimeCache::new_context(
    nvinfer1::ICudaEngine& plan) {
  const cuda::Undisturbed alone;
  return Log::made<Unfit>([&] { return plan.createExecutionContext(kUserManaged); }, kFailure);
}

void RuntimeCache::save() {}

#endif

RuntimeCache::~RuntimeCache() = default;

}  // namespace mrcfa

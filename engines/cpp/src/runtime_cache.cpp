#include "runtime_cache.hpp"

#include <cctype>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "files.hpp"
#include "log.hpp"
#include "notice.hpp"

namespace mrcfa {

namespace fs = std::filesystem;

namespace {

constexpr auto kUserManaged = nvinfer1::ExecutionContextAllocationStrategy::kUSER_MANAGED;
constexpr const char* kFailure = "TensorRT cannot prepare the engine";

}  // namespace

fs::path runtime_cache_file(const std::string& sha256, const std::string& gpu, int capability,
                            const std::string& version) {
  const fs::path folder = cache_folder();
  if (folder.empty()) {
    return {};
  }
  std::string slug;
  for (const char letter : gpu) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0) {
      slug += static_cast<char>(std::tolower(byte));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  return folder / "runtime" /
         (sha256.substr(0, 16) + "-" + slug + "-sm" + std::to_string(capability) + "-" + version +
          ".bin");
}

#ifdef TRT_MAJOR_RTX

struct RuntimeCache::Kernels {
  fs::path file;
  std::string kept;  ///< What the file holds.
  std::unique_ptr<nvinfer1::IRuntimeCache> cache;
  std::mutex busy;

  void read();
  void write();
};

void RuntimeCache::Kernels::read() try {
  std::error_code ignored;
  if (file.empty() || !fs::exists(file, ignored)) {
    return;
  }
  std::string content = content_of(file);
  if (cache->deserialize(content.data(), content.size())) {
    kept = std::move(content);
  } else {
    notice("the runtime cache " + file.string() +
           " is damaged, or of another GPU, driver or TensorRT-RTX; it is made anew");
  }
} catch (const Error& error) {
  notice(std::string("TensorRT-RTX compiles anew: ") + error.what());
}

void RuntimeCache::Kernels::write() try {
  const std::unique_ptr<nvinfer1::IHostMemory> made(cache->serialize());
  if (file.empty() || !made) {
    return;
  }
  const std::string_view content(static_cast<const char*>(made->data()), made->size());
  if (content != kept) {
    write_whole(file, content);
    kept = content;
  }
} catch (const Error& error) {
  notice(std::string("TensorRT-RTX compiles anew at every start: ") + error.what());
  file.clear();  // said once
}

RuntimeCache::RuntimeCache(nvinfer1::ICudaEngine& engine, fs::path file)
    : engine_(engine), kernels_(std::make_unique<Kernels>()) {
  const auto settings = Log::made<Error>([&] { return engine_.createRuntimeConfig(); }, kFailure);
  kernels_->file = std::move(file);
  kernels_->cache = Log::made<Error>([&] { return settings->createRuntimeCache(); }, kFailure);
  kernels_->read();
}

std::unique_ptr<nvinfer1::IExecutionContext> RuntimeCache::new_context() {
  const std::lock_guard<std::mutex> alone(kernels_->busy);
  const auto settings = Log::made<Error>([&] { return engine_.createRuntimeConfig(); }, kFailure);
  if (!settings->setRuntimeCache(*kernels_->cache)) {
    notice("TensorRT-RTX takes no runtime cache, so it compiles anew at every start");
  }
  settings->setExecutionContextAllocationStrategy(kUserManaged);
  auto made =
      Log::made<Error>([&] { return engine_.createExecutionContext(settings.get()); }, kFailure);
  kernels_->write();
  return made;
}

#else

struct RuntimeCache::Kernels {};

RuntimeCache::RuntimeCache(nvinfer1::ICudaEngine& engine, fs::path /*file*/) : engine_(engine) {}

std::unique_ptr<nvinfer1::IExecutionContext> RuntimeCache::new_context() {
  return Log::made<Error>([&] { return engine_.createExecutionContext(kUserManaged); }, kFailure);
}

#endif

RuntimeCache::~RuntimeCache() = default;

}  // namespace mrcfa

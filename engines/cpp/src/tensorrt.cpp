// The backend that runs a bundle's engines in TensorRT.
#include <utility>

#include "context.hpp"
#include "engines.hpp"
#include "lane.hpp"
#include "notice.hpp"
#include "runner.hpp"

namespace mrcfa {
namespace {

class TensorRtRunner final : public Runner {
 public:
  explicit TensorRtRunner(std::shared_ptr<const Engines> engines)
      : engines_(std::move(engines)),
        lane_(cuda::made_in<Lane>(engines_->context, engines_, false)) {}

  [[nodiscard]] std::string name() const override {
    return engine_title(engines_->engine, engines_->gpu, lane_->as_graphs());
  }

  [[nodiscard]] bool on_gpu() const override { return true; }

  void step(const Frames& frames, const Masks& masks) override {
    const cuda::Current current(*engines_->context);
    lane_->submit(frames, masks.in == Memory::host);
    lane_->result(masks);
  }

  /// Two frames in flight need a wide lane, which is made at the first call.
  void submit(const Frames& frames) override {
    const cuda::Current current(*engines_->context);
    if (!lane_->wide()) {
      auto wide = cuda::made_in<Lane>(engines_->context, engines_, true);
      wide->take_over(*lane_);
      lane_ = std::move(wide);
    }
    lane_->submit(frames, true);
  }

  void result(const Masks& masks) override {
    const cuda::Current current(*engines_->context);
    lane_->result(masks);
  }

  void reset(std::size_t stream) override {
    const cuda::Current current(*engines_->context);
    lane_->reset(stream);
  }

  [[nodiscard]] std::unique_ptr<Runner> sibling() const override {
    return std::make_unique<TensorRtRunner>(engines_);
  }

 private:
  std::shared_ptr<const Engines> engines_;
  std::shared_ptr<Lane> lane_;
};

}  // namespace

std::unique_ptr<Runner> open_tensorrt(const Bundle& bundle, const Options& options,
                                      const std::string& which) {
  const auto wanted = requested(bundle.manifest().engines, which, options.precision, bundle.path());
  const Gpu gpu = gpu_of(options.device);
  const auto context = std::make_shared<const cuda::Context>(gpu.index);
  auto [runner, sentence] =
      first_loaded(candidates(wanted, machine_of(gpu), bundle.path()), [&](const Engine& engine) {
        return std::make_unique<TensorRtRunner>(
            cuda::made_in<Engines>(context, context, gpu, bundle, options, engine));
      });
  if (!sentence.empty()) {
    notice(sentence);
  }
  return std::move(runner);
}

}  // namespace mrcfa

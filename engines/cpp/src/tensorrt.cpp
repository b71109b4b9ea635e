// The bundle's engines in TensorRT. The whole state stays on the GPU: each frame reads one half of
// a pair of buffers and writes the other, and a CUDA graph for either direction replays both
// engines.
#include <NvInferRuntime.h>

#include <array>
#include <map>
#include <utility>

#include "cuda.hpp"
#include "engines.hpp"
#include "log.hpp"
#include "logits.hpp"
#include "runner.hpp"

namespace mrcfa {
namespace {

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
    for (const auto& [in, out] : state_of(engines_->decoder.tensors)) {
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
                                      const std::string& which) {
  return std::make_unique<TensorRtRunner>(std::make_shared<const Engines>(bundle, options, which));
}

}  // namespace mrcfa

// The bundle's engines in TensorRT. The whole state stays on the GPU: each frame reads one half of
// a pair of buffers and writes the other, and a CUDA graph for either direction replays both
// engines.
#include <NvInferRuntime.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "context.hpp"
#include "cuda.hpp"
#include "engines.hpp"
#include "log.hpp"
#include "logits.hpp"
#include "notice.hpp"
#include "runner.hpp"

namespace mrcfa {
namespace {

/// Whether TensorRT can be captured on the stream; TensorRT-RTX knows, and others have to be tried.
template <class Context>
auto capturable(const Context& context, cudaStream_t stream, int /*preferred*/)
    -> decltype(context.isStreamCapturable(stream)) {
  return context.isStreamCapturable(stream);
}
template <class Context>
bool capturable(const Context& /*context*/, cudaStream_t /*stream*/, long /*otherwise*/) {
  return true;
}

/// All that one video needs on the GPU. To be made and destroyed in the engines' CUDA context, and
/// every call needs it current.
class Lane {
 public:
  explicit Lane(std::shared_ptr<const Engines> engines);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  /// Work that was queued on a caller's stream still uses the buffers.
  ~Lane() { cudaStreamSynchronize(stream()); }

  /// Whether frames are launched as CUDA graphs.
  [[nodiscard]] bool as_graphs() const { return graphs_[0] != nullptr; }
  void step(const Frame& frame);
  void reset();

 private:
  [[nodiscard]] cudaStream_t stream() const {
    return engines_->stream != nullptr ? engines_->stream : own_.get();
  }
  [[nodiscard]] void* address(const std::string& name, std::size_t turn) const;
  void bind(std::size_t turn);
  void enqueue(cudaStream_t stream);
  void capture();
  void take(const Frame& frame);
  void give(const Frame& frame);

  std::shared_ptr<const Engines> engines_;
  cuda::Owned<cudaStream_t> own_;
  std::map<std::string, cuda::DeviceMemory> buffers_;
  cuda::DeviceMemory scratch_;  ///< Of both contexts, which run one after the other.
  cuda::PinnedMemory image_;
  cuda::PinnedMemory answer_;
  cuda::Owned<cudaEvent_t> taken_;  ///< Once it is reached, `image_` may be written again.
  std::vector<std::unique_ptr<nvinfer1::IExecutionContext>> contexts_;  ///< Encoder, decoder.
  std::array<cuda::Owned<cudaGraphExec_t>, 2> graphs_;                  ///< Both or none.
  std::size_t turn_ = 0;
};

Lane::Lane(std::shared_ptr<const Engines> engines)
    : engines_(std::move(engines)),
      own_(cuda::new_stream()),
      image_(cuda::pinned_memory(engines_->image.bytes())),
      answer_(cuda::pinned_memory(engines_->answer.bytes())),
      taken_(cuda::new_event()) {
  std::int64_t scratch = 1;
  for (const Part* part : {&engines_->encoder, &engines_->decoder}) {
    scratch = std::max(scratch, part->engine->getDeviceMemorySizeV2());
    for (const TensorSpec& spec : part->tensors) {
      if (cuda::DeviceMemory& buffer = buffers_[spec.name]; !buffer) {
        buffer = cuda::device_memory(spec.bytes());
        cuda::check(cudaMemsetAsync(buffer.get(), 0, spec.bytes(), own_.get()), "clear memory");
      }
    }
  }
  scratch_ = cuda::device_memory(static_cast<std::size_t>(scratch));
  for (const Part* part : {&engines_->encoder, &engines_->decoder}) {
    contexts_.push_back(part->cache->new_context());
    contexts_.back()->setDeviceMemoryV2(scratch_.get(), scratch);
    // Engines tell profilers of every layer otherwise, in each run.
    contexts_.back()->setNvtxVerbosity(nvinfer1::ProfilingVerbosity::kNONE);
  }
  if (engines_->graphs) {
    capture();
  }
  cuda::check(cudaStreamSynchronize(own_.get()), "run the engines");
  reset();
}

void Lane::capture() {
  std::array<cuda::Owned<cudaGraphExec_t>, 2> graphs;
  for (std::size_t turn = 0; turn < graphs.size(); ++turn) {
    bind(turn);
    // A context sets itself up in its first run with new addresses, which must not be captured.
    enqueue(own_.get());
    try {
      for (const auto& context : contexts_) {
        if (!capturable(*context, own_.get(), 0)) {
          throw Error("this engine allocates memory or waits while it runs");
        }
      }
      graphs[turn] = cuda::captured(own_.get(), [this] { enqueue(own_.get()); });
    } catch (const Error& error) {
      notice(std::string("CUDA graphs cannot be recorded: ") + error.what() +
             "; kernels are launched one by one");
      return;
    }
  }
  graphs_ = std::move(graphs);
}

void Lane::step(const Frame& frame) {
  take(frame);
  if (as_graphs()) {
    cuda::check(cudaGraphLaunch(graphs_[turn_].get(), stream()), "run the engines");
  } else {
    bind(turn_);
    enqueue(stream());
  }
  give(frame);
  turn_ = 1 - turn_;
}

/// The state before the first frame, in the half that is read next.
void Lane::reset() {
  for (const auto& [in, out] : state_of(engines_->decoder.tensors)) {
    const std::size_t bytes = named(engines_->decoder.tensors, in).bytes();
    cuda::check(cudaMemsetAsync(address(in, turn_), 0, bytes, stream()), "clear memory");
  }
}

void Lane::take(const Frame& frame) {
  const std::size_t bytes = engines_->image.bytes();
  void* image = buffers_.at("image").get();
  if (frame.rgb_in == Memory::device) {
    cuda::check(cudaMemcpyAsync(image, frame.rgb, bytes, cudaMemcpyDeviceToDevice, stream()),
                "take the frame");
    return;
  }
  cuda::check(cudaEventSynchronize(taken_.get()), "take the frame");
  std::memcpy(image_.get(), frame.rgb, bytes);
  cuda::check(cudaMemcpyAsync(image, image_.get(), bytes, cudaMemcpyHostToDevice, stream()),
              "take the frame");
  cuda::check(cudaEventRecord(taken_.get(), stream()), "take the frame");
}

void Lane::give(const Frame& frame) {
  const std::size_t bytes = engines_->answer.bytes();
  const void* answer = buffers_.at(engines_->answer.name).get();
  const bool to_host = frame.mask_in == Memory::host;
  cuda::check(to_host
                  ? cudaMemcpyAsync(answer_.get(), answer, bytes, cudaMemcpyDeviceToHost, stream())
                  : cudaMemcpyAsync(frame.mask, answer, bytes, cudaMemcpyDeviceToDevice, stream()),
              "give the mask");
  if (to_host || engines_->stream == nullptr) {
    cuda::check(cudaStreamSynchronize(stream()), "run the engines");
  }
  if (engines_->answer.name == "logits") {
    mask_of_logits(answer_.get(), engines_->answer, engines_->network, engines_->frame, frame.mask);
  } else if (to_host) {
    std::memcpy(frame.mask, answer_.get(), bytes);
  }
}

/// Every other frame the two halves of the state change places.
void* Lane::address(const std::string& name, std::size_t turn) const {
  for (const auto& [in, out] : kState) {
    if (turn == 1 && (name == in || name == out)) {
      return buffers_.at(name == in ? out : in).get();
    }
  }
  return buffers_.at(name).get();
}

void Lane::bind(std::size_t turn) {
  const std::array<const Part*, 2> parts = {&engines_->encoder, &engines_->decoder};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const TensorSpec& spec : parts[i]->tensors) {
      contexts_[i]->setTensorAddress(spec.name.c_str(), address(spec.name, turn));
    }
  }
}

void Lane::enqueue(cudaStream_t stream) {
  Log::forget();
  for (const auto& context : contexts_) {
    if (!context->enqueueV3(stream)) {
      throw Error("TensorRT cannot run the engine: " + Log::complaint());
    }
  }
}

class TensorRtRunner final : public Runner {
 public:
  explicit TensorRtRunner(std::shared_ptr<const Engines> engines)
      : engines_(std::move(engines)), lane_(cuda::made_in<Lane>(engines_->context, engines_)) {}

  [[nodiscard]] std::string name() const override {
    return "tensorrt (" + engines_->name + (lane_->as_graphs() ? ")" : ", no CUDA graphs)");
  }

  [[nodiscard]] bool on_gpu() const override { return true; }

  void step(const Frame& frame) override {
    const cuda::Current current(*engines_->context);
    lane_->step(frame);
  }

  void reset() override {
    const cuda::Current current(*engines_->context);
    lane_->reset();
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
  const Gpu gpu = gpu_of(options.device);
  const auto context = std::make_shared<const cuda::Context>(gpu.index);
  return std::make_unique<TensorRtRunner>(
      cuda::made_in<Engines>(context, context, gpu, bundle, options, which));
}

}  // namespace mrcfa

// The backend that runs a bundle's graphs in ONNX Runtime.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>

#include "fitting.hpp"
#include "logits.hpp"
#include "notice.hpp"
#include "runner.hpp"
#include "sentence.hpp"
#include "sessions.hpp"
#include "vulkan.hpp"

namespace mrcfa {
namespace {

using ort::Api;
using ort::Owned;
using Bytes = std::vector<std::uint8_t>;

/// One run of a session: tensors by name in, tensors in the order of binding out. Every run has a
/// binding of its own, because a binding reuses its outputs' memory, in which the state lives on.
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
      : sessions_(std::move(sessions)), fresh_(sessions_->streams, true) {}

  [[nodiscard]] std::string name() const override { return sessions_->name; }
  [[nodiscard]] bool on_gpu() const override { return sessions_->provider != Provider::cpu; }

  ~OnnxRuntimeRunner() override {
    const webgpu::Turn held = sessions_->turn();
    state_.clear();
  }

  void step(const Frames& frames, const Masks& masks) override {
    if (sessions_->streams > 1) {
      on_host(frames.in, "takes frames of several streams");
      on_host(masks.in, "gives masks of several streams");
    }
    const webgpu::Turn held = sessions_->turn();
    clear_fresh();
    const auto features = encode(frames);
    Run decoder(sessions_->api, sessions_->decoder.get());
    for (std::size_t i = 0; i < features.size(); ++i) {
      decoder.input(sessions_->features[i], *features[i]);
    }
    for (std::size_t i = 0; i < state_.size(); ++i) {
      decoder.input(sessions_->state[i].first, *state_[i]);
      decoder.output(sessions_->state[i].second, *sessions_->state_place);
    }
    // The mask of one stream is written directly to the caller; others, and logits, are copied.
    const bool direct = sessions_->streams == 1 && sessions_->answer.name == "mask";
    answer_.resize(direct ? 0 : sessions_->answer.bytes());
    const auto answer = sessions_->over(direct ? masks.rows[0] : answer_.data(), sessions_->answer,
                                        direct ? masks.in : Memory::host);
    decoder.output(sessions_->answer.name, *answer);
    auto outputs = decoder();
    outputs.resize(state_.size());  // the answer is not part of the state
    keep_idle(frames, outputs);
    state_ = std::move(outputs);
    std::fill(fresh_.begin(), fresh_.end(), false);
    if (!direct) {
      give(masks);
    }
  }

  /// Computes the frame at once, because ONNX Runtime gains nothing from two frames in flight.
  void submit(const Frames& frames) override {
    std::vector<Bytes> made(sessions_->streams);
    std::vector<std::uint8_t*> rows(sessions_->streams);
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i].resize(frames.rows[i] == nullptr ? 0 : area());
      rows[i] = frames.rows[i] == nullptr ? nullptr : made[i].data();
    }
    step(frames, {rows.data(), Memory::host});
    waiting_.push_back(std::move(made));
  }

  void result(const Masks& masks) override {
    on_host(masks.in, "gives masks of submitted frames");
    for (std::size_t i = 0; i < sessions_->streams; ++i) {
      std::copy(waiting_.front()[i].begin(), waiting_.front()[i].end(), masks.rows[i]);
    }
    waiting_.pop_front();
  }

  void reset(std::size_t stream) override {
    fresh_[stream] = true;
    waiting_.clear();
  }

  [[nodiscard]] std::unique_ptr<Runner> sibling() const override {
    return std::make_unique<OnnxRuntimeRunner>(sessions_);
  }

 private:
  [[nodiscard]] std::vector<Owned<OrtValue>> encode(const Frames& frames) {
    const std::uint8_t* pixels = frames.rows[0];
    if (sessions_->streams > 1) {
      gather(frames);
      pixels = images_.data();
    }
    const auto image = sessions_->over(pixels, sessions_->image, frames.in);
    Run encoder(sessions_->api, sessions_->encoder.get());
    encoder.input("image", *image);
    for (const std::string& name : sessions_->features) {
      encoder.output(name, *sessions_->place);
    }
    return encoder();
  }

  /// Refuses memory on the device, because ONNX Runtime cannot copy within a GPU's memory.
  void on_host(Memory memory, const char* what) const {
    if (memory == Memory::device) {
      throw Error(sessions_->name + " " + what + " on the host alone; copy them");
    }
  }

  void gather(const Frames& frames) {
    images_.resize(sessions_->image.bytes());
    const std::size_t bytes = row(sessions_->image);
    for (std::size_t i = 0; i < sessions_->streams; ++i) {
      if (frames.rows[i] != nullptr) {
        std::memcpy(images_.data() + i * bytes, frames.rows[i], bytes);
      }
    }
  }

  void give(const Masks& masks) const {
    for (std::size_t i = 0; i < sessions_->streams; ++i) {
      const std::uint8_t* answer = answer_.data() + i * row(sessions_->answer);
      if (masks.rows[i] == nullptr) {
        continue;
      }
      if (sessions_->answer.name == "logits") {
        mask_of_logits(answer, sessions_->answer, sessions_->network, sessions_->frame,
                       masks.rows[i]);
      } else {
        std::memcpy(masks.rows[i], answer, area());
      }
    }
  }

  /// Clears the state of fresh streams. If all are fresh, the state is the zeros that siblings
  /// share.
  void clear_fresh() {
    const bool whole = std::all_of(fresh_.begin(), fresh_.end(), [](bool fresh) { return fresh; });
    state_.resize(sessions_->state_specs.size());
    for (std::size_t k = 0; k < state_.size(); ++k) {
      const TensorSpec& spec = sessions_->state_specs[k];
      if (whole) {
        state_[k] = sessions_->over(sessions_->zeros.data(), spec);
      }
      for (std::size_t i = 0; i < sessions_->streams && !whole; ++i) {
        if (fresh_[i]) {
          std::memset(data(*state_[k]) + i * row(spec), 0, row(spec));
        }
      }
    }
  }

  /// Copies the state of streams that have no frame as it was.
  void keep_idle(const Frames& frames, const std::vector<Owned<OrtValue>>& after) const {
    for (std::size_t i = 0; i < sessions_->streams; ++i) {
      for (std::size_t k = 0; frames.rows[i] == nullptr && k < state_.size(); ++k) {
        const std::size_t bytes = row(sessions_->state_specs[k]);
        std::memcpy(data(*after[k]) + i * bytes, data(*state_[k]) + i * bytes, bytes);
      }
    }
  }

  [[nodiscard]] std::uint8_t* data(OrtValue& value) const {
    void* found = nullptr;
    sessions_->api.check(sessions_->api->GetTensorMutableData(&value, &found));
    return static_cast<std::uint8_t*>(found);
  }

  /// The bytes of one stream in a tensor.
  [[nodiscard]] std::size_t row(const TensorSpec& spec) const {
    return spec.bytes() / sessions_->streams;
  }

  [[nodiscard]] std::size_t area() const {
    const auto [height, width] = sessions_->frame;
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
  }

  std::shared_ptr<const Sessions> sessions_;
  std::vector<Owned<OrtValue>> state_;  ///< The tensors in the order of `Sessions::state`.
  std::vector<bool> fresh_;             ///< Streams whose state is cleared before the next frame.
  Bytes images_;
  Bytes answer_;
  std::deque<std::vector<Bytes>> waiting_;  ///< The masks of each submitted step.
};

}  // namespace

namespace {

/// The GPUs that are tried without being named, in this order.
std::vector<Provider> preferred(const Bundle& bundle, const Options& options) {
  std::vector<Provider> made;
  if (Api().has_provider(kCudaProvider) &&
      bundle.find_variant(options.precision, Device::gpu) != nullptr) {
    made.push_back(Provider::cuda);
  }
  const std::vector<VulkanDevice> devices = webgpu::library().empty()
                                                ? std::vector<VulkanDevice>()
                                                : vulkan_devices();
  if (!devices.empty() && !devices[0].software && options.cuda_stream == nullptr) {
    made.push_back(Provider::webgpu);
  }
  return made;
}

}  // namespace

std::unique_ptr<Runner> open_onnxruntime(const Bundle& bundle, const Options& options,
                                         const std::string& provider) {
  const auto opened = [&](Provider on) {
    return std::make_unique<OnnxRuntimeRunner>(
        std::make_shared<const Sessions>(bundle, options, on));
  };
  const std::array<std::pair<const char*, Provider>, 3> names = {
      {{"cuda", Provider::cuda}, {"webgpu", Provider::webgpu}, {"cpu", Provider::cpu}}};
  for (const auto& [name, on] : names) {
    if (provider == name) {
      return opened(on);
    }
  }
  if (!provider.empty()) {
    throw Error("unknown provider " + in_quotes(provider) + "; choose one of cuda, webgpu, cpu");
  }
  std::vector<std::string> reasons;
  std::unique_ptr<Runner> runner;
  for (const Provider on : preferred(bundle, options)) {
    try {
      runner = opened(on);
      break;
    } catch (const Unfit& error) {
      if (options.strict) {
        throw Error(error.what());
      }
      reasons.emplace_back(error.what());
    }
  }
  if (runner == nullptr) {
    runner = opened(Provider::cpu);
  }
  if (!reasons.empty()) {
    notice(joined(reasons) + "; " + runner->name() + " runs instead");
  }
  return runner;
}

}  // namespace mrcfa

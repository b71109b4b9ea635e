#include "lane.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "log.hpp"
#include "logits.hpp"
#include "notice.hpp"

namespace mrcfa {
namespace {

constexpr std::size_t kEncoder = 0;
constexpr std::size_t kDecoder = 1;

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

/// The tensor that a state becomes, or was; empty for other tensors.
std::string other_half(const std::string& name) {
  for (const auto& [in, out] : kState) {
    if (name == in || name == out) {
      return name == in ? out : in;
    }
  }
  return "";
}

}  // namespace

Lane::Lane(std::shared_ptr<const Engines> engines, bool wide)
    : engines_(std::move(engines)),
      parts_{&engines_->encoder, &engines_->decoder},
      wide_(wide),
      own_(cuda::new_stream()),
      fresh_(engines_->streams, true) {
  if (wide_) {
    beside_ = cuda::new_stream();
    masks_ = cuda::new_stream();
  }
  allocate();
  if (engines_->graphs) {
    capture();
  }
  cuda::check(cudaStreamSynchronize(own_.get()), "run the engines");
  engines_->cache->save();
}

/// Work that is queued still uses the buffers.
Lane::~Lane() {
  for (const cudaStream_t stream : {encoding(), decoding(), giving()}) {
    cudaStreamSynchronize(stream);
  }
}

cudaStream_t Lane::giving() const {
  return wide_ && engines_->stream == nullptr ? masks_.get() : encoding();
}

void Lane::allocate() {
  const std::size_t places = wide_ ? 2 : 1;
  for (std::size_t i = 0; i < places; ++i) {
    image_[i] = cuda::pinned_memory(engines_->image.bytes());
    answer_[i] = cuda::pinned_memory(engines_->answer.bytes());
    for (const Part* part : parts_) {
      for (const TensorSpec& spec : part->tensors) {
        if (i == 1 && !other_half(spec.name).empty()) {
          continue;  // the state has two buffers already
        }
        if (cuda::DeviceMemory& buffer = buffers_[i][spec.name]; !buffer) {
          buffer = cuda::device_memory(spec.bytes());
          cuda::check(cudaMemsetAsync(buffer.get(), 0, spec.bytes(), own_.get()), "clear memory");
        }
      }
    }
  }
  for (std::size_t i = 0; i < 2; ++i) {
    taken_[i] = cuda::new_event();
    encoded_[i] = cuda::new_event();
    decoded_[i] = cuda::new_event();
  }
  const std::array<std::int64_t, 2> wanted = {parts_[0]->engine->getDeviceMemorySizeV2(),
                                              parts_[1]->engine->getDeviceMemorySizeV2()};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t bytes =
        std::max<std::int64_t>(wide_ ? wanted[i] : std::max(wanted[0], wanted[1]), 1);
    if (i < places) {
      scratch_[i] = cuda::device_memory(static_cast<std::size_t>(bytes));
    }
    contexts_[i] = engines_->cache->new_context(*parts_[i]->engine);
    contexts_[i]->setDeviceMemoryV2(scratch_[place(i)].get(), bytes);
    // Engines tell profilers of every layer otherwise, in each run.
    contexts_[i]->setNvtxVerbosity(nvinfer1::ProfilingVerbosity::kNONE);
  }
}

void Lane::capture() {
  decltype(graphs_) graphs;
  for (std::size_t turn = 0; turn < 2; ++turn) {
    for (const std::size_t part : {kEncoder, kDecoder}) {
      bind(part, turn);
      // A context sets itself up in its first run with new addresses, which must not be captured.
      enqueue(part, own_.get());
      try {
        if (!capturable(*contexts_[part], own_.get(), 0)) {
          throw Error("this engine allocates memory or waits while it runs");
        }
        graphs[part][turn] = cuda::captured(own_.get(), [&] { enqueue(part, own_.get()); });
      } catch (const Error& error) {
        notice(std::string("CUDA graphs cannot be recorded: ") + error.what() +
               "; kernels are launched one by one");
        return;
      }
    }
  }
  graphs_ = std::move(graphs);
}

void Lane::submit(const Frames& frames, bool to_host) {
  upload(frames);
  cuda::wait(encoding(), decoded_[turn_]);
  run(kEncoder, encoding());
  cuda::record(encoded_[turn_], encoding());
  cuda::wait(decoding(), encoded_[turn_]);
  clear_fresh();
  run(kDecoder, decoding());
  keep_idle(frames);
  if (to_host) {
    const TensorSpec& answer = engines_->answer;
    cuda::check(cudaMemcpyAsync(answer_[place(turn_)].get(), address(answer.name, turn_),
                                answer.bytes(), cudaMemcpyDeviceToHost, decoding()),
                "give the mask");
  }
  cuda::record(decoded_[turn_], decoding());
  turn_ = 1 - turn_;
}

void Lane::result(const Masks& masks) {
  const TensorSpec& answer = engines_->answer;
  const std::size_t turn = std::exchange(result_, 1 - result_);
  const bool to_host = masks.in == Memory::host;
  if (to_host) {
    cuda::check(cudaEventSynchronize(decoded_[turn].get()), "run the engines");
  } else {
    cuda::wait(giving(), decoded_[turn]);
  }
  for (std::size_t i = 0; i < engines_->streams; ++i) {
    std::uint8_t* mask = masks.rows[i];
    const std::uint8_t* host = answer_[place(turn)].get() + i * row(answer);
    if (mask == nullptr) {
      continue;
    }
    if (answer.name == "logits") {
      mask_of_logits(host, answer, engines_->network, engines_->frame, mask);
    } else if (to_host) {
      std::memcpy(mask, host, row(answer));
    } else {
      cuda::check(cudaMemcpyAsync(mask, address(answer.name, turn) + i * row(answer), row(answer),
                                  cudaMemcpyDeviceToDevice, giving()),
                  "give the mask");
    }
  }
  if (!to_host && engines_->stream == nullptr) {
    cuda::check(cudaStreamSynchronize(giving()), "run the engines");
  }
}

void Lane::reset(std::size_t stream) {
  fresh_[stream] = true;
  result_ = turn_;
  if (wide_) {
    for (const auto& taken : taken_) {
      cuda::check(cudaEventSynchronize(taken.get()), "take the frame");
    }
  }
}

void Lane::take_over(const Lane& other) {
  for (const auto& [in, out] : state_of(engines_->decoder.tensors)) {
    const std::size_t bytes = named(engines_->decoder.tensors, in).bytes();
    cuda::check(cudaMemcpyAsync(address(in, turn_), other.address(in, other.turn_), bytes,
                                cudaMemcpyDeviceToDevice, other.decoding()),
                "copy the state");
  }
  cuda::check(cudaStreamSynchronize(other.decoding()), "copy the state");
  fresh_ = other.fresh_;
}

void Lane::upload(const Frames& frames) {
  const bool from_host = frames.in == Memory::host;
  const std::size_t bytes = row(engines_->image);
  if (from_host) {
    cuda::check(cudaEventSynchronize(taken_[place(turn_)].get()), "take the frame");
  }
  for (std::size_t i = 0; i < engines_->streams; ++i) {
    const std::uint8_t* frame = frames.rows[i];
    if (frame == nullptr) {
      continue;
    }
    if (from_host) {
      std::uint8_t* pinned = image_[place(turn_)].get() + i * bytes;
      std::memcpy(pinned, frame, bytes);
      frame = pinned;
    }
    cuda::check(
        cudaMemcpyAsync(address("image", turn_) + i * bytes, frame, bytes,
                        from_host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice, encoding()),
        "take the frame");
  }
  cuda::record(taken_[place(turn_)], encoding());
}

/// The state before the first frame, in the half that is read next.
void Lane::clear_fresh() {
  for (const auto& [in, out] : state_of(engines_->decoder.tensors)) {
    const std::size_t bytes = row(named(engines_->decoder.tensors, in));
    for (std::size_t i = 0; i < engines_->streams; ++i) {
      if (fresh_[i]) {
        cuda::check(cudaMemsetAsync(address(in, turn_) + i * bytes, 0, bytes, decoding()),
                    "clear memory");
      }
    }
  }
  std::fill(fresh_.begin(), fresh_.end(), false);
}

/// The state of streams that have no frame, carried over as it was.
void Lane::keep_idle(const Frames& frames) {
  for (const auto& [in, out] : state_of(engines_->decoder.tensors)) {
    const std::size_t bytes = row(named(engines_->decoder.tensors, in));
    for (std::size_t i = 0; i < engines_->streams; ++i) {
      if (frames.rows[i] == nullptr) {
        cuda::check(cudaMemcpyAsync(address(out, turn_) + i * bytes, address(in, turn_) + i * bytes,
                                    bytes, cudaMemcpyDeviceToDevice, decoding()),
                    "keep the state");
      }
    }
  }
}

std::uint8_t* Lane::address(const std::string& name, std::size_t turn) const {
  const std::string other = other_half(name);
  const cuda::DeviceMemory& memory =
      other.empty() ? buffers_[place(turn)].at(name) : buffers_[0].at(turn == 0 ? name : other);
  return static_cast<std::uint8_t*>(memory.get());
}

void Lane::bind(std::size_t part, std::size_t turn) {
  for (const TensorSpec& spec : parts_[part]->tensors) {
    contexts_[part]->setTensorAddress(spec.name.c_str(), address(spec.name, turn));
  }
}

void Lane::enqueue(std::size_t part, cudaStream_t stream) {
  Log::forget();
  if (!contexts_[part]->enqueueV3(stream)) {
    throw Error("TensorRT cannot run the engine: " + Log::complaint());
  }
}

void Lane::run(std::size_t part, cudaStream_t stream) {
  if (as_graphs()) {
    cuda::check(cudaGraphLaunch(graphs_[part][turn_].get(), stream), "run the engines");
  } else {
    bind(part, turn_);
    enqueue(part, stream);
  }
}

}  // namespace mrcfa

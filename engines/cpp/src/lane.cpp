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

/// True if TensorRT can be captured on the stream. TensorRT-RTX knows; others have to be tried.
template <class Context>
auto capturable(const Context& context, cudaStream_t stream, int /*preferred*/)
    -> decltype(context.isStreamCapturable(stream)) {
  return context.isStreamCapturable(stream);
}
template <class Context>
bool capturable(const Context& /*context*/, cudaStream_t /*stream*/, long /*otherwise*/) {
  return true;
}

/// The name of the other half of a pair of state tensors, such as `memory_out` for `memory`; empty
/// for tensors that are no state.
std::string other_half(const std::string& name) {
  for (const auto& [in, out] : kState) {
    if (name == in || name == out) {
      return name == in ? out : in;
    }
  }
  return "";
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  cuda::check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

}  // namespace

Lane::Lane(std::shared_ptr<const Engines> engines, bool wide)
    : engines_(std::move(engines)),
      parts_{&engines_->encoder, &engines_->decoder},
      wide_(wide),
      own_(cuda::new_stream()),
      fresh_(engines_->streams, true) {
  if (wide_) {
    decoder_ = cuda::new_stream();
    masks_ = cuda::new_stream();
  }
  allocate();
  if (engines_->graphs) {
    capture();
  }
  cuda::check(cudaStreamSynchronize(own_.get()), "cudaStreamSynchronize");
  engines_->cache->save();
}

/// Waits, because queued work still uses the buffers.
Lane::~Lane() {
  for (const cudaStream_t stream : {encoder_stream(), decoder_stream(), mask_stream()}) {
    cudaStreamSynchronize(stream);
  }
}

cudaStream_t Lane::mask_stream() const {
  return wide_ && engines_->stream == nullptr ? masks_.get() : encoder_stream();
}

void Lane::allocate() {
  const std::size_t slots = wide_ ? 2 : 1;
  for (std::size_t i = 0; i < slots; ++i) {
    image_[i] = cuda::pinned_memory(engines_->image.bytes());
    answer_[i] = cuda::pinned_memory(engines_->answer.bytes());
    for (const Part* part : parts_) {
      for (const TensorSpec& spec : part->tensors) {
        if (i == 1 && !other_half(spec.name).empty()) {
          continue;  // the state has two buffers already
        }
        if (cuda::DeviceMemory& buffer = buffers_[i][spec.name]; !buffer) {
          buffer = cuda::device_memory(spec.bytes());
          cuda::check(cudaMemsetAsync(buffer.get(), 0, spec.bytes(), own_.get()),
                      "cudaMemsetAsync");
        }
      }
    }
  }
  for (std::size_t i = 0; i < 2; ++i) {
    uploaded_[i] = cuda::new_event();
    encoded_[i] = cuda::new_event();
    decoded_[i] = cuda::new_event();
  }
  for (std::size_t i = 0; i < 2; ++i) {
    if (i < slots) {
      scratch_[i] = cuda::device_memory(static_cast<std::size_t>(scratch_bytes(i)));
    }
    contexts_[i][0] = new_context(i);
  }
}

std::size_t Lane::graph_number(std::size_t part, std::size_t index) const {
  return part == kEncoder ? slot(index) : index;
}

std::unique_ptr<nvinfer1::IExecutionContext> Lane::new_context(std::size_t part) const {
  auto context = engines_->cache->new_context(*parts_[part]->engine);
  context->setDeviceMemoryV2(scratch_[slot(part)].get(), scratch_bytes(part));
  // Otherwise engines report every layer to profilers, in each run.
  context->setNvtxVerbosity(nvinfer1::ProfilingVerbosity::kNONE);
  return context;
}

/// The scratch memory of a part, which both parts of a narrow lane share.
std::int64_t Lane::scratch_bytes(std::size_t part) const {
  std::int64_t bytes = parts_[part]->engine->getDeviceMemorySizeV2();
  if (!wide_) {
    bytes = std::max(bytes, parts_[1 - part]->engine->getDeviceMemorySizeV2());
  }
  return std::max<std::int64_t>(bytes, 1);
}

void Lane::capture() {
  decltype(graphs_) graphs;
  for (std::size_t index = 0; index < 2; ++index) {
    for (const std::size_t part : {kEncoder, kDecoder}) {
      const std::size_t number = graph_number(part, index);
      if (graphs[part][number] != nullptr) {
        continue;  // a narrow lane has one set of the encoder's buffers
      }
      auto& context = contexts_[part][number];
      if (context == nullptr) {
        context = new_context(part);
      }
      // In its first run a context sets itself up, which cannot be captured.
      enqueue(part, index, *context, own_.get());
      try {
        if (!capturable(*context, own_.get(), 0)) {
          throw Error("this engine allocates memory or waits while it runs");
        }
        graphs[part][number] = cuda::captured(
            own_.get(), [&] { enqueue(part, index, *context, own_.get()); });
      } catch (const Error& error) {
        cuda::check(cudaStreamSynchronize(own_.get()), "cudaStreamSynchronize");
        for (auto& contexts : contexts_) {
          contexts[1].reset();  // without graphs one does all work
        }
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
  cuda::wait(encoder_stream(), decoded_[index_]);
  run(kEncoder, encoder_stream());
  cuda::record(encoded_[index_], encoder_stream());
  cuda::wait(decoder_stream(), encoded_[index_]);
  clear_fresh();
  run(kDecoder, decoder_stream());
  keep_idle(frames);
  if (to_host) {
    const TensorSpec& answer = engines_->answer;
    copy(answer_[slot(index_)].get(), address(answer.name, index_), answer.bytes(),
         cudaMemcpyDeviceToHost, decoder_stream());
  }
  cuda::record(decoded_[index_], decoder_stream());
  index_ = 1 - index_;
}

void Lane::result(const Masks& masks) {
  const TensorSpec& answer = engines_->answer;
  const std::size_t index = std::exchange(result_index_, 1 - result_index_);
  const bool to_host = masks.in == Memory::host;
  if (to_host) {
    cuda::check(cudaEventSynchronize(decoded_[index].get()), "cudaEventSynchronize");
  } else {
    cuda::wait(mask_stream(), decoded_[index]);
  }
  for (std::size_t i = 0; i < engines_->streams; ++i) {
    std::uint8_t* mask = masks.rows[i];
    const std::uint8_t* host = answer_[slot(index)].get() + i * row(answer);
    if (mask == nullptr) {
      continue;
    }
    if (answer.name == "logits") {
      mask_of_logits(host, answer, engines_->network, engines_->frame, mask);
    } else if (to_host) {
      std::memcpy(mask, host, row(answer));
    } else {
      copy(mask, address(answer.name, index) + i * row(answer), row(answer),
           cudaMemcpyDeviceToDevice, mask_stream());
    }
  }
  if (!to_host && engines_->stream == nullptr) {
    cuda::check(cudaStreamSynchronize(mask_stream()), "cudaStreamSynchronize");
  }
}

void Lane::reset(std::size_t stream) {
  fresh_[stream] = true;
  result_index_ = index_;
  if (wide_) {
    for (const auto& uploaded : uploaded_) {
      cuda::check(cudaEventSynchronize(uploaded.get()), "cudaEventSynchronize");
    }
  }
}

void Lane::take_over(const Lane& other) {
  for (const auto& [in, out] : state_of(engines_->decoder.tensors)) {
    const std::size_t bytes = named(engines_->decoder.tensors, in).bytes();
    copy(address(in, index_), other.address(in, other.index_), bytes, cudaMemcpyDeviceToDevice,
         other.decoder_stream());
  }
  cuda::check(cudaStreamSynchronize(other.decoder_stream()), "cudaStreamSynchronize");
  fresh_ = other.fresh_;
}

/// Refuses frames in another GPU's memory: to copy from there needs peer access, which not all pairs
/// of GPUs have, so one rule holds for all.
void Lane::check_place(const Frames& frames) const {
  for (std::size_t i = 0; i < engines_->streams; ++i) {
    if (frames.in == Memory::host || frames.rows[i] == nullptr) {
      continue;
    }
    cudaPointerAttributes place{};
    cuda::check(cudaPointerGetAttributes(&place, frames.rows[i]), "cudaPointerGetAttributes");
    const int here = engines_->gpu.index;
    if (place.type != cudaMemoryTypeUnregistered && place.device != here) {
      throw Error("the frame is on GPU " + std::to_string(place.device) +
                  " and its stream works on GPU " + std::to_string(here) +
                  "; copy the frame to GPU " + std::to_string(here) +
                  ", or open the stream with Options::device " + std::to_string(place.device));
    }
  }
}

void Lane::upload(const Frames& frames) {
  check_place(frames);
  const bool from_host = frames.in == Memory::host;
  const std::size_t bytes = row(engines_->image);
  const std::size_t used = slot(index_);
  if (from_host) {
    cuda::check(cudaEventSynchronize(uploaded_[used].get()), "cudaEventSynchronize");
  }
  for (std::size_t i = 0; i < engines_->streams; ++i) {
    const std::uint8_t* frame = frames.rows[i];
    if (frame == nullptr) {
      continue;
    }
    if (from_host) {
      std::uint8_t* pinned = image_[used].get() + i * bytes;
      std::memcpy(pinned, frame, bytes);
      frame = pinned;
    }
    copy(address("image", index_) + i * bytes, frame, bytes,
         from_host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice, encoder_stream());
  }
  cuda::record(uploaded_[used], encoder_stream());
}

/// Clears the state of fresh streams in the half that is read next.
void Lane::clear_fresh() {
  for (const auto& [in, out] : state_of(engines_->decoder.tensors)) {
    const std::size_t bytes = row(named(engines_->decoder.tensors, in));
    for (std::size_t i = 0; i < engines_->streams; ++i) {
      if (fresh_[i]) {
        cuda::check(cudaMemsetAsync(address(in, index_) + i * bytes, 0, bytes, decoder_stream()),
                    "cudaMemsetAsync");
      }
    }
  }
  std::fill(fresh_.begin(), fresh_.end(), false);
}

/// Copies the state of streams that have no frame as it was.
void Lane::keep_idle(const Frames& frames) {
  for (const auto& [in, out] : state_of(engines_->decoder.tensors)) {
    const std::size_t bytes = row(named(engines_->decoder.tensors, in));
    for (std::size_t i = 0; i < engines_->streams; ++i) {
      if (frames.rows[i] == nullptr) {
        copy(address(out, index_) + i * bytes, address(in, index_) + i * bytes, bytes,
             cudaMemcpyDeviceToDevice, decoder_stream());
      }
    }
  }
}

std::uint8_t* Lane::address(const std::string& name, std::size_t index) const {
  const std::string other = other_half(name);
  const cuda::DeviceMemory& memory =
      other.empty() ? buffers_[slot(index)].at(name) : buffers_[0].at(index == 0 ? name : other);
  return static_cast<std::uint8_t*>(memory.get());
}

void Lane::enqueue(std::size_t part, std::size_t index, nvinfer1::IExecutionContext& context,
                   cudaStream_t stream) {
  for (const TensorSpec& spec : parts_[part]->tensors) {
    context.setTensorAddress(spec.name.c_str(), address(spec.name, index));
  }
  Log::clear();
  if (!context.enqueueV3(stream)) {
    throw Error("TensorRT cannot run the engine: " + Log::first_error());
  }
}

void Lane::run(std::size_t part, cudaStream_t stream) {
  if (as_graphs()) {
    const auto& graph = graphs_[part][graph_number(part, index_)];
    cuda::check(cudaGraphLaunch(graph.get(), stream), "cudaGraphLaunch");
  } else {
    enqueue(part, index_, *contexts_[part][0], stream);
  }
}

}  // namespace mrcfa

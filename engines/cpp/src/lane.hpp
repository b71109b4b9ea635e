// A place on the GPU where a bundle's engines run for its streams.
#pragma once

#include <NvInferRuntime.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda.hpp"
#include "engines.hpp"
#include "runner.hpp"

namespace mrcfa {

/// All that the streams of a runner need on the GPU. The state stays there: each frame reads one
/// half of a pair of buffers and writes the other, and which is which is its turn.
///
/// A wide lane has everything else twice as well, one for each turn, and a CUDA stream for either
/// engine: the encoder works on a frame while the decoder is still at the one before. In a narrow
/// lane all is done in order on one CUDA stream, and both engines share one scratch memory.
///
/// To be made and destroyed in the engines' CUDA context, and every call needs it current.
class Lane {
 public:
  Lane(std::shared_ptr<const Engines> engines, bool wide);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  [[nodiscard]] bool wide() const { return wide_; }
  /// Whether engines are launched as CUDA graphs.
  [[nodiscard]] bool as_graphs() const { return graphs_[0][0] != nullptr; }

  /// Queue the next step. In a wide lane two may be under way, in a narrow one a single one.
  void submit(const Frames& frames, bool to_host);
  /// The masks of the oldest step; on the host only if that was said when it was submitted.
  void result(const Masks& masks);
  /// Masks of steps under way are not to be had any more, and their frames not read any more.
  void reset(std::size_t stream);
  /// Go on where another lane is that has no step under way.
  void take_over(const Lane& other);

 private:
  using Events = std::array<cuda::Owned<cudaEvent_t>, 2>;

  /// Frames are read, and masks on the device written, on the caller's stream if he has one.
  [[nodiscard]] cudaStream_t encoding() const {
    return engines_->stream != nullptr ? engines_->stream : own_.get();
  }
  [[nodiscard]] cudaStream_t decoding() const { return wide_ ? beside_.get() : encoding(); }
  [[nodiscard]] cudaStream_t giving() const;
  [[nodiscard]] std::size_t place(std::size_t turn) const { return wide_ ? turn : 0; }
  [[nodiscard]] std::uint8_t* address(const std::string& name, std::size_t turn) const;
  /// The part of a tensor that is one stream's.
  [[nodiscard]] std::size_t row(const TensorSpec& spec) const {
    return spec.bytes() / engines_->streams;
  }

  void allocate();
  void capture();
  void bind(std::size_t part, std::size_t turn);
  void enqueue(std::size_t part, cudaStream_t stream);
  void run(std::size_t part, cudaStream_t stream);
  void upload(const Frames& frames);
  void clear_fresh();
  void keep_idle(const Frames& frames);

  std::shared_ptr<const Engines> engines_;
  std::array<const Part*, 2> parts_;  ///< Encoder, decoder.
  bool wide_;
  cuda::Owned<cudaStream_t> own_;
  cuda::Owned<cudaStream_t> beside_;
  cuda::Owned<cudaStream_t> masks_;
  std::array<std::map<std::string, cuda::DeviceMemory>, 2> buffers_;
  std::array<cuda::DeviceMemory, 2> scratch_;
  std::array<cuda::PinnedMemory, 2> image_;
  std::array<cuda::PinnedMemory, 2> answer_;
  Events taken_;    ///< The frames were read, and `image_` may be written again.
  Events encoded_;  ///< The features are there.
  Events decoded_;  ///< The answer is there, and the features may be written again.
  std::array<std::unique_ptr<nvinfer1::IExecutionContext>, 2> contexts_;
  std::array<std::array<cuda::Owned<cudaGraphExec_t>, 2>, 2> graphs_;  ///< Of either turn, or none.
  std::vector<bool> fresh_;  ///< Streams whose state is to be cleared before their next frame.
  std::size_t turn_ = 0;     ///< Of the next step.
  std::size_t result_ = 0;   ///< The turn of the next result.
};

}  // namespace mrcfa

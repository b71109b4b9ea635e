// The buffers and contexts in which an engine runs for the streams of a runner.
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

/// Everything that the streams of a runner need on the GPU. The state stays there: each frame reads
/// one half of a pair of buffers and writes the other. The frame's buffer index, 0 or 1, says
/// which.
///
/// A wide lane has two of all other buffers as well, one for each buffer index, and a CUDA stream
/// for each plan: the encoder works on a frame while the decoder works on the one before. In a
/// narrow lane all work is done in order on one CUDA stream, and both plans share one scratch
/// memory.
///
/// Each CUDA graph has an execution context: one for each set of the encoder's buffers, and one for
/// each half of the state. Contexts of a plan never run at once, so they share its scratch memory.
/// Without graphs there is one context for each plan.
///
/// A lane is made and destroyed in the engines' CUDA context, and every call needs it current.
class Lane {
 public:
  Lane(std::shared_ptr<const Engines> engines, bool wide);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  [[nodiscard]] bool wide() const { return wide_; }
  /// True if the plans are launched as CUDA graphs.
  [[nodiscard]] bool as_graphs() const { return graphs_[0][0] != nullptr; }

  /// Queues the next step. Two may be under way in a wide lane, one in a narrow lane.
  void submit(const Frames& frames, bool to_host);
  /// Gives the masks of the oldest step. Masks on the host must have been asked for in `submit`.
  void result(const Masks& masks);
  /// The stream's next frame starts a new video. Drops the steps under way, and waits until their
  /// frames are read.
  void reset(std::size_t stream);
  /// Continues where another lane is, which must have no step under way.
  void take_over(const Lane& other);

 private:
  using Events = std::array<cuda::Owned<cudaEvent_t>, 2>;

  /// The caller's stream if there is one: frames are read, and masks on the device written, on it.
  [[nodiscard]] cudaStream_t encoder_stream() const {
    return engines_->stream != nullptr ? engines_->stream : own_.get();
  }
  [[nodiscard]] cudaStream_t decoder_stream() const {
    return wide_ ? decoder_.get() : encoder_stream();
  }
  /// The stream on which masks on the device are written.
  [[nodiscard]] cudaStream_t mask_stream() const;
  /// Which set of buffers a frame of that buffer index uses, its state aside.
  [[nodiscard]] std::size_t slot(std::size_t index) const { return wide_ ? index : 0; }
  [[nodiscard]] std::uint8_t* address(const std::string& name, std::size_t index) const;
  /// The bytes of one stream in a tensor.
  [[nodiscard]] std::size_t row(const TensorSpec& spec) const {
    return spec.bytes() / engines_->streams;
  }

  /// The number of a part's graph for a frame of that buffer index.
  [[nodiscard]] std::size_t graph_number(std::size_t part, std::size_t index) const;

  void allocate();
  [[nodiscard]] std::unique_ptr<nvinfer1::IExecutionContext> new_context(std::size_t part) const;
  [[nodiscard]] std::int64_t scratch_bytes(std::size_t part) const;
  void capture();
  void check_place(const Frames& frames) const;
  void enqueue(std::size_t part, std::size_t index, nvinfer1::IExecutionContext& context,
               cudaStream_t stream);
  void run(std::size_t part, cudaStream_t stream);
  void upload(const Frames& frames);
  void clear_fresh();
  void keep_idle(const Frames& frames);

  std::shared_ptr<const Engines> engines_;
  std::array<const Part*, 2> parts_;  ///< Encoder, decoder.
  bool wide_;
  cuda::Owned<cudaStream_t> own_;
  cuda::Owned<cudaStream_t> decoder_;
  cuda::Owned<cudaStream_t> masks_;
  std::array<std::map<std::string, cuda::DeviceMemory>, 2> buffers_;
  std::array<cuda::DeviceMemory, 2> scratch_;
  std::array<cuda::PinnedMemory, 2> image_;
  std::array<cuda::PinnedMemory, 2> answer_;
  Events uploaded_;  ///< The frames were read, and `image_` may be written again.
  Events encoded_;   ///< The features are there.
  Events decoded_;   ///< The answer is there, and the features may be written again.
  /// By part and graph. Without graphs the first of a part does all its work.
  std::array<std::array<std::unique_ptr<nvinfer1::IExecutionContext>, 2>, 2> contexts_;
  std::array<std::array<cuda::Owned<cudaGraphExec_t>, 2>, 2> graphs_;
  std::vector<bool> fresh_;       ///< Streams whose state is cleared before their next frame.
  std::size_t index_ = 0;         ///< The buffer index of the next step.
  std::size_t result_index_ = 0;  ///< The buffer index of the next result.
};

}  // namespace mrcfa

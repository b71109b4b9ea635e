// MRCFA video segmentation in C++: frames in, masks out, with the memory of earlier frames kept in
// between. The only public header of the library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef __GNUC__
#define MRCFA_API __attribute__((visibility("default")))
#else
#define MRCFA_API
#endif

namespace mrcfa {

/// Bad input or a machine that lacks something: one sentence with the thing and the remedy. All
/// that this library throws but for std::bad_alloc.
class MRCFA_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where a frame or a mask lies.
enum class Memory : std::uint8_t { host, device };

struct Options {
  /// `auto`, `tensorrt`, `onnxruntime`, `onnxruntime:cpu` or `onnxruntime:cuda`. `auto` takes
  /// TensorRT if the bundle has an engine that runs here, else ONNX Runtime. What follows the colon
  /// of `tensorrt:…` is the name or flavour of an engine, as `mrcfa inspect` shows it.
  std::string backend = "auto";
  /// Throw where a GPU is there and cannot be used as `auto` and ONNX Runtime should: something
  /// else than TensorRT runs, or the CPU, or single nodes on it. Otherwise that is said on standard
  /// error, and the work goes on.
  bool strict = false;
  /// `fp32`, `fp16`, `int8` or `fp8`; empty takes fp32 on a CPU and fp16 on a GPU, where the bundle has it.
  std::string precision;
  /// Threads of ONNX Runtime on the CPU; 0 lets it choose.
  int threads = 0;
  /// Index of the GPU. The work is done in the CUDA context that is current where the stream is
  /// made, if it is on that GPU, else in the GPU's primary one; no call changes the caller's.
  int device = 0;
  /// A cudaStream_t of that context to work on, which must outlive the stream; null for one of its
  /// own.
  void* cuda_stream = nullptr;
  /// Launch each frame's kernels as CUDA graphs; where TensorRT cannot, the backend's name says so.
  bool cuda_graphs = true;
  /// libmrcfa_plugin.so, for engines that were built with it; empty takes the environment variable
  /// MRCFA_PLUGIN_LIBRARY.
  std::filesystem::path plugin_library;
};

struct Colour {
  std::uint8_t red, green, blue;
};

/// What a stream runs, and what the numbers in its masks mean.
struct Info {
  std::string backend;  ///< As it reported itself: `onnxruntime (CPU, fp32)`.
  std::string dataset;
  std::string backbone;
  int height;  ///< Of the frames that the bundle takes.
  int width;
  std::vector<std::string> classes;
  std::vector<Colour> palette;
  bool trained;        ///< False if the weights are random and the masks meaningless.
  std::string method;  ///< `mrcfa`, `feature-pyramid`, or `segformer`, which has no memory.
  int streams;         ///< That the bundle runs at once: 1 unless exported with `--streams`.
};

/// One video. On a bundle for several streams it takes the place of all, at their cost.
///
///     mrcfa::Stream stream("bundles/vspw-b1");
///     stream.segment(rgb, height, width, mask);
///
/// A stream belongs to one thread at a time and may be handed from one to another; different
/// streams may run in different threads at once, siblings too. One that was moved from can only be
/// assigned to or destroyed.
class MRCFA_API Stream {
 public:
  explicit Stream(const std::filesystem::path& bundle, const Options& options = {});
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  /// Segment the next frame: `rgb` is height × width × 3 bytes, `mask` receives height × width
  /// bytes, a class per pixel. The frame must have the bundle's size: resizing lives in the graphs.
  /// A frame on the device is read on the stream's CUDA stream, so it is written on that
  /// (`Options::cuda_stream`) or is complete before the call.
  ///
  /// Returns when the mask is there. The one exception is TensorRT on a caller's CUDA stream with
  /// the mask on the device: that is queued, and both pointers must stay valid until it is done.
  /// After an error the stream's memory is what it was before the frame, unless a GPU failed.
  void segment(const std::uint8_t* rgb, int height, int width, std::uint8_t* mask,
               Memory rgb_in = Memory::host, Memory mask_in = Memory::host);

  /// Segment with two frames in flight: begin the next frame now, and take its mask from `result`
  /// later. With TensorRT, upload and encoder of a frame then run beside decoder and download of
  /// the one before; ONNX Runtime computes the mask at once. The masks are those of `segment`.
  ///
  ///     stream.submit(first, height, width);
  ///     for (const std::uint8_t* rgb : others) {
  ///       stream.submit(rgb, height, width);
  ///       stream.result(mask);  // of the frame before
  ///     }
  ///     stream.result(mask);
  ///
  /// A frame on the host may be changed when the call returns; one on the device is read as in
  /// `segment`, and must stay as it is until its mask is there or `reset` returned. At most two
  /// frames are in flight.
  void submit(const std::uint8_t* rgb, int height, int width, Memory rgb_in = Memory::host);

  /// The mask of the oldest frame in flight, with `segment`'s promise of when it is there.
  void result(std::uint8_t* mask, Memory mask_in = Memory::host);

  /// Forget all frames, also those in flight: the next one starts a new video.
  void reset();

  /// Another video over the same loaded graphs or engines, such as a second camera. It has the same
  /// options, a caller's CUDA stream among them.
  [[nodiscard]] Stream sibling() const;

  [[nodiscard]] const Info& info() const noexcept;

 private:
  struct Parts;
  explicit Stream(std::unique_ptr<Parts> parts) noexcept;
  std::unique_ptr<Parts> parts_;
};

/// Several videos at once, in one pass of a bundle that was exported with `--streams`.
///
///     mrcfa::Streams streams("bundles/six-cameras");
///     streams.segment({left, nullptr, right, …}, height, width, masks);
///
/// Each of the `info().streams` slots has a memory of its own, and its masks are those of a lone
/// stream. Cameras may come and go: `reset` a slot, and another one may take it. Threads and moves
/// are as with `Stream`.
class MRCFA_API Streams {
 public:
  explicit Streams(const std::filesystem::path& bundle, const Options& options = {});
  Streams(Streams&& other) noexcept;
  Streams& operator=(Streams&& other) noexcept;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams();

  /// Segment the next frame of each slot, as `Stream::segment` does. A slot whose frame is null has
  /// none this time: its memory stays as it is, and its mask is not written. The pointers' vectors
  /// may go when the call returns. ONNX Runtime takes frames and masks of several streams on the
  /// host alone.
  void segment(const std::vector<const std::uint8_t*>& frames, int height, int width,
               const std::vector<std::uint8_t*>& masks, Memory frames_in = Memory::host,
               Memory masks_in = Memory::host);

  /// The slot's next frame starts a new video.
  void reset(int slot);
  /// The same for all slots.
  void reset();

  [[nodiscard]] const Info& info() const noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mrcfa

// MRCFA video segmentation in C++: frames in, masks out. The memory of earlier frames is kept in
// between. This is the only public header of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef __GNUC__
#define MRCFA_API __attribute__((visibility("default")))
#else
#define MRCFA_API
#endif

namespace mrcfa {

/// Bad input, or a machine that lacks something: one sentence that names the thing and the remedy.
/// The library throws nothing else but std::bad_alloc.
class MRCFA_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The memory that holds a frame or a mask.
enum class Memory : std::uint8_t { host, device };

struct Options {
  /// `auto`, `tensorrt`, `onnxruntime`, `onnxruntime:cpu`, `onnxruntime:cuda` or
  /// `onnxruntime:webgpu`. `auto` takes TensorRT if the bundle has an engine that loads here, else
  /// ONNX Runtime on CUDA, on another GPU with WebGPU, or on the CPU. After the colon of
  /// `tensorrt:…` stands the name or flavour of an engine, as `mrcfa inspect` shows it. Engines are
  /// tried in order of preference until one loads; standard error says why better ones were
  /// skipped.
  std::string backend = "auto";
  /// Throw if a GPU is there, but `auto` finds no engine for it, or ONNX Runtime has to use the CPU
  /// for a graph or for single nodes. Otherwise standard error says so, and the work goes on.
  bool strict = false;
  /// `fp32`, `fp16`, `int8` or `fp8`. Empty prefers fp32 on a CPU and fp16 on a GPU.
  std::string precision;
  /// The number of threads of ONNX Runtime on the CPU; 0 lets it choose.
  int threads = 0;
  /// The index of the GPU. By default that of the CUDA context that is current where the stream is
  /// made, or else 0. The work is done in that context if it is on the GPU, else in the GPU's
  /// primary one; no call changes the caller's.
  std::optional<int> device;
  /// A cudaStream_t of that context to work on, which must outlive the stream. Null stands for a
  /// CUDA stream of its own.
  void* cuda_stream = nullptr;
  /// Launch each frame's kernels as CUDA graphs. Where that is not done, because TensorRT cannot or
  /// this is false, the backend's name ends with `without CUDA graphs`.
  bool cuda_graphs = true;
  /// The path of libmrcfa_plugin.so, for engines that were built with it. If it is empty, the
  /// environment variable MRCFA_PLUGIN_LIBRARY names it.
  std::filesystem::path plugin_library;
};

struct Colour {
  std::uint8_t red, green, blue;
};

/// The order of the bytes of a frame. NV12 is height rows of Y, and then height / 2 rows of U and V
/// in turn, one pair for 2×2 pixels.
enum class Layout : std::uint8_t { rgb, bgr, nv12 };

/// Facts about a stream: what runs, and what the numbers in its masks mean.
struct Info {
  std::string backend;  ///< The backend's own name: `onnxruntime (CPU, fp32)`.
  std::string dataset;
  std::string backbone;
  int height;  ///< The size of the frames that the bundle takes.
  int width;
  std::vector<std::string> classes;
  std::vector<Colour> palette;
  bool trained;        ///< False if the weights are random and the masks meaningless.
  std::string method;  ///< `mrcfa`, `feature-pyramid`, or `segformer`, which has no memory.
  int streams;         ///< How many the bundle runs at once: 1 unless exported with `--streams`.
  Layout layout;       ///< That of the frames: `mrcfa export --input`.
  std::string matrix;  ///< `bt601` or `bt709` for NV12, else empty.
  std::string range;   ///< `limited` or `full` for NV12, else empty.

  /// The number of bytes of a frame.
  [[nodiscard]] std::size_t frame_bytes() const {
    const auto pixels = static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
    return layout == Layout::nv12 ? pixels / 2 * 3 : pixels * 3;
  }
};

/// One video. On a bundle for several streams it takes the place of all of them, at their cost.
///
///     mrcfa::Stream stream("bundles/vspw-b1");
///     stream.segment(rgb, height, width, mask);
///
/// A stream belongs to one thread at a time and may be handed from one thread to another. Different
/// streams may run in different threads at once, siblings too. A stream that was moved from can
/// only be assigned to or destroyed.
class MRCFA_API Stream {
 public:
  explicit Stream(const std::filesystem::path& bundle, const Options& options = {});
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  /// Segments the next frame: `frame` is `info().frame_bytes()` bytes without gaps in the bundle's
  /// layout, height × width × 3 bytes of RGB unless it was exported with `--input`; `mask` receives
  /// height × width bytes, a class per pixel. The frame must have the bundle's size, because the
  /// graphs resize. A frame on the device is on the stream's GPU and is read on the stream's CUDA
  /// stream, so it must be written on that one (`Options::cuda_stream`) or be complete before the
  /// call.
  ///
  /// Returns when the mask is there. The one exception is TensorRT on a caller's CUDA stream with
  /// the mask on the device: the work is queued, and both pointers must stay valid until it is
  /// done. After an error the stream's memory is as it was before the frame, unless a GPU failed.
  void segment(const std::uint8_t* frame, int height, int width, std::uint8_t* mask,
               Memory frame_in = Memory::host, Memory mask_in = Memory::host);

  /// Segments with two frames in flight: begins the next frame now, and `result` gives its mask
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
  /// A frame on the host may be changed when the call returns. A frame on the device is read as in
  /// `segment`, and must not change until its mask is there or `reset` has returned. At most two
  /// frames are in flight.
  void submit(const std::uint8_t* frame, int height, int width, Memory frame_in = Memory::host);

  /// Gives the mask of the oldest frame in flight, and returns as `segment` does.
  void result(std::uint8_t* mask, Memory mask_in = Memory::host);

  /// Forgets all frames, also those in flight: the next one starts a new video.
  void reset();

  /// Another video over the same loaded graphs or engines, such as a second camera. It has the same
  /// options, also the caller's CUDA stream.
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
/// stream. Cameras may come and go: after `reset` another camera may use the slot. Threads and
/// moves are as with `Stream`.
class MRCFA_API Streams {
 public:
  explicit Streams(const std::filesystem::path& bundle, const Options& options = {});
  Streams(Streams&& other) noexcept;
  Streams& operator=(Streams&& other) noexcept;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams();

  /// Segments the next frame of each slot, as `Stream::segment` does. A slot whose frame is null
  /// has none this time: its memory stays as it is, and its mask is not written. The vectors may be
  /// destroyed when the call returns. With ONNX Runtime, frames and masks of several streams must
  /// be on the host.
  void segment(const std::vector<const std::uint8_t*>& frames, int height, int width,
               const std::vector<std::uint8_t*>& masks, Memory frames_in = Memory::host,
               Memory masks_in = Memory::host);

  /// Lets the slot's next frame start a new video.
  void reset(int slot);
  /// Lets every slot's next frame start a new video.
  void reset();

  [[nodiscard]] const Info& info() const noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mrcfa

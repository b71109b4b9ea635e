// What a program meets that shares its process, threads and CUDA contexts with a stream, on the
// fake GPU: `gpu BUNDLE SCENARIO` ends with 0 if all is well.
#include <NvInferRuntime.h>

#include <functional>
#include <iostream>
#include <map>
#include <mrcfa.hpp>
#include <optional>
#include <thread>

namespace {

using Bytes = std::vector<std::uint8_t>;

int failures = 0;

void expect(bool truth, const std::string& what) {
  if (!truth) {
    std::cerr << "not so: " << what << "\n";
    ++failures;
  }
}

template <class Work>
void expect_error(Work work, const std::string& part) {
  try {
    work();
    expect(false, part);
  } catch (const mrcfa::Error& error) {
    expect(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
}

Bytes frame_of(const mrcfa::Info& info, int number) {
  Bytes frame(3 * static_cast<std::size_t>(info.height * info.width));
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<std::uint8_t>(i * 5 + static_cast<std::size_t>(40 * number));
  }
  return frame;
}

Bytes segmented(mrcfa::Stream& stream, const Bytes& frame) {
  const mrcfa::Info& info = stream.info();
  Bytes mask(static_cast<std::size_t>(info.height * info.width));
  stream.segment(frame.data(), info.height, info.width, mask.data());
  return mask;
}

void use(const char* bundle, const mrcfa::Options& options, CUcontext expected) {
  const auto same = [&](const char* after) {
    expect(fake::current() == expected,
           std::string("the caller's context is current after ") + after);
  };
  {
    mrcfa::Stream stream(bundle, options);
    same("opening");
    segmented(stream, frame_of(stream.info(), 0));
    same("a frame");
    stream.reset();
    same("a reset");
    mrcfa::Stream other = stream.sibling();
    same("a sibling");
  }
  same("the end");
}

void second_gpu(const char* bundle) {
  mrcfa::Options options;
  options.device = 1;
  use(bundle, options, nullptr);
  expect(!fake::primaries[0].started, "GPU 0 is not touched");
  expect(fake::primaries[1].started, "GPU 1 is used");
  expect(fake::primaries[1].users == 0, "GPU 1 is let go");
}

void callers_context(const char* bundle) {
  fake::OwnContext own(0);
  use(bundle, {}, &own.context);
  expect(!fake::primaries[0].started, "the caller's context serves for its GPU");
  mrcfa::Options options;
  options.device = 1;
  use(bundle, options, &own.context);
  expect(fake::primaries[1].started, "the other GPU has its primary one");
}

void other_threads(const char* bundle) {
  std::optional<mrcfa::Stream> stream;
  std::optional<mrcfa::Stream> last;
  std::thread([&] {
    stream.emplace(bundle);
    last.emplace(stream->sibling());
  }).join();
  std::thread([&] { stream.reset(); }).join();
  const Bytes mask = segmented(*last, frame_of(last->info(), 0));
  std::thread([&] { last.reset(); }).join();
  expect(fake::primaries[0].users == 0, "the last thread lets the GPU go");
  expect(!mask.empty(), "a sibling outlives its stream");
}

/// The caller destroyed his context too early, which costs him the stream and not the process.
void context_gone(const char* bundle) {
  fake::OwnContext own(0);
  mrcfa::Stream stream(bundle);
  own.destroy();
  expect_error([&] { segmented(stream, frame_of(stream.info(), 0)); },
               "the CUDA context that this stream was opened in is gone; destroy streams before");
}

/// FAKE_GPU_LOST_AFTER=2
void gpu_lost(const char* bundle) {
  mrcfa::Stream stream(bundle);
  const Bytes frame = frame_of(stream.info(), 0);
  segmented(stream, frame);
  segmented(stream, frame);
  for (int again = 0; again < 2; ++again) {
    expect_error(
        [&] { segmented(stream, frame); },
        "the GPU stopped working (it failed to take the frame: unspecified launch failure), and "
        "what ran on it is lost; look for the reason in the system's log (dmesg)");
  }
  expect_error([&] { mrcfa::Stream other = stream.sibling(); }, "the GPU stopped working (it ");
}

/// Frames that are queued keep what they held, although the caller's memory and ours change.
void pinned(const char* bundle) {
  mrcfa::Stream stream(bundle);
  const mrcfa::Info& info = stream.info();
  std::vector<Bytes> expected;
  for (int t = 0; t < 4; ++t) {
    expected.push_back(segmented(stream, frame_of(info, t)));
  }
  cudaStream_t queue = nullptr;
  cudaSetDevice(0);
  cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);
  {
    mrcfa::Options options;
    options.cuda_stream = queue;
    mrcfa::Stream queued(bundle, options);
    std::vector<Bytes> masks(4, Bytes(expected[0].size()));
    Bytes frame;
    for (int t = 0; t < 4; ++t) {
      frame = frame_of(info, t);
      queued.segment(frame.data(), info.height, info.width,
                     masks[static_cast<std::size_t>(t)].data(), mrcfa::Memory::host,
                     mrcfa::Memory::device);
    }
    cudaStreamSynchronize(queue);
    expect(masks == expected, "queued frames give the same masks");
  }
  cudaStreamDestroy(queue);
  expect(fake::pageable_copies == 0, "all copies are from and to pinned memory");
}

void scratch_and_ranges(const char* bundle) {
  mrcfa::Stream stream(bundle);
  mrcfa::Stream other = stream.sibling();
  segmented(other, frame_of(stream.info(), 0));
  expect(nvinfer1::IExecutionContext::own_scratch == 0, "contexts share their scratch memory");
  expect(nvinfer1::IExecutionContext::nvtx_ranges == 0, "profilers are not told of layers");
}

const std::map<std::string, std::function<void(const char*)>> kScenarios = {
    {"second-gpu", second_gpu},
    {"callers-context", callers_context},
    {"other-threads", other_threads},
    {"context-gone", context_gone},
    {"gpu-lost", gpu_lost},
    {"pinned", pinned},
    {"scratch-and-ranges", scratch_and_ranges},
};

}  // namespace

int main(int, char** argv) {
  kScenarios.at(argv[2])(argv[1]);
  return failures == 0 ? 0 : 1;
}

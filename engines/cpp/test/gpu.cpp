// Programs that share their process, threads and CUDA contexts with a stream, on the fake GPU:
// `gpu BUNDLE SCENARIO` ends with 0 if all is well.
#include <NvInferRuntime.h>

#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include "expect.hpp"

namespace {

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
  {
    fake::OwnContext own(0);
    use(bundle, {}, &own.context);
    expect(!fake::primaries[0].started, "the caller's context serves for its GPU");
    mrcfa::Options options;
    options.device = 1;
    use(bundle, options, &own.context);
    expect(fake::primaries[1].started, "the other GPU has its primary one");
    fake::stack.clear();
  }
  fake::primaries[1].started = false;
  fake::OwnContext second(1);
  use(bundle, {}, &second.context);
  expect(!fake::primaries[0].started && !fake::primaries[1].started,
         "without a device the GPU is that of the caller's context");
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

/// A context that is destroyed too early costs the stream, not the process.
void context_gone(const char* bundle) {
  fake::OwnContext own(0);
  mrcfa::Stream stream(bundle);
  own.destroy();
  expect_error([&] { segmented(stream, frame_of(stream.info(), 0)); },
               "the CUDA context that this stream was opened in is gone; destroy streams before");
}

/// Needs FAKE_GPU_LOST_AFTER=2.
void gpu_lost(const char* bundle) {
  mrcfa::Stream stream(bundle);
  const Bytes frame = frame_of(stream.info(), 0);
  segmented(stream, frame);
  segmented(stream, frame);
  const char* sentence = "the GPU stopped working (CUDA's ";
  expect_error([&] { segmented(stream, frame); },
               sentence + std::string("cudaMemcpyAsync failed: cudaErrorLaunchFailure)"));
  expect_error([&] { segmented(stream, frame); }, sentence);
  expect_error([&] { mrcfa::Stream other = stream.sibling(); }, sentence);
}

/// Needs FAKE_GPU_LOST_AFTER=0 and FAKE_GPU_ERROR=2.
void memory_full(const char* bundle) {
  mrcfa::Stream stream(bundle);
  expect_error([&] { segmented(stream, frame_of(stream.info(), 0)); },
               "no memory is left (CUDA's cudaMemcpyAsync failed: cudaErrorMemoryAllocation)");
}

/// Needs FAKE_GPU_LOST_AFTER=0 and FAKE_GPU_ERROR=1.
void call_failed(const char* bundle) {
  mrcfa::Stream stream(bundle);
  try {
    segmented(stream, frame_of(stream.info(), 0));
    expect(false, "the call fails");
  } catch (const mrcfa::Error& error) {
    expect(error.what() == std::string("CUDA's cudaMemcpyAsync failed: cudaErrorInvalidValue"),
           error.what());
  }
}

/// Queued frames keep their content, although the caller's memory and the library's change.
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

/// A context for each graph, or one for each plan if there are none, as with FAKE_GPU_NO_GRAPHS.
void contexts(const char* bundle) {
  const auto alive = [] { return nvinfer1::IExecutionContext::alive.load(); };
  const auto submitted = [](mrcfa::Stream& stream) {
    const Bytes frame = frame_of(stream.info(), 0);
    Bytes mask(area(stream.info()));
    stream.submit(frame.data(), stream.info().height, stream.info().width);
    stream.result(mask.data());
  };
  mrcfa::Options options;
  for (const bool graphs : {true, false}) {
    options.cuda_graphs = graphs;
    mrcfa::Stream stream(bundle, options);
    const bool recorded = stream.info().backend.find("without CUDA graphs") == std::string::npos;
    expect(recorded == (graphs && std::getenv("FAKE_GPU_NO_GRAPHS") == nullptr), "the name");
    expect(alive() == (recorded ? 3 : 2), "one for the encoder, and one for each half of the state");
    submitted(stream);
    expect(alive() == (recorded ? 4 : 2), "two for each plan while two frames are in flight");
  }
  expect(alive() == 0, "all end with their streams");
}

/// While a graph is recorded, another thread opens a stream, and ends one. Both wait until it is.
void recording(const char* bundle) {
  mrcfa::Stream stream(bundle);
  std::optional<mrcfa::Stream> other(stream.sibling());
  std::optional<mrcfa::Stream> opened;
  const std::vector<std::function<void()>> works = {[&] { opened.emplace(stream.sibling()); },
                                                    [&] { other.reset(); }};
  for (const auto& work : works) {
    std::future<void> done;
    fake::meanwhile = [&] {
      done = std::async(std::launch::async, work);
      expect(done.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout,
             "another thread waits for the recording");
    };
    const mrcfa::Stream recorded = stream.sibling();
    done.get();
    expect(recorded.info().backend.find("without CUDA graphs") == std::string::npos,
           "no thread ends the recording of another");
  }
}

/// Needs FAKE_GPU_COUNT=2.
void frame_elsewhere(const char* bundle) {
  mrcfa::Options options;
  options.device = 1;
  mrcfa::Stream stream(bundle, options);
  const mrcfa::Info& info = stream.info();
  Bytes mask(area(info));
  for (const int device : {0, 1}) {
    void* memory = nullptr;
    cudaSetDevice(device);
    cudaMalloc(&memory, 3 * area(info));
    const auto segment = [&] {
      stream.segment(static_cast<std::uint8_t*>(memory), info.height, info.width, mask.data(),
                     mrcfa::Memory::device, mrcfa::Memory::host);
    };
    if (device == 0) {
      expect_error(segment, "the frame is on GPU 0 and its stream works on GPU 1; copy");
    } else {
      segment();
    }
    cudaFree(memory);
  }
}

bool starts_video(int t) {
  return t == 0 || t == 7 || t == 64 || t == 65 || t == 150;
}

/// Segments the same frames with two in flight, apart from some plain ones in between. The caller's
/// memory is overwritten as early as the API allows.
void compare_in_flight(mrcfa::Stream& stream, const std::vector<Bytes>& expected,
                       mrcfa::Memory in = mrcfa::Memory::host, cudaStream_t queue = nullptr) {
  const mrcfa::Info& info = stream.info();
  std::deque<std::pair<std::size_t, Bytes>> flying;
  const auto fetch = [&] {
    Bytes mask(area(info), 0xEE);
    stream.result(mask.data(), in);
    if (queue != nullptr) {
      cudaStreamSynchronize(queue);
    }
    expect(mask == expected[flying.front().first],
           "mask " + std::to_string(flying.front().first) + " in flight is the plain one");
    flying.pop_front();
  };
  for (std::size_t t = 0; t < expected.size(); ++t) {
    Bytes frame = frame_of(info, static_cast<int>(t));
    if (starts_video(static_cast<int>(t))) {
      stream.reset();
      flying.clear();  // also their frames
    }
    if (t < 4 || t % 50 == 30) {
      while (!flying.empty()) {
        fetch();
      }
      expect(segmented(stream, frame) == expected[t], "a plain frame in between is the same");
      continue;
    }
    stream.submit(frame.data(), info.height, info.width, in);
    if (in == mrcfa::Memory::host) {
      std::fill(frame.begin(), frame.end(), 0xEE);
    }
    flying.emplace_back(t, std::move(frame));
    if (flying.size() == 2) {
      fetch();
    }
  }
}

/// Runs the work in the orders that a GPU may choose; ends with frames in flight.
void in_flight(const char* bundle) {
  mrcfa::Options options;
  options.precision = "fp32";
  mrcfa::Stream plain(bundle, options);
  std::vector<Bytes> expected;
  for (int t = 0; t < 200; ++t) {
    if (starts_video(t)) {
      plain.reset();
    }
    expected.push_back(segmented(plain, frame_of(plain.info(), t)));
  }
  fake::order = fake::Order::random;
  mrcfa::Stream long_one = plain.sibling();
  compare_in_flight(long_one, expected);
  expected.resize(40);
  for (const fake::Order order : {fake::Order::late, fake::Order::early}) {
    fake::order = order;
    mrcfa::Stream stream = plain.sibling();
    compare_in_flight(stream, expected);
  }
  fake::order = fake::Order::random;
  mrcfa::Stream device = plain.sibling();
  compare_in_flight(device, expected, mrcfa::Memory::device);
  options.cuda_graphs = false;
  mrcfa::Stream launched(bundle, options);
  compare_in_flight(launched, expected);
  cudaStream_t queue = nullptr;
  cudaSetDevice(0);
  cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);
  options.cuda_stream = queue;
  {
    mrcfa::Stream queued(bundle, options);
    compare_in_flight(queued, expected, mrcfa::Memory::device, queue);
  }
  cudaStreamDestroy(queue);
  expect(fake::pageable_copies == 0, "all copies are from and to pinned memory");
}

const std::map<std::string, std::function<void(const char*)>> kScenarios = {
    {"second-gpu", second_gpu},
    {"callers-context", callers_context},
    {"other-threads", other_threads},
    {"context-gone", context_gone},
    {"gpu-lost", gpu_lost},
    {"memory-full", memory_full},
    {"call-failed", call_failed},
    {"pinned", pinned},
    {"scratch-and-ranges", scratch_and_ranges},
    {"contexts", contexts},
    {"recording", recording},
    {"frame-elsewhere", frame_elsewhere},
    {"in-flight", in_flight},
};

}  // namespace

int main(int, char** argv) {
  kScenarios.at(argv[2])(argv[1]);
  return failures == 0 ? 0 : 1;
}

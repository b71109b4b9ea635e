// What mrcfa-segment cannot show of the C++ API: siblings in threads, moves,
// memory on a GPU, refusals. Ends with 0 if all is well; a GPU takes part where
// it is compiled with one (MRCFA_TENSORRT).
#include <iostream>
#include <mrcfa.hpp>
#include <thread>

#ifdef MRCFA_TENSORRT
#include <cuda_runtime_api.h>
#endif

namespace {

using Bytes = std::vector<std::uint8_t>;

int failures = 0;

void expect(bool truth, const char* what) {
  if (!truth) {
    std::cerr << "not so: " << what << "\n";
    ++failures;
  }
}

template <class Work>
void expect_error(Work work, const std::string& part) {
  try {
    work();
    expect(false, part.c_str());
  } catch (const mrcfa::Error& error) {
    expect(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
}

/// Eight frames of stripes that move by `speed`.
std::vector<Bytes> video(const mrcfa::Info& info, int speed) {
  std::vector<Bytes> frames;
  for (int t = 0; t < 8; ++t) {
    Bytes& frame = frames.emplace_back(3 * info.height * info.width);
    for (std::size_t i = 0; i < frame.size(); ++i) {
      frame[i] = static_cast<std::uint8_t>(i * 5 + static_cast<std::size_t>(speed * t));
    }
  }
  return frames;
}

std::vector<Bytes> masks(mrcfa::Stream& stream, const std::vector<Bytes>& frames) {
  const mrcfa::Info& info = stream.info();
  std::vector<Bytes> made;
  for (const Bytes& frame : frames) {
    Bytes& mask = made.emplace_back(info.height * info.width);
    stream.segment(frame.data(), info.height, info.width, mask.data());
  }
  return made;
}

}  // namespace

int main(int, char** argv) {
  mrcfa::Options options;
  options.threads = 2;
  mrcfa::Stream stream(argv[1], options);
  const mrcfa::Info info = stream.info();
  const std::vector<Bytes> slow = video(info, 3);
  const std::vector<Bytes> fast = video(info, 40);
  const std::vector<Bytes> of_slow = masks(stream, slow);
  stream.reset();
  const std::vector<Bytes> of_fast = masks(stream, fast);
  expect(of_slow != of_fast, "the videos differ");

  stream.reset();
  mrcfa::Stream other = stream.sibling();
  std::vector<Bytes> beside;
  std::thread thread([&] { beside = masks(other, fast); });
  expect(masks(stream, slow) == of_slow, "a stream is not disturbed by its sibling");
  thread.join();
  expect(beside == of_fast, "a sibling is not disturbed by the stream");

  stream.reset();
  std::vector<Bytes> halves = masks(stream, {slow.begin(), slow.begin() + 4});
  mrcfa::Stream moved = std::move(stream);
  for (const Bytes& mask : masks(moved, {slow.begin() + 4, slow.end()})) {
    halves.push_back(mask);
  }
  expect(halves == of_slow, "a moved stream goes on where it was");

  Bytes mask(info.height * info.width);
  const auto wrong_size = [&] {
    moved.segment(slow[0].data(), info.height + 1, info.width, mask.data());
  };
  expect_error(wrong_size, "mrcfa export --frame " + std::to_string(info.height + 1) + "x" +
                               std::to_string(info.width));
  expect_error([&] { moved.segment(nullptr, info.height, info.width, mask.data()); }, "null");

#ifdef MRCFA_TENSORRT
  cudaStream_t queue = nullptr;
  cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);
  options.cuda_stream = queue;
  {
    mrcfa::Stream queued(argv[1], options);
    Bytes frame;  // "device" memory of the fake GPU is host memory
    for (std::size_t t = 0; t < slow.size(); ++t) {
      frame = slow[t];
      queued.segment(frame.data(), info.height, info.width, mask.data(), mrcfa::Memory::device,
                     mrcfa::Memory::device);
      cudaStreamSynchronize(queue);
      expect(mask == of_slow[t], "a mask on the GPU is the same");
    }
    queued.reset();
    queued.segment(slow[0].data(), info.height, info.width, mask.data());
    expect(mask == of_slow[0], "a mask on the host is there when the call returns");
  }
  cudaStreamDestroy(queue);
#else
  const auto on_device = [&] {
    moved.segment(slow[0].data(), info.height, info.width, mask.data(), mrcfa::Memory::device);
  };
  expect_error(on_device, "takes no frames on the GPU; copy them to the host");
#endif
  return failures == 0 ? 0 : 1;
}

// Tests of the C++ API that mrcfa-segment cannot make: siblings in threads, moves, memory on a GPU,
// refusals. The exit code is 0 if all pass. A GPU takes part if it is compiled with MRCFA_TENSORRT.
#include <thread>

#include "expect.hpp"

#ifdef MRCFA_TENSORRT
#include <cuda_runtime_api.h>
#endif

namespace {

std::vector<Bytes> video(const mrcfa::Info& info, int speed) {
  std::vector<Bytes> frames;
  for (int t = 0; t < 8; ++t) {
    frames.push_back(frame_of(info, t, speed));
  }
  return frames;
}

std::vector<Bytes> masks(mrcfa::Stream& stream, const std::vector<Bytes>& frames) {
  std::vector<Bytes> made;
  for (const Bytes& frame : frames) {
    made.push_back(segmented(stream, frame));
  }
  return made;
}

}  // namespace

int main(int, char** argv) {
  mrcfa::Options options;
  options.precision = "fp32";
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

  Bytes mask(area(info));
  const auto wrong_size = [&] {
    moved.segment(slow[0].data(), info.height + 1, info.width, mask.data());
  };
  expect_error(wrong_size, "mrcfa export --frame " + std::to_string(info.height + 1) + "x" +
                               std::to_string(info.width));
  const auto opened = [&](int device, int threads) {
    mrcfa::Options impossible;
    impossible.device = device;
    impossible.threads = threads;
    mrcfa::Stream unreachable(argv[1], impossible);
  };
  expect_error([&] { opened(-1, 0); }, "device is -1; GPUs are counted from 0");
  expect_error([&] { opened(0, -1); }, "threads is -1; use 1 or more");
  expect_error([&] { moved.segment(nullptr, info.height, info.width, mask.data()); }, "null");

  moved.reset();
  expect_error([&] { moved.result(mask.data()); },
               "no frame is in flight; submit() comes before result()");
  moved.submit(slow[0].data(), info.height, info.width);
  expect_error([&] { masks(moved, slow); },
               "one frame is in flight; take every mask with result() before segment()");
  moved.submit(slow[1].data(), info.height, info.width);
  expect_error([&] { moved.submit(slow[2].data(), info.height, info.width); },
               "2 frames are in flight; take a mask with result() before a third");
  for (std::size_t t = 2; t < slow.size() + 2; ++t) {
    moved.result(mask.data());
    expect(mask == of_slow[t - 2], "a mask in flight is the same");
    if (t < slow.size()) {
      moved.submit(slow[t].data(), info.height, info.width);
    }
  }
  moved.submit(fast[7].data(), info.height, info.width);
  moved.reset();
  expect(masks(moved, fast) == of_fast, "a reset drops what is in flight");

#ifdef MRCFA_TENSORRT
  cudaStream_t queue = nullptr;
  cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);
  options.cuda_stream = queue;
  {
    mrcfa::Stream queued(argv[1], options);
    Bytes frame;  // the "device" memory of the fake GPU is host memory
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

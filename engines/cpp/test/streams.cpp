// Compares several streams at once with lone ones: `streams BATCHED LONE BACKEND` ends with 0 if
// every slot's masks are those of a stream of its own, whichever cameras pause or start anew.
#include <random>

#include "expect.hpp"

namespace {

mrcfa::Options options_for(const std::string& backend) {
  mrcfa::Options options;
  options.backend = backend;
  options.precision = "fp32";
  options.threads = 1;
  return options;
}

void compare(mrcfa::Streams& streams, const mrcfa::Stream& model) {
  const mrcfa::Info& info = streams.info();
  const auto slots = static_cast<std::size_t>(info.streams);
  std::vector<mrcfa::Stream> lone;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    lone.push_back(model.sibling());
  }
  std::minstd_rand dice(1);
  const Bytes untouched(area(info), 0xEE);
  for (int round = 0; round < 30; ++round) {
    std::vector<Bytes> frames(slots);
    std::vector<Bytes> masks(slots, untouched);
    std::vector<const std::uint8_t*> given(slots);
    std::vector<std::uint8_t*> wanted(slots);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      if (dice() % 8 == 0) {
        streams.reset(static_cast<int>(slot));
        lone[slot].reset();
      }
      frames[slot] = frame_of(info, round, slot % 2 == 0 ? 3 : 40);
      given[slot] = dice() % 3 == 0 ? nullptr : frames[slot].data();
      wanted[slot] = masks[slot].data();
    }
    streams.segment(given, info.height, info.width, wanted);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      expect(
          masks[slot] == (given[slot] == nullptr ? untouched : segmented(lone[slot], frames[slot])),
          "slot " + std::to_string(slot) + " in round " + std::to_string(round));
    }
  }
}

void refuse(mrcfa::Streams& streams) {
  const mrcfa::Info& info = streams.info();
  const Bytes frame = frame_of(info, 0);
  Bytes mask(area(info));
  expect_error([&] { streams.segment({}, info.height, info.width, {}); },
               "0 frames and 0 masks are given, but ");
  std::vector<const std::uint8_t*> frames(static_cast<std::size_t>(info.streams));
  std::vector<std::uint8_t*> masks(frames.size());
  streams.segment(frames, info.height, info.width, masks);
  frames[0] = frame.data();
  expect_error([&] { streams.segment(frames, info.height, info.width, masks); },
               "stream 0 has a frame, but no memory for its mask");
  masks[0] = mask.data();
  expect_error([&] { streams.segment(frames, info.height, info.width + 1, masks); },
               "; resizing is part of the graphs: mrcfa export --frame ");
  expect_error([&] { streams.reset(info.streams); }, "there is no stream ");
}

}  // namespace

int main(int, char** argv) {
  const mrcfa::Options options = options_for(argv[3]);
  mrcfa::Stream lone(argv[2], options_for("onnxruntime:cpu"));
  mrcfa::Streams streams(argv[1], options);
  expect(streams.info().streams > 1, "the bundle is for several streams");
  compare(streams, lone);
  refuse(streams);
  streams.reset();
  compare(streams, lone);
  mrcfa::Stream first(argv[1], options);
  for (int t = 0; t < 4; ++t) {
    const Bytes frame = frame_of(first.info(), t);
    Bytes mask(area(first.info()));
    first.submit(frame.data(), first.info().height, first.info().width);
    first.result(mask.data());
    expect(mask == segmented(lone, frame), "a lone stream may take the place of all");
  }
  return failures == 0 ? 0 : 1;
}

#include <utility>
#include <vector>

#include "mrcfa.hpp"
#include "opened.hpp"

namespace mrcfa {
namespace {

constexpr int kMostInFlight = 2;

std::string flying(int frames) {
  return frames == 1 ? "one frame is in flight" : std::to_string(frames) + " frames are in flight";
}

/// Rows for a bundle of several streams: this one is the first, and the others have no frames.
template <class Pixel>
std::vector<Pixel*> alone(Pixel* first, const Info& info) {
  std::vector<Pixel*> rows(static_cast<std::size_t>(info.streams));
  rows[0] = first;
  return rows;
}

}  // namespace

struct Stream::Parts : Opened {
  using Opened::Opened;
  int in_flight = 0;
};

Stream::Stream(const std::filesystem::path& bundle, const Options& options)
    : parts_(std::make_unique<Parts>(Bundle::open(bundle), options)) {}

Stream::Stream(std::unique_ptr<Parts> parts) noexcept : parts_(std::move(parts)) {}
Stream::Stream(Stream&& other) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept = default;
Stream::~Stream() = default;

void Stream::segment(const std::uint8_t* frame, int height, int width, std::uint8_t* mask,
                     Memory frame_in, Memory mask_in) {
  parts_->check(height, width);
  if (frame == nullptr || mask == nullptr) {
    throw Error("a frame and its mask need memory, but a pointer is null");
  }
  parts_->check(mask_in);
  if (parts_->in_flight > 0) {
    throw Error(flying(parts_->in_flight) + "; take every mask with result() before segment()");
  }
  const auto frames = alone(frame, parts_->info);
  const auto masks = alone(mask, parts_->info);
  parts_->runner->step({frames.data(), frame_in}, {masks.data(), mask_in});
}

void Stream::submit(const std::uint8_t* frame, int height, int width, Memory frame_in) {
  parts_->check(height, width);
  if (frame == nullptr) {
    throw Error("a frame needs memory, but its pointer is null");
  }
  if (parts_->in_flight == kMostInFlight) {
    throw Error(flying(parts_->in_flight) + "; take a mask with result() before a third");
  }
  parts_->runner->submit({alone(frame, parts_->info).data(), frame_in});
  ++parts_->in_flight;
}

void Stream::result(std::uint8_t* mask, Memory mask_in) {
  if (mask == nullptr) {
    throw Error("a mask needs memory, but its pointer is null");
  }
  parts_->check(mask_in);
  if (parts_->in_flight == 0) {
    throw Error("no frame is in flight; submit() comes before result()");
  }
  parts_->runner->result({alone(mask, parts_->info).data(), mask_in});
  --parts_->in_flight;
}

void Stream::reset() {
  parts_->runner->reset(0);
  parts_->in_flight = 0;
}

Stream Stream::sibling() const {
  return Stream(std::make_unique<Parts>(*parts_, parts_->runner->sibling()));
}

const Info& Stream::info() const noexcept {
  return parts_->info;
}

}  // namespace mrcfa

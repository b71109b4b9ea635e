#include <algorithm>
#include <utility>

#include "mrcfa.hpp"
#include "opened.hpp"

namespace mrcfa {

struct Streams::Parts : Opened {
  using Opened::Opened;
};

Streams::Streams(const std::filesystem::path& bundle, const Options& options)
    : parts_(std::make_unique<Parts>(Bundle::open(bundle), options)) {}

Streams::Streams(Streams&& other) noexcept = default;
Streams& Streams::operator=(Streams&& other) noexcept = default;
Streams::~Streams() = default;

void Streams::segment(const std::vector<const std::uint8_t*>& frames, int height, int width,
                      const std::vector<std::uint8_t*>& masks, Memory frames_in, Memory masks_in) {
  const auto slots = static_cast<std::size_t>(parts_->info.streams);
  if (frames.size() != slots || masks.size() != slots) {
    throw Error(std::to_string(frames.size()) + " frames and " + std::to_string(masks.size()) +
                " masks are given, but " + parts_->bundle.string() + " has " +
                std::to_string(slots) +
                " streams; give as many of each, null for a stream without a frame");
  }
  parts_->check(height, width);
  parts_->check(masks_in);
  std::vector<std::uint8_t*> wanted(masks);
  bool any = false;
  for (std::size_t i = 0; i < slots; ++i) {
    if (frames[i] != nullptr && masks[i] == nullptr) {
      throw Error("stream " + std::to_string(i) + " has a frame, but no memory for its mask");
    }
    wanted[i] = frames[i] == nullptr ? nullptr : masks[i];
    any = any || frames[i] != nullptr;
  }
  if (any) {
    parts_->runner->step({frames.data(), frames_in}, {wanted.data(), masks_in});
  }
}

void Streams::reset(int slot) {
  if (slot < 0 || slot >= parts_->info.streams) {
    throw Error("there is no stream " + std::to_string(slot) + "; " + parts_->bundle.string() +
                " has " + std::to_string(parts_->info.streams) + ", counted from 0");
  }
  parts_->runner->reset(static_cast<std::size_t>(slot));
}

void Streams::reset() {
  for (int slot = 0; slot < parts_->info.streams; ++slot) {
    reset(slot);
  }
}

const Info& Streams::info() const noexcept {
  return parts_->info;
}

}  // namespace mrcfa

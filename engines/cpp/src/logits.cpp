#include "logits.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace mrcfa {
namespace {

std::size_t area(Size size) {
  return static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.width);
}

/// The source of one element of a resized axis: between `low` and `high`, `weight` of the way.
struct Tap {
  std::size_t low, high;
  float weight;
};

std::vector<Tap> taps(int source, int target) {
  std::vector<Tap> made;
  for (int i = 0; i < target; ++i) {
    const double position = std::max((i + 0.5) * (static_cast<double>(source) / target) - 0.5, 0.0);
    const int low = std::min(static_cast<int>(position), source - 1);
    made.push_back({static_cast<std::size_t>(low),
                    static_cast<std::size_t>(std::min(low + 1, source - 1)),
                    static_cast<float>(position - low)});
  }
  return made;
}

/// Resizes with half-pixel centres and clamped edges. Rows come before columns, in single precision
/// as in numpy, so that both languages give the same mask.
std::vector<float> bilinear(std::vector<float> image, Size from, Size to) {
  if (from.height == to.height && from.width == to.width) {
    return image;
  }
  const auto columns = static_cast<std::size_t>(from.width);
  std::vector<float> tall;
  tall.reserve(area({to.height, from.width}));
  for (const Tap& tap : taps(from.height, to.height)) {
    for (std::size_t x = 0; x < columns; ++x) {
      tall.push_back(image[tap.low * columns + x] * (1 - tap.weight) +
                     image[tap.high * columns + x] * tap.weight);
    }
  }
  const std::vector<Tap> across = taps(from.width, to.width);
  std::vector<float> made;
  made.reserve(area(to));
  for (std::size_t row = 0; row < tall.size(); row += columns) {
    for (const Tap& tap : across) {
      made.push_back(tall[row + tap.low] * (1 - tap.weight) + tall[row + tap.high] * tap.weight);
    }
  }
  return made;
}

/// Converts IEEE half precision to single precision.
float float_of_half(std::uint16_t half) {
  const int exponent = (half >> 10) & 0x1F;
  const int fraction = half & 0x3FF;
  float magnitude = 0;
  if (exponent == 0x1F) {
    magnitude = fraction == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

/// The scores of one class in single precision.
std::vector<float> scores(const void* logits, bool half, std::size_t index, std::size_t count) {
  std::vector<float> made(count);
  if (half) {
    const auto* halves = static_cast<const std::uint16_t*>(logits) + index * count;
    std::transform(halves, halves + count, made.begin(), float_of_half);
  } else {
    std::copy_n(static_cast<const float*>(logits) + index * count, count, made.begin());
  }
  return made;
}

}  // namespace

void mask_of_logits(const void* logits, const TensorSpec& spec, Size network, Size frame,
                    std::uint8_t* mask) {
  const bool half = spec.dtype == "float16";
  if (spec.shape.size() != 4 || (!half && spec.dtype != "float32")) {
    throw Error("the logits are no four-dimensional floats; export the bundle anew");
  }
  const Size grid{static_cast<int>(spec.shape[2]), static_cast<int>(spec.shape[3])};
  std::vector<float> best(area(frame), -std::numeric_limits<float>::infinity());
  std::fill_n(mask, best.size(), std::uint8_t{0});
  // One class at a time, so that a few frames of memory suffice for any number of classes.
  for (std::size_t index = 0; index < static_cast<std::size_t>(spec.shape[1]); ++index) {
    const std::vector<float> full =
        bilinear(bilinear(scores(logits, half, index, area(grid)), grid, network), network, frame);
    for (std::size_t i = 0; i < full.size(); ++i) {
      if (full[i] > best[i]) {
        best[i] = full[i];
        mask[i] = static_cast<std::uint8_t>(index);
      }
    }
  }
}

}  // namespace mrcfa

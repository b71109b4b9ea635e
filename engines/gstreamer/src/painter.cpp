#include "painter.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <sstream>
#include <vector>

namespace mrcfa {
namespace {

constexpr std::uint8_t kBlank = 255;
constexpr std::size_t kMostShown = 20;

/// The normal form of a class name: `traffic_light` for ` Traffic light`.
std::string plain(const std::string& name) {
  const auto visible = [](unsigned char letter) { return std::isspace(letter) == 0; };
  const auto first = std::find_if(name.begin(), name.end(), visible);
  const auto last = std::find_if(name.rbegin(), name.rend(), visible).base();
  std::string made(first, std::max(first, last));
  std::transform(made.begin(), made.end(), made.begin(), [](unsigned char letter) {
    return letter == ' ' ? '_' : static_cast<char>(std::tolower(letter));
  });
  return made;
}

std::string listed(const std::vector<std::string>& names) {
  std::string made;
  for (std::size_t i = 0; i < std::min(names.size(), kMostShown); ++i) {
    made += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() <= kMostShown
             ? made
             : made + " and " + std::to_string(names.size() - kMostShown) + " more";
}

std::size_t index_of(const std::string& name, const std::vector<std::string>& classes) {
  std::vector<std::string> known(classes.size());
  std::transform(classes.begin(), classes.end(), known.begin(), plain);
  const auto found = std::find(known.begin(), known.end(), name);
  if (found != known.end()) {
    return static_cast<std::size_t>(found - known.begin());
  }
  std::vector<std::string> near;
  std::copy_if(known.begin(), known.end(), std::back_inserter(near),
               [&](const std::string& each) { return each.find(name) != std::string::npos; });
  throw Error("no class is called '" + name + "'; " +
              (near.empty() ? "there are " + listed(known) : "did you mean " + listed(near)));
}

std::vector<std::size_t> indices(const std::string& names,
                                 const std::vector<std::string>& classes) {
  std::vector<std::size_t> made;
  std::istringstream parts(names);
  for (std::string part; std::getline(parts, part, ',');) {
    if (const std::string name = plain(part); !name.empty()) {
      made.push_back(index_of(name, classes));
    }
  }
  if (made.empty()) {
    for (std::size_t i = 0; i < classes.size(); ++i) {
      made.push_back(i);
    }
  }
  return made;
}

using Levels = std::array<std::uint8_t, 3>;

/// A colour in Y, U and V, by the integers of mrcfa/model/input_format.py.
Levels yuv_of(const Colour& colour, const Info& info) {
  constexpr double kUnit = 1 << 14;
  const bool hd = info.matrix == "bt709";
  const bool full = info.range == "full";
  const double red = hd ? 0.2126 : 0.299;
  const double blue = hd ? 0.0722 : 0.114;
  const double light = (full ? 255 : 219) / 255.0 * kUnit;
  const double steps = (full ? 255 : 224) / 255.0 * kUnit;
  // The weights of red and blue, their sum with that of green, and the level without colour.
  const auto level = [&](double of_red, double of_blue, double total, int base) {
    const std::int64_t r = std::lround(of_red);
    const std::int64_t b = std::lround(of_blue);
    const std::int64_t g = std::lround(total) - r - b;
    const std::int64_t unit = 1 << 14;
    const std::int64_t sum = r * colour.red + g * colour.green + b * colour.blue;
    return static_cast<std::uint8_t>(
        std::min<std::int64_t>((sum + base * unit + unit / 2) / unit, 255));
  };
  return {level(light * red, light * blue, light, full ? 0 : 16),
          level(steps * -red / (2 * (1 - blue)), steps / 2, 0, 128),
          level(steps / 2, steps * -blue / (2 * (1 - red)), 0, 128)};
}

/// A colour in the channels of the bundle's frames.
Levels channels_of(const Colour& colour, const Info& info) {
  switch (info.layout) {
    case Layout::nv12:
      return yuv_of(colour, info);
    case Layout::bgr:
      return {colour.blue, colour.green, colour.red};
    default:
      return {colour.red, colour.green, colour.blue};
  }
}

}  // namespace

Painter::Painter(const Info& info, double alpha, const std::string& classes) {
  // Rounds halves to even, as Python does.
  const auto opacity = static_cast<std::uint16_t>(std::lrint(256 * alpha));
  const auto tinted = [opacity](std::uint8_t level) {
    return static_cast<std::uint16_t>(level * opacity);
  };
  const std::vector<std::size_t> wanted = indices(classes, info.classes);
  label_.fill(kBlank);
  for (const std::size_t index : wanted) {
    const auto [first, second, third] = channels_of(info.palette.at(index), info);
    blend_.at(index) = {static_cast<std::uint16_t>(256 - opacity),
                        {tinted(first), tinted(second), tinted(third)}};
    label_.at(index) = static_cast<std::uint8_t>(index);
  }
}

void Painter::tint(std::uint8_t* pixels, const std::uint8_t* mask, std::size_t width) const {
  for (std::size_t x = 0; x < width; ++x) {
    for (std::size_t channel = 0; channel < 3; ++channel, ++pixels) {
      *pixels = blend_[mask[x]](*pixels, channel);
    }
  }
}

void Painter::tint_luma(std::uint8_t* luma, const std::uint8_t* mask, std::size_t width) const {
  for (std::size_t x = 0; x < width; ++x) {
    luma[x] = blend_[mask[x]](luma[x], 0);
  }
}

void Painter::tint_chroma(std::uint8_t* chroma, const std::uint8_t* mask, std::size_t width) const {
  for (std::size_t x = 0; x < width; x += 2) {
    chroma[x] = blend_[mask[x]](chroma[x], 1);
    chroma[x + 1] = blend_[mask[x]](chroma[x + 1], 2);
  }
}

void Painter::select(std::uint8_t* mask, std::size_t size) const {
  std::transform(mask, mask + size, mask, [this](std::uint8_t each) { return label_[each]; });
}

}  // namespace mrcfa

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
    const auto [red, green, blue] = info.palette.at(index);
    blend_.at(index) = {static_cast<std::uint16_t>(256 - opacity),
                        {tinted(red), tinted(green), tinted(blue)}};
    label_.at(index) = static_cast<std::uint8_t>(index);
  }
}

void Painter::tint(std::uint8_t* rgb, const std::uint8_t* mask, std::size_t width) const {
  for (std::size_t x = 0; x < width; ++x) {
    const Blend& blend = blend_[mask[x]];
    for (std::size_t channel = 0; channel < 3; ++channel, ++rgb) {
      *rgb = static_cast<std::uint8_t>((*rgb * blend.weight + blend.colour[channel]) >> 8);
    }
  }
}

void Painter::select(std::uint8_t* mask, std::size_t size) const {
  std::transform(mask, mask + size, mask, [this](std::uint8_t each) { return label_[each]; });
}

}  // namespace mrcfa

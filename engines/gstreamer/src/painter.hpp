// Painting masks: the wanted classes as colours over a frame, or as numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mrcfa.hpp>
#include <string>

namespace mrcfa {

/// Looks classes up in tables of 256 entries, as `mrcfa run` does, so that the pixels are the same.
/// Throws Error if a class is not among those of the bundle.
class Painter {
 public:
  /// `alpha`, from 0 to 1, is the opacity of the colours. `classes`, such as `person,car`, are the
  /// wanted ones; empty stands for all.
  Painter(const Info& info, double alpha, const std::string& classes);

  /// Tints `width` pixels of RGB or BGR in place; their classes are in `mask`.
  void tint(std::uint8_t* pixels, const std::uint8_t* mask, std::size_t width) const;

  /// Tints a row of Y, or one of U and V, whose 2×2 pixels take the class of the first of them.
  void tint_luma(std::uint8_t* luma, const std::uint8_t* mask, std::size_t width) const;
  void tint_chroma(std::uint8_t* chroma, const std::uint8_t* mask, std::size_t width) const;

  /// Sets classes that are not wanted to 255, in place.
  void select(std::uint8_t* mask, std::size_t size) const;

 private:
  struct Blend {
    std::uint16_t weight = 256;  ///< The weight of the frame, in 256ths.
    std::array<std::uint16_t, 3> colour{};

    [[nodiscard]] std::uint8_t operator()(std::uint8_t level, std::size_t channel) const {
      return static_cast<std::uint8_t>((level * weight + colour.at(channel)) >> 8);
    }
  };
  std::array<Blend, 256> blend_{};
  std::array<std::uint8_t, 256> label_{};
};

}  // namespace mrcfa

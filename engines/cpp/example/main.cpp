// Segments ten grey frames with an installed libmrcfa: the whole API on one page.
#include <iostream>
#include <mrcfa.hpp>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: example BUNDLE\n";
    return 2;
  }
  try {
    mrcfa::Stream stream(argv[1]);
    const mrcfa::Info& info = stream.info();
    std::cout << info.backend << ", frames of " << info.height << "x" << info.width << "\n";

    const auto pixels = static_cast<std::size_t>(info.height) * info.width;
    std::vector<std::uint8_t> rgb(3 * pixels, 128);  // a frame of your camera or decoder
    std::vector<std::uint8_t> mask(pixels);
    for (int frame = 0; frame < 10; ++frame) {
      stream.segment(rgb.data(), info.height, info.width, mask.data());
      const std::uint8_t middle = mask[pixels / 2 + info.width / 2];
      std::cout << "frame " << frame << ": " << info.classes.at(middle) << " in the middle\n";
    }
    stream.reset();  // before the next video
  } catch (const mrcfa::Error& error) {
    std::cerr << "example: " << error.what() << "\n";
    return 2;
  }
}

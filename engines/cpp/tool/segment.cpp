// mrcfa-segment reads raw frames from standard input and writes raw masks to standard output, so it
// fits between two ffmpeg.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <mrcfa.hpp>
#include <optional>
#include <string_view>

namespace {

constexpr const char* kUsage =
    R"(usage: mrcfa-segment BUNDLE [options] < frames.raw > masks.raw

Frames have no headers. Their size and layout are those that the bundle takes: rgb24, or bgr24 or
nv12 after mrcfa export --input. Masks are a byte per pixel.

  --raw HxW          check that frames of this size, height first, fit the bundle
  --as KIND          write mask: a class per pixel (gray, the default), or color: the
                     classes' colours (rgb24)
  --backend NAME     run auto (the default), tensorrt, onnxruntime, onnxruntime:cpu,
                     onnxruntime:cuda or onnxruntime:webgpu
  --strict           fail if a GPU is there and cannot be used, instead of a warning
  --precision NAME   run fp32, fp16, int8 or fp8; by default fp32 on a CPU, fp16 on a GPU
  --threads N        run ONNX Runtime with N threads on the CPU; 0, the default: it chooses
  --device N         run on the GPU of this index; by default on the first
  --plugin-library F load this libmrcfa_plugin.so for engines that were built with it
  --no-graphs        launch kernels one by one instead of as CUDA graphs
  --reset-every N    start a new video after every N frames; 0, the default: never
  --info             print what would run and its classes, and end
  --version          print the version, and end

  ffmpeg -i in.mp4 -f rawvideo -pix_fmt rgb24 -s 864x480 - \
    | mrcfa-segment bundles/vspw-b1 --raw 480x864 --as color \
    | ffmpeg -f rawvideo -pix_fmt rgb24 -s 864x480 -i - out.mp4
)";

struct Arguments {
  std::string bundle;
  mrcfa::Options options;
  int height = 0;  // 0 without --raw
  int width = 0;
  bool color = false;
  int reset_every = 0;
  bool info = false;
};

std::string in_quotes(std::string_view text) {
  return "'" + std::string(text) + "'";
}

/// The number that the text writes in digits alone; none if it has anything else.
std::optional<int> digits(std::string_view text) {
  int value = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = failure == std::errc() && end == text.data() + text.size() && value >= 0;
  return whole ? std::optional(value) : std::nullopt;
}

int number(const std::string& option, std::string_view text) {
  const std::optional<int> value = digits(text);
  if (!value) {
    throw mrcfa::Error(option + " is " + in_quotes(text) +
                       "; it must be a whole number, 0 or more");
  }
  return *value;
}

void read_size(std::string_view text, Arguments& arguments) {
  const std::size_t cross = std::min(text.find('x'), text.size());
  arguments.height = digits(text.substr(0, cross)).value_or(0);
  arguments.width = cross < text.size() ? digits(text.substr(cross + 1)).value_or(0) : 0;
  if (arguments.width == 0 || arguments.height == 0) {
    throw mrcfa::Error(in_quotes(text) + " is no size; write HxW, such as 480x864");
  }
}

Arguments parsed(const std::vector<std::string>& words) {
  Arguments made;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto value = [&]() -> const std::string& {
      if (++i == words.size()) {
        throw mrcfa::Error(word + " needs a value; see mrcfa-segment --help");
      }
      return words[i];
    };
    if (word == "--raw") {
      read_size(value(), made);
    } else if (word == "--as") {
      const std::string& style = value();
      if (style != "mask" && style != "color") {
        throw mrcfa::Error("unknown style " + in_quotes(style) + "; choose one of mask, color");
      }
      made.color = style == "color";
    } else if (word == "--backend") {
      made.options.backend = value();
    } else if (word == "--precision") {
      made.options.precision = value();
    } else if (word == "--threads") {
      made.options.threads = number(word, value());
    } else if (word == "--device") {
      made.options.device = number(word, value());
    } else if (word == "--plugin-library") {
      made.options.plugin_library = value();
    } else if (word == "--reset-every") {
      made.reset_every = number(word, value());
    } else if (word == "--no-graphs") {
      made.options.cuda_graphs = false;
    } else if (word == "--strict") {
      made.options.strict = true;
    } else if (word == "--info") {
      made.info = true;
    } else if (word.rfind('-', 0) == 0 || !made.bundle.empty()) {
      throw mrcfa::Error("unknown argument " + in_quotes(word) + "; see mrcfa-segment --help");
    } else {
      made.bundle = word;
    }
  }
  if (made.bundle.empty()) {
    throw mrcfa::Error("no bundle is named; see mrcfa-segment --help");
  }
  return made;
}

std::string size_of(int height, int width) {
  return std::to_string(height) + "x" + std::to_string(width);
}

/// The layout of the frames, as ffmpeg's -pix_fmt names it.
std::string layout_of(const mrcfa::Info& info) {
  if (info.layout == mrcfa::Layout::nv12) {
    return "nv12 (" + info.matrix + ", " + info.range + " range)";
  }
  return info.layout == mrcfa::Layout::bgr ? "bgr24" : "rgb24";
}

void print(const mrcfa::Info& info) {
  std::cout << info.method << ' ' << info.backbone << ", preset " << info.dataset << ", "
            << info.classes.size() << " classes"
            << (info.trained ? "" : " (untrained: masks are meaningless)") << "\nframes "
            << size_of(info.height, info.width) << " (height x width), " << layout_of(info)
            << "\nruns on " << info.backend << "\nclasses:";
  for (std::size_t i = 0; i < info.classes.size(); ++i) {
    std::cout << (i == 0 ? " " : ", ") << info.classes[i];
  }
  std::cout << "\n";
}

void check_size(const Arguments& arguments, const mrcfa::Info& info) {
  const int height = arguments.height;
  const int width = arguments.width;
  if (height == 0 || (height == info.height && width == info.width)) {
    return;
  }
  const bool swapped = height == info.width && width == info.height;
  throw mrcfa::Error(
      "the frames are " + std::to_string(height) + " high and " + std::to_string(width) +
      " wide, but " + arguments.bundle + " takes " + size_of(info.height, info.width) +
      " (height first)" +
      (swapped ? "; if that is their size write --raw " + size_of(width, height) + ", else resize"
               : "; resize") +
      " them in the graphs: mrcfa export --frame " + size_of(height, width));
}

void write(const std::vector<std::uint8_t>& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() ||
      std::fflush(stdout) != 0) {
    throw mrcfa::Error("cannot write standard output");
  }
}

/// Paints each pixel in the colour of its class; a class without a colour is black.
class Painter {
 public:
  explicit Painter(const std::vector<mrcfa::Colour>& palette) {
    for (std::size_t i = 0; i < palette.size() && i < colours_.size(); ++i) {
      colours_[i] = palette[i];
    }
  }

  [[nodiscard]] std::vector<std::uint8_t> operator()(const std::vector<std::uint8_t>& mask) const {
    std::vector<std::uint8_t> painted;
    painted.reserve(3 * mask.size());
    for (const std::uint8_t index : mask) {
      const auto [red, green, blue] = colours_[index];
      painted.insert(painted.end(), {red, green, blue});
    }
    return painted;
  }

 private:
  std::array<mrcfa::Colour, 256> colours_{};
};

/// Segments all frames and returns the exit code: 1 if the last of several frames was cut short.
int segment(const Arguments& arguments, mrcfa::Stream& stream) {
  const mrcfa::Info& info = stream.info();
  check_size(arguments, info);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(info.width) *
                                 static_cast<std::size_t>(info.height));
  std::vector<std::uint8_t> frame(info.frame_bytes());
  const Painter painted(info.palette);
  for (int count = 0;; ++count) {
    const std::size_t came = std::fread(frame.data(), 1, frame.size(), stdin);
    if (came == 0 && count > 0) {
      return 0;
    }
    if (came < frame.size()) {
      const std::string problem =
          came == 0 ? "standard input has no frames"
                    : "the last frame on standard input was lost: " + std::to_string(came) +
                          " of " + std::to_string(frame.size()) + " bytes came";
      if (count == 0) {
        throw mrcfa::Error(problem);
      }
      std::cerr << "mrcfa-segment: " << problem << "\n";
      return 1;
    }
    if (arguments.reset_every != 0 && count % arguments.reset_every == 0) {
      stream.reset();
    }
    stream.segment(frame.data(), info.height, info.width, mask.data());
    write(arguments.color ? painted(mask) : mask);
  }
}

int run(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") {
      std::cout << kUsage;
      return 0;
    }
    if (word == "--version") {
      std::cout << "mrcfa-segment " MRCFA_VERSION "\n";
      return 0;
    }
  }
  const Arguments arguments = parsed(words);
  mrcfa::Stream stream(arguments.bundle, arguments.options);
  if (arguments.info) {
    print(stream.info());
    return 0;
  }
  return segment(arguments, stream);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "mrcfa-segment: " << error.what() << "\n";
    return 2;
  }
}

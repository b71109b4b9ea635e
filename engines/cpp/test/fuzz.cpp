// Feeds the manifest's reader with broken manifests: those on standard input, one per line, then
// every prefix of the first, then the first with random damage. Each must be read or refused with
// an mrcfa::Error; anything else ends the program. It is deterministic, so a failure can be
// repeated.
//
//   mrcfa-fuzz BUNDLE INPUTS SEED < manifests.txt
//   mrcfa-fuzz BUNDLE < manifests.txt      # prints the error of each, or an empty line
#include <algorithm>
#include <iostream>
#include <random>
#include <string>

#include "bundle.hpp"

namespace {

void print_verdicts(const std::filesystem::path& folder) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      mrcfa::Bundle(folder, mrcfa::Manifest::parse(line, folder / "manifest.json"));
      std::cout << "\n";
    } catch (const mrcfa::Error& error) {
      std::cout << error.what() << "\n";
    }
  }
}

/// Reads its inputs and counts how many are read and refused.
class Target {
 public:
  explicit Target(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void operator()(const std::string& text) {
    try {
      const mrcfa::Bundle bundle(folder_, mrcfa::Manifest::parse(text, folder_ / "manifest.json"));
      for (const mrcfa::Variant& variant : bundle.manifest().variants) {
        (void)mrcfa::named(variant.decoder.inputs, "memory").bytes();
        (void)bundle.read(variant.decoder.file);
      }
      ++read_;
    } catch (const mrcfa::Error&) {
      ++refused_;
    }
  }

  [[nodiscard]] int read() const { return read_; }
  [[nodiscard]] int refused() const { return refused_; }

 private:
  std::filesystem::path folder_;
  int read_ = 0;
  int refused_ = 0;
};

std::string damaged(std::string text, std::mt19937& random) {
  const auto below = [&random](std::size_t limit) { return random() % limit; };
  for (std::size_t times = 1 + below(4); times > 0 && !text.empty(); --times) {
    const std::size_t place = below(text.size());
    const std::size_t length = 1 + below(std::min<std::size_t>(text.size() - place, 64));
    switch (below(5)) {
      case 0:
        text[place] = static_cast<char>(random());
        break;
      case 1:
        text[place] = "{}[]\",:0-.e\\/"[below(13)];
        break;
      case 2:
        text.erase(place, length);
        break;
      case 3:
        text.insert(below(text.size()), text.substr(place, length));
        break;
      default:
        text.insert(place, 1 + below(200), "[{09"[below(4)]);
        break;
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() == 2) {
    print_verdicts(words[1]);
    return 0;
  }
  if (words.size() != 4) {
    std::cerr << "usage: mrcfa-fuzz BUNDLE [INPUTS SEED] < manifests.txt\n";
    return 2;
  }
  Target target(words[1]);
  std::string first;
  for (std::string line; std::getline(std::cin, line);) {
    first = first.empty() ? line : first;
    target(line);
  }
  for (std::size_t length = 0; length < first.size(); ++length) {
    target(first.substr(0, length));
  }
  std::mt19937 random(std::stoul(words[3]));
  while (target.read() + target.refused() < std::stoi(words[2])) {
    target(damaged(first, random));
  }
  std::cout << target.read() << " read, " << target.refused() << " refused\n";
}

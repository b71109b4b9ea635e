#include "sentence.hpp"

namespace mrcfa {

std::string in_quotes(const std::string& text) {
  const bool other = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char mark = other ? '"' : '\'';
  std::string made(1, mark);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == mark || c == '\\') {
      made += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      made += {'\\', 'x', "0123456789abcdef"[byte >> 4U], "0123456789abcdef"[byte & 0xFU]};
    } else {
      made += c;
    }
  }
  return made + mark;
}

std::string listed(const std::vector<std::string>& names, const char* between) {
  std::string made;
  for (const std::string& name : names) {
    made += (made.empty() ? "" : between) + name;
  }
  return made;
}

}  // namespace mrcfa

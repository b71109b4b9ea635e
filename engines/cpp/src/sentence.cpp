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

std::string printable(const std::string& text) {
  const char* digits = "0123456789abcdef";
  std::string made;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&text, i](std::size_t k) -> unsigned {
      return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0;
    };
    const std::size_t length = byte(0) < 0xC0 ? 1 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
    const unsigned code =
        length == 1   ? byte(0)
        : length == 2 ? (byte(0) & 0x1FU) << 6U | (byte(1) & 0x3FU)
        : length == 3 ? (byte(0) & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU)
                      : 0x10000;
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    const bool turns = code == 0x061C || code == 0x200E || code == 0x200F || code == 0xFEFF ||
                       (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    if (control) {
      made += {'\\', 'x', digits[code >> 4U], digits[code & 0xFU]};
    } else if (turns) {
      made += {'\\',
               'u',
               digits[code >> 12U],
               digits[code >> 8U & 0xFU],
               digits[code >> 4U & 0xFU],
               digits[code & 0xFU]};
    } else {
      made += text.substr(i, length);
    }
    i += length;
  }
  return made;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 10;
  std::string made;
  for (std::size_t i = 0; i < names.size() && i < kMost; ++i) {
    made += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kMost) {
    made += " and " + std::to_string(names.size() - kMost) + " more";
  }
  return made;
}

}  // namespace mrcfa

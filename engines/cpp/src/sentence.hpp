// Words of the messages that both languages share.
#pragma once

#include <string>
#include <vector>

namespace mrcfa {

/// `'name'`, as Python quotes a string in its messages; control characters are escaped.
std::string in_quotes(const std::string& text);

/// The text with what moves a terminal's cursor, ends a line or turns the direction of writing as
/// escapes, as mrcfa.decoding.printable has it. The text is UTF-8.
std::string printable(const std::string& text);

/// `a, b, c`, or with something else between them.
std::string listed(const std::vector<std::string>& names, const char* between = ", ");

}  // namespace mrcfa

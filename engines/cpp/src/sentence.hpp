// Parts of the sentences that both languages share.
#pragma once

#include <string>
#include <vector>

namespace mrcfa {

/// `'name'`, as Python quotes a string in a message; control characters are escaped.
std::string in_quotes(const std::string& text);

/// The UTF-8 text with escapes for characters that move a terminal's cursor, end a line or turn the
/// direction of writing. Python: `printable` in mrcfa/data/decoding.py.
std::string printable(const std::string& text);

/// `a, b, c and 4 more`: a list that stays readable however long it is, as mrcfa.errors.named.
std::string listed(const std::vector<std::string>& names);

}  // namespace mrcfa

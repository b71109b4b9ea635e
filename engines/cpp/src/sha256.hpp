#pragma once

#include <string>
#include <string_view>

namespace mrcfa {

/// SHA-256 (FIPS 180-4) in lower-case hex. It is the only cryptography in the library: 60 lines,
/// tested against Python's, instead of a link to OpenSSL.
std::string sha256(std::string_view data);

}  // namespace mrcfa

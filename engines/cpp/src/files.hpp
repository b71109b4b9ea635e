// Reading and writing whole files, and the user's cache folder, as mrcfa/machine/files.py has them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

namespace mrcfa {

/// What is in a file, or the first `most` bytes of it; an Error of Python's words if it cannot be
/// read.
std::string content_of(const std::filesystem::path& path,
                       std::uintmax_t most = std::numeric_limits<std::uintmax_t>::max());

/// Beside its name first, then renamed: whoever sees the name sees all of it. An Error of Python's
/// words if that cannot be done.
void write_whole(const std::filesystem::path& path, std::string_view content);

/// Where the user's caches lie: what is lost with them can be made again. Empty if there is no
/// home.
std::filesystem::path cache_folder();

}  // namespace mrcfa
